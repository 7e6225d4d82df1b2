"""Decisions about children: created, corrected, or removed, with their Events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mailboat_operator.manifests.children import ChildKey, Manifest, key_of
from mailboat_operator.manifests.comparison import differing_field
from mailboat_operator.manifests.configuration import TOKEN_KEY
from mailboat_operator.manifests.names import APPLIED
from mailboat_operator.plan.actions import Action, Apply, Create, Delete, Report, Severity

_NOTHING: Final[Manifest] = {"metadata": {}}

Live = Mapping[ChildKey, Manifest]
"""The children that there are, as the API server gave them."""


def plan_children(wanted: Sequence[Manifest], live: Live) -> Iterator[Action]:
    """Actions for the children that are wanted: nothing for those that are as they should be.

    A child that somebody changed is put right, with an Event that names the first field; one whose rendering changed
    is applied without a word.
    """
    for manifest in wanted:
        key = key_of(manifest)
        found = live.get(key)
        if found is None or _annotation(found, APPLIED) != _annotation(manifest, APPLIED):
            yield Apply(manifest)
            continue
        difference = differing_field(_asked_for(manifest), found)
        if difference is not None:
            yield Apply(manifest)
            yield Report(
                Severity.WARNING,
                "DriftCorrected",
                f"{key.kind} {key.name}: reverted a change by another client: {difference}",
            )


def is_applied(wanted: Sequence[Manifest], live: Live) -> bool:
    """Whether the children were applied as they are wanted, whatever somebody did to them since."""
    return all(_annotation(live.get(key_of(one), _NOTHING), APPLIED) == _annotation(one, APPLIED) for one in wanted)


def plan_secret(manifest: Manifest, live: Live) -> Iterator[Action]:
    """A Secret that is made once, with a generated token."""
    if key_of(manifest) not in live:
        yield Create(manifest, (TOKEN_KEY,))


def plan_unwanted(keys: Iterable[ChildKey], wanted: Iterable[Manifest], live: Live, owner_uid: str) -> Iterator[Action]:
    """Children of ours that are not wanted any more."""
    kept = {key_of(manifest) for manifest in wanted}
    for key in keys:
        if key not in kept and key in live and controller_uid(live[key]) == owner_uid:
            yield deletion(key, live)


def taken_name(live: Live, wanted: Iterable[Manifest], owner_uid: str) -> ChildKey | None:
    """The first of the names wanted that an object of somebody else has: it is never taken over."""
    return next(
        (key for key in map(key_of, wanted) if key in live and controller_uid(live[key]) != owner_uid),
        None,
    )


def deletion(key: ChildKey, live: Live) -> Delete:
    """The deletion of a child that was found."""
    return Delete(key, live[key]["metadata"]["uid"])


def controller_uid(manifest: Manifest) -> str | None:
    """The UID of the controlling owner of an object; None where there is none."""
    references: Sequence[Mapping[str, Any]] = manifest["metadata"].get("ownerReferences") or ()
    return next((one["uid"] for one in references if one.get("controller")), None)


def _asked_for(manifest: Manifest) -> Manifest:
    """A manifest without what says which object it is."""
    return {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}


def _annotation(manifest: Manifest, name: str) -> str | None:
    found: str | None = (manifest["metadata"].get("annotations") or {}).get(name)
    return found

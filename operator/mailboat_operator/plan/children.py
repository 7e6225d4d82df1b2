"""Decisions about children: created, corrected, or removed, with their Events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.plan.actions import Action, Apply, Correct, Create, Delete, RecordEvent, Severity
from mailboat_operator.plan.child_manifest import ChildKey, Manifest, key_of
from mailboat_operator.plan.findings import FORMER_CHILD_EXISTS, NAME_TAKEN, Finding, stalled, under_way
from mailboat_operator.plan.labels import APPLIED, TOKEN_KEY

_NOTHING: Final[Manifest] = {"metadata": {}}

Live = Mapping[ChildKey, Manifest]
"""The children that there are, as the API server gave them."""


def plan_children(wanted: Sequence[Manifest], live: Live) -> Iterator[Action]:
    """Actions for the children that are wanted: nothing for those that are as they should be.

    A child that another client changed is corrected, with an Event (see `correction_report`). One whose rendering
    changed is applied without an Event.
    """
    for manifest in wanted:
        key = key_of(manifest)
        found = live.get(key)
        # another digest: the spec or the version of the operator changed what is wanted, and no client changed the
        # child
        if found is None or _annotation(found, APPLIED) != _annotation(manifest, APPLIED):
            yield Apply(manifest)
            continue
        difference = differing_field(_asked_for(manifest), found)
        if difference is not None:
            yield Correct(manifest, difference)


def correction_report(corrected: Correct, made: Manifest) -> RecordEvent:
    """The Event after `corrected` became `made`: a webhook may have changed it in the same request."""
    key = key_of(corrected.manifest)
    remaining = differing_field(_asked_for(corrected.manifest), made)
    if remaining is None:
        text = f"{key.kind} {key.name}: reverted a change by another client: {corrected.difference}"
        return RecordEvent(Severity.WARNING, "DriftCorrected", text)
    text = f"{key.kind} {key.name}: {remaining} is changed when it is applied; exclude it from that admission webhook"
    return RecordEvent(Severity.WARNING, "DriftRemains", text)


def is_applied(wanted: Sequence[Manifest], live: Live) -> bool:
    """Whether the children were applied as they are wanted, whatever other clients changed since."""
    return all(
        _annotation(live.get(key_of(manifest), _NOTHING), APPLIED) == _annotation(manifest, APPLIED)
        for manifest in wanted
    )


def plan_secret(manifest: Manifest, live: Live) -> Iterator[Action]:
    """A Secret that is made once, with a generated token."""
    if key_of(manifest) not in live:
        yield Create(manifest, (TOKEN_KEY,))


def plan_unwanted(keys: Iterable[ChildKey], wanted: Iterable[Manifest], live: Live, owner_uid: str) -> Iterator[Action]:
    """Children of ours that are not wanted any more."""
    kept = {key_of(manifest) for manifest in wanted}
    for key in keys:
        # by uid: a child of a former owner of this name is left to the garbage collector
        if key not in kept and key in live and controller_uid(live[key]) == owner_uid:
            yield deletion(key, live)


def name_conflict(wanted: Sequence[Manifest], live: Live, owner_uid: str) -> Sequence[Finding] | None:
    """A finding if a name belongs to another owner, who keeps it; None if all are free or ours."""
    taken = next((child for child in wanted if controller_uid(live.get(key_of(child), child)) != owner_uid), None)
    if taken is None:
        return None
    key, theirs, ours = key_of(taken), _controller(live[key_of(taken)]), _controller(taken)
    # an object that is deleted and made again at once finds its children until the cluster has collected them
    if (theirs.get("kind"), theirs.get("name")) == (ours["kind"], ours["name"]):
        text = f"waits for the deletion of {key.kind} {key.name}, of an earlier {ours['kind']} of this name"
        return under_way(FORMER_CHILD_EXISTS, text)
    message = f"{key.kind} {key.name} exists and belongs to another owner; it is not changed. Use another name"
    return stalled(NAME_TAKEN, message)


def deletion(key: ChildKey, live: Live) -> Delete:
    """The deletion of a child that was found."""
    return Delete(key, live[key]["metadata"]["uid"])


def controller_uid(manifest: Manifest) -> str | None:
    """The UID of the controlling owner of an object; None if absent."""
    return _controller(manifest).get("uid")


def workload_of(metadata: Metadata, live: Live) -> Manifest:
    """The StatefulSet of an object; empty if absent, or if the one of its name has another owner."""
    found = live.get(ChildKey("StatefulSet", metadata.name), _NOTHING)
    return found if controller_uid(found) == metadata.uid else {}


def _controller(manifest: Manifest) -> Mapping[str, Any]:
    references: Sequence[Mapping[str, Any]] = manifest["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), {})


def _asked_for(manifest: Manifest) -> Manifest:
    """A manifest without what says which object it is."""
    return {name: value for name, value in manifest.items() if name not in {"apiVersion", "kind"}}


def _annotation(manifest: Manifest, name: str) -> str | None:
    found: str | None = (manifest["metadata"].get("annotations") or {}).get(name)
    return found


_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|[MGTPE]|[KMGTPE]i)?\Z")
_FACTORS: Final = MappingProxyType(
    {
        "": Decimal(1),
        "m": Decimal("0.001"),
        **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
        **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
    }
)


def differing_field(wanted: object, found: object, path: str = "") -> str | None:
    """The first field in which `found` is not as wanted, such as `.spec.replicas`; None if absent."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return _first(differing_field(value, found.get(key), f"{path}.{key}") for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return _differing_entry(wanted, found, path)
    if _is_nothing(wanted) and _is_nothing(found):
        return None
    return None if wanted == found or _are_equal_quantities(wanted, found) else path or "."


def _differing_entry(wanted: Sequence[object], found: Sequence[object], path: str) -> str | None:
    """Entries are matched by what names them, as the API server merges them: others may have added theirs."""
    keys = next((keys for keys in _ENTRY_KEYS if _are_distinct(wanted, keys)), None)
    if keys is None:
        if len(wanted) != len(found):
            return path
        return _first(differing_field(one, found[place], f"{path}[{place}]") for place, one in enumerate(wanted))
    known = {_entry_key(entry, keys): entry for entry in found}
    return _first(
        differing_field(entry, known.get(_entry_key(entry, keys)), f"{path}[{_entry_key(entry, keys)[0]}]")
        for entry in wanted
    )


_ENTRY_KEYS: Final = (("mountPath",), ("containerPort", "protocol"), ("name",))
"""What entries of a list are matched by: the first that all have, each with values of its own. Mounts and ports of
containers have names too, but others may mount the same volume at another path, and ports need no name."""


def _are_distinct(entries: Sequence[object], keys: Sequence[str]) -> bool:
    found = [_entry_key(entry, keys) for entry in entries]
    return bool(found) and all(None not in key for key in found) and len({*found}) == len(found)


def _entry_key(entry: object, keys: Sequence[str]) -> tuple[str | None, ...]:
    values = (entry.get(key) if isinstance(entry, Mapping) else None for key in keys)
    return tuple(None if value is None else str(value) for value in values)


def _first(differences: Iterable[str | None]) -> str | None:
    return next((difference for difference in differences if difference is not None), None)


def _is_nothing(value: object) -> bool:
    """The server leaves out what is empty, zero or false."""
    return value is None or value in ({}, [], "", 0)


def _are_equal_quantities(wanted: object, found: object) -> bool:
    sizes = quantity(wanted), quantity(found)
    return None not in sizes and sizes[0] == sizes[1]


def quantity(value: object) -> Decimal | None:
    """The number that a quantity of Kubernetes stands for; None for anything else."""
    match = _QUANTITY.match(value) if isinstance(value, str) else None
    return None if match is None else Decimal(match[1]) * _FACTORS[match[2] or ""]

"""Volumes that grow: which claims are smaller than the spec says, and how far they grew.

The claim template of a StatefulSet can't be changed, so it keeps its first size, and claims are enlarged one by one;
those of new members too, once they exist. Claims are read if the spec differs from the template, and before a
StatefulSet is made, since those of an earlier one of its name stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mailboat.frozen import Frozen

from mailboat_operator.definition.amounts import format_size
from mailboat_operator.definition.conditions import ConditionStatus
from mailboat_operator.plan.actions import Enlarge
from mailboat_operator.plan.child_manifest import Manifest, Owner
from mailboat_operator.plan.children import quantity
from mailboat_operator.plan.findings import Finding
from mailboat_operator.workload.template import Volume

VOLUMES_RESIZED: Final = "VolumesResized"
_LONGEST_TEXT: Final = 400


class VolumeClaims(Frozen):
    """The claims of a workload whose volumes were enlarged since it was made.

    Attributes:
        found: Those of the members that there are.
        refused: Why the API server lets one of them not grow; None if it refused nothing.
    """

    found: Sequence[Manifest] = ()
    refused: str | None = None


def unmade_workload(owner: Owner, volume: str, replicas: int) -> Manifest:
    """A StatefulSet before it is made, as far as its claims need it."""
    template = {"metadata": {"name": volume}, "spec": {}}
    spec = {"replicas": replicas, "selector": {"matchLabels": owner.selector}, "volumeClaimTemplates": [template]}
    return {"metadata": {"name": owner.name_of()}, "spec": spec}


def template_bytes(workload: Manifest) -> int | None:
    """The size of the claims that a StatefulSet makes; None if absent."""
    templates = (workload.get("spec") or {}).get("volumeClaimTemplates") or ()
    sizes = [_requested(template) for template in templates]
    return None if not sizes or sizes[0] == 0 else sizes[0]


def made_volume(workload: Manifest, wanted: Volume) -> Volume:
    """The volume as the StatefulSet's claim template has it, which can't be changed."""
    made = template_bytes(workload)
    # else the API server would refuse the whole StatefulSet, also what else changed of it
    return wanted if made is None else replace(wanted, size_bytes=made)


def is_enlarged(workload: Manifest, wanted: Volume) -> bool:
    """Whether claims of the StatefulSet are made smaller than the spec says."""
    made = template_bytes(workload)
    return made is not None and made < wanted.size_bytes


def members_claims(found: Sequence[Manifest], workload: Manifest) -> Sequence[Manifest]:
    """The claims of the wanted members, in order; that of a removed member grows when it returns."""
    spec, name = workload["spec"], workload["metadata"]["name"]
    (template,) = spec["volumeClaimTemplates"]
    claims = {manifest["metadata"]["name"]: manifest for manifest in found}
    names = [f"{template['metadata']['name']}-{name}-{number}" for number in range(int(spec.get("replicas") or 0))]
    return [claims[name] for name in names if name in claims]


def too_small(claims: Sequence[Manifest], size_bytes: int) -> Iterator[Manifest]:
    """The claims that ask for less."""
    return (claim for claim in claims if _requested(claim) < size_bytes)


def plan_volumes(claims: VolumeClaims, size_bytes: int) -> Iterator[Enlarge]:
    """Actions for the claims that are too small; none while the API server refuses one of them."""
    # one refusal counts for all: the claims of a workload share their storage class
    if claims.refused is None:
        yield from (Enlarge(claim, format_size(size_bytes)) for claim in too_small(claims.found, size_bytes))


def volume_findings(claims: VolumeClaims, size_bytes: int) -> Sequence[Finding]:
    """Whether all volumes have the size that the spec says; nothing for volumes that were never enlarged."""
    size = format_size(size_bytes)
    if claims.refused is not None:
        text = f"claims can't grow to {size}: {claims.refused}"[:_LONGEST_TEXT]
        return (Finding(VOLUMES_RESIZED, ConditionStatus.FALSE, "ResizeRefused", text),)
    if not claims.found:
        return ()
    waiting = [claim for claim in claims.found if _bytes((claim.get("status") or {}).get("capacity")) < size_bytes]
    if not waiting:
        return (Finding(VOLUMES_RESIZED, ConditionStatus.TRUE, "Resized", f"{len(claims.found)} claims have {size}"),)
    text = f"{len(claims.found) - len(waiting)} of {len(claims.found)} claims have {size}"
    word = next(filter(None, map(_word_of, waiting)), "")
    return (Finding(VOLUMES_RESIZED, ConditionStatus.UNKNOWN, "Resizing", f"{text}{word}"[:_LONGEST_TEXT]),)


def _word_of(claim: Manifest) -> str:
    """What the cluster says of a claim that has not grown yet."""
    status, name = claim.get("status") or {}, claim["metadata"]["name"]
    for condition in status.get("conditions") or ():
        if condition.get("status") == "True" and condition.get("message"):
            return f"; {name}: {condition['type']}: {condition['message']}"
    state = (status.get("allocatedResourceStatuses") or {}).get("storage")
    return f"; {name}: {state}" if state else ""


def _requested(claim: Mapping[str, Any]) -> int:
    return _bytes((claim["spec"].get("resources") or {}).get("requests"))


def _bytes(amounts: Mapping[str, Any] | None) -> int:
    size = quantity((amounts or {}).get("storage"))
    return 0 if size is None else int(size)

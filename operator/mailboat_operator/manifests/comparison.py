"""Whether a live object still is as it was rendered: what others add beside is theirs, and no difference.

The API server adds defaults and writes quantities in its own way, so an object is compared by what was asked for and no
more. What was asked for before and is no more can't be seen here; the digest of the manifest tells that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Final

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
    """The first field in which `found` is not as wanted, such as `.spec.replicas`; None when there is none."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return _first(differing_field(value, found.get(key), f"{path}.{key}") for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return _differing_entry(wanted, found, path)
    if _is_nothing(wanted) and _is_nothing(found):
        return None
    return None if wanted == found or _are_equal_quantities(wanted, found) else path or "."


def _differing_entry(wanted: Sequence[object], found: Sequence[object], path: str) -> str | None:
    """Entries with names are matched by them: others may have added theirs."""
    named = {one.get("name"): one for one in found if isinstance(one, Mapping) and one.get("name") is not None}
    if not named:
        if len(wanted) != len(found):
            return path
        return _first(differing_field(one, found[place], f"{path}[{place}]") for place, one in enumerate(wanted))
    for place, one in enumerate(wanted):
        name = one.get("name") if isinstance(one, Mapping) else None
        difference = differing_field(one, named.get(name), f"{path}[{name if name is not None else place}]")
        if difference is not None:
            return difference
    return None


def _first(differences: Iterable[str | None]) -> str | None:
    return next((one for one in differences if one is not None), None)


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

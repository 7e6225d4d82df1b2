"""The names of a node's attributes, understood once for all nodes that have the same: most of a tree repeat a few."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from mailboat.errors import PackageCorruptError
from mailboat.model.nodes import PropertyType
from mailboat.wire.node_bodies import MAX_NAME_LENGTH
from mailboat.wire.shapes import Columns

PRIMARY_TYPE: Final = "jcr:primaryType"
MIXIN_TYPES: Final = "jcr:mixinTypes"

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class AttributePlan(NamedTuple):
    """What the attribute names of a node mean.

    Attributes:
        names: The names, resolved, in the order of the document.
        primary: Where the primary type is among them; None when it is not given.
        mixins: Where the mixins are.
        order: Where the properties are, sorted by name.
        strings: The columns of the properties if all are single strings.
    """

    names: tuple[str, ...]
    primary: int | None
    mixins: int | None
    order: tuple[int, ...]
    strings: Columns


def plan_attributes(names: tuple[str, ...]) -> AttributePlan:
    """Understand and check names; of two that are one when they are decoded, FileVault takes the first.

    Raises: PackageCorruptError.
    """
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        places.setdefault(name, place)
    primary, mixins = places.pop(PRIMARY_TYPE, None), places.pop(MIXIN_TYPES, None)
    held = tuple(sorted(places))
    for name in held:
        if len(name) > MAX_NAME_LENGTH or is_refused_name(name):
            raise PackageCorruptError(f"{name[:80]!r} is not a property's name")
    strings = Columns(held, bytes([PropertyType.STRING]) * len(held))
    return AttributePlan(names, primary, mixins, tuple(places[name] for name in held), strings)


@lru_cache(1024)
def is_refused_name(name: str) -> bool:
    """Whether a text of `MAX_NAME_LENGTH` at most can't name a type or property: the rule of `wire/shapes.py`."""
    return not name or "/" in name or _CONTROL.search(name) is not None


TYPE_ONLY: Final = plan_attributes((PRIMARY_TYPE,))
"""Of nodes that have a type and nothing else."""

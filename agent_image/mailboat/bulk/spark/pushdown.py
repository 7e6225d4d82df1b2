"""What of a query's conditions a reader can use to read less: ranges of numbers, sets of texts, subtrees of paths.

Every condition stays Spark's to check, too; what is taken here only leaves out what can't match. Conditions are pushed
down where the option `pushdown` is `true`, and a table read so answers ONE query: Spark (4.3) keeps the partitions that
were planned with its conditions (SPARK-51575), and gives them to a query without conditions, too, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from mailboat.errors import PathRefusedError
from mailboat.model.paths import ROOT, NodePath, is_within, parse_path

MAX_OFFSET: Final = 2**63 - 1


def within(one: range, other: range) -> range:
    """The numbers that are in both."""
    low = max(one.start, other.start)
    return range(low, max(low, min(one.stop, other.stop)))


def wanted_range(filters: Sequence[Filter], column: str) -> range:
    """The numbers of a column that can match."""
    low, high = 0, MAX_OFFSET
    for one in filters:
        if getattr(one, "attribute", None) != (column,):
            continue
        match one:
            case EqualTo(_, int(value)):
                low, high = max(low, value), min(high, value + 1)
            case GreaterThan(_, int(value)):
                low = max(low, value + 1)
            case GreaterThanOrEqual(_, int(value)):
                low = max(low, value)
            case LessThan(_, int(value)):
                high = min(high, value)
            case LessThanOrEqual(_, int(value)):
                high = min(high, value + 1)
            case _:
                pass
    return range(low, max(low, high))


def wanted_texts(filters: Sequence[Filter], column: str) -> frozenset[str] | None:
    """The texts of a column that can match; None is any."""
    found: frozenset[str] | None = None
    for one in filters:
        if getattr(one, "attribute", None) != (column,):
            continue
        match one:
            case EqualTo(_, str(value)):
                those = frozenset({value})
            case In(_, values):
                those = frozenset(value for value in values if isinstance(value, str))
            case _:
                continue
        found = those if found is None else found & those
    return found


def wanted_prefix(filters: Sequence[Filter], column: str) -> str:
    """What the texts of a column that can match begin with: the longest of the prefixes that are asked for."""
    prefixes = [one.value for one in filters if isinstance(one, StringStartsWith) and one.attribute == (column,)]
    return max(prefixes, key=len, default="")


def asked_alone(filters: Sequence[Filter], roots: Sequence[NodePath]) -> list[NodePath] | None:
    """The single paths that a query asks for; None when it asks for others."""
    paths, prefix = wanted_texts(filters, "path"), wanted_prefix(filters, "path")
    if paths is None:
        return None
    asked = [_path_in(text) for text in sorted(paths) if text.startswith(prefix)]
    return [path for path in asked if path is not None and any(is_within(path, root) for root in roots)]


def asked_below(filters: Sequence[Filter], roots: Sequence[NodePath]) -> list[NodePath]:
    """The subtrees that can hold what a query asks for."""
    prefix = wanted_prefix(filters, "path")
    folder = _path_in(prefix[: prefix.rfind("/")] or "/") if prefix.startswith("/") else ROOT
    if folder is None:
        return []
    kept = (one if is_within(one, folder) else folder if is_within(folder, one) else None for one in roots)
    return [one for one in kept if one is not None]


def _path_in(text: str) -> NodePath | None:
    """The path that a query's text is; None where it is none: no row has it, and no source may look for it."""
    try:
        return parse_path(text)
    except PathRefusedError:
        return None

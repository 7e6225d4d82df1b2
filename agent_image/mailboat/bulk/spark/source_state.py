"""Which state a source is in, where that is cheap to find: a target by its position, a file by its signature.

A plain folder or checkout has none: what is read of it is checked node by node. Used by readers whose tasks are to
see one state of a source.
"""

from __future__ import annotations

from mailboat.composition.locations import absolute_target, opened_ledger
from mailboat.composition.settings import expanded_path
from mailboat.content.locations import TARGET_KINDS
from mailboat.content.sources.folder_entries import signature_of
from mailboat.errors import SourceMissingError


def state_of(source: str) -> str | None:
    """Something that changes whenever the source does; None where there is nothing of the kind.

    Raises:
        SourceMissingError, TargetCorruptError.
    """
    kind, colon, _ = source.partition(":")
    if colon and kind in TARGET_KINDS:
        with opened_ledger(absolute_target(source)) as ledger:
            return str(ledger.position())
    place = expanded_path(source)
    try:
        return str(signature_of(place.stat())) if not place.is_dir() else None
    except FileNotFoundError as error:
        raise SourceMissingError(f"{source!r} does not exist") from error

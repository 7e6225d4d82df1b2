"""Limits of one package: what publishers and pools take from others."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mailboat.config.document import LimitsConfig

from mailboat_operator.definition.fields import Field, Renamed
from mailboat_operator.definition.forms import SIZE

_DEFAULTS = LimitsConfig()


class Limits(LimitsConfig):
    """Limits of one package. Input beyond a limit is refused before anything is written."""

    RENAMED: ClassVar = (Renamed("areCollisionsRefused", "refuseCollisions", default=True),)

    max_entries: Annotated[
        int, Field("Maximum number of nodes per package, and of entries per FileVault zip.", minimum=1, maximum=10**9)
    ] = _DEFAULTS.max_entries
    max_entry_bytes: Annotated[
        int, Field("Maximum unpacked size of one binary or archive entry.", form=SIZE, name="maxEntrySize")
    ] = _DEFAULTS.max_entry_bytes
    max_total_bytes: Annotated[int, Field("Maximum unpacked size of a package.", form=SIZE, name="maxTotalSize")] = (
        _DEFAULTS.max_total_bytes
    )
    max_ratio: Annotated[int, Field("Maximum ratio of unpacked to packed size.", minimum=1, maximum=100_000)] = int(
        _DEFAULTS.max_ratio
    )
    max_xml_depth: Annotated[
        int, Field("Maximum nesting of elements in a DocView document.", minimum=1, maximum=1000)
    ] = _DEFAULTS.max_xml_depth
    refuse_collisions: Annotated[
        bool, Field("Refuse two names in one folder that differ only in case or Unicode form.")
    ] = _DEFAULTS.refuse_collisions

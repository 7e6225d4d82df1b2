"""Limits of one package: what publishers and pools take from others."""

from __future__ import annotations

from typing import ClassVar

from mailboat.config.document import LimitsConfig

from mailboat_operator.definition.fields import Field, Renamed
from mailboat_operator.definition.forms import AGENT_SIZE


class Limits(LimitsConfig):
    """Limits of one package. Input beyond a limit is refused before anything is written."""

    RENAMED: ClassVar = (Renamed("areCollisionsRefused", "refuseCollisions", default=True),)
    FIELDS: ClassVar = {
        "max_entries": Field(maximum=10**9),
        "max_entry_bytes": Field(form=AGENT_SIZE, name="maxEntrySize"),
        "max_total_bytes": Field(form=AGENT_SIZE, name="maxTotalSize"),
        "max_ratio": Field(maximum=100_000),
        "max_xml_depth": Field(),
        "refuse_collisions": Field(),
    }

    max_ratio: int = 200

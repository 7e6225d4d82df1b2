"""How long topics keep messages, as Journals and Topics say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from mailboat.config.storage import ConsumptionPolicy

from mailboat_operator.api.fields import Field, Rule
from mailboat_operator.api.forms import DURATION, DURATION_OF_SECONDS, DURATION_OR_ZERO, SIZE


def _duration_in_cel(holder: str) -> str:
    """Whole seconds of a duration in CEL, which knows no days; a text that is put together would cost too much."""
    days = f"int({holder}.substring(0, {holder}.size() - 1)) * 86400"
    return f"({holder}.endsWith('d') ? {days} : duration({holder}).getSeconds())"


@dataclass(frozen=True)
class Consumption:
    """Packages go once everybody who matters has them."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.max) || {_duration_in_cel('self.min')} <= {_duration_in_cel('self.max')}",
            "min must not be longer than max",
            ".min",
            lambda one: one.max_seconds is None or int(one.min_seconds) <= int(one.max_seconds),
        ),
    )

    policy: Annotated[
        ConsumptionPolicy,
        Field(
            'Who holds packages back: the registered subscribers, or nobody; write "off" in quotes, YAML needs them.'
        ),
    ] = ConsumptionPolicy.DURABLE
    min_seconds: Annotated[float, Field("Packages younger than this stay in any case.", form=DURATION_OR_ZERO)] = 3600.0
    max_seconds: Annotated[
        float | None, Field("Packages older than this go in any case. Default: never.", form=DURATION)
    ] = None


@dataclass(frozen=True)
class TopicRetention:
    """How long a topic keeps messages; what is absent is not limited."""

    time_seconds: Annotated[float | None, Field("Age at which messages may go.", form=DURATION_OF_SECONDS)] = None
    size_bytes: Annotated[int | None, Field("Size beyond which the oldest messages go.", form=SIZE)] = None


@dataclass(frozen=True)
class JournalRetention:
    """How long a journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    time_seconds: Annotated[float, Field("Age at which packages may go.", form=DURATION_OF_SECONDS)] = 7 * 86_400.0
    status_time_seconds: Annotated[
        float, Field("Age at which statuses, commands, announcements and events may go.", form=DURATION_OF_SECONDS)
    ] = 7 * 86_400.0
    size_bytes: Annotated[
        int | None, Field("Size beyond which the oldest packages go. Default: no limit.", form=SIZE)
    ] = None
    consumption: Annotated[
        Consumption | None, Field("Packages go once everybody who matters has them. Default: by age and size alone.")
    ] = None

"""How long topics keep messages, as Journals and Topics say it."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mailboat.config.storage import ConsumptionConfig, ConsumptionPolicy
from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Rule
from mailboat_operator.definition.forms import DURATION, DURATION_OF_SECONDS, DURATION_OR_ZERO, SIZE


def _duration_in_cel(holder: str) -> str:
    """Whole seconds of a duration in CEL, which has no days; a concatenated text would exceed the cost limit."""
    days = f"int({holder}.substring(0, {holder}.size() - 1)) * 86400"
    return f"({holder}.endsWith('d') ? {days} : duration({holder}).getSeconds())"


class Consumption(ConsumptionConfig):
    """Retention by consumption: removes packages that all registered subscribers have imported."""

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
        Field('Subscribers that hold packages back: the registered ones, or none ("off", in quotes in YAML).'),
    ] = ConsumptionPolicy.DURABLE
    min_seconds: Annotated[float, Field("Minimum age of packages that consumption removes.", form=DURATION_OR_ZERO)] = (
        3600.0
    )
    max_seconds: Annotated[
        float | None,
        Field("Age at which packages are removed even if they were not consumed. Default: never.", form=DURATION),
    ] = None


class TopicRetention(Frozen):
    """How long a topic keeps messages; what is absent is not limited."""

    time_seconds: Annotated[float | None, Field("Maximum age of messages.", form=DURATION_OF_SECONDS)] = None
    size_bytes: Annotated[int | None, Field("Maximum size; the oldest messages are removed.", form=SIZE)] = None


class JournalRetention(Frozen):
    """How long a journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    time_seconds: Annotated[float, Field("Maximum age of packages.", form=DURATION_OF_SECONDS)] = 7 * 86_400.0
    status_time_seconds: Annotated[
        float, Field("Maximum age of statuses, commands, announcements and events.", form=DURATION_OF_SECONDS)
    ] = 7 * 86_400.0
    size_bytes: Annotated[
        int | None,
        Field("Maximum size of the package topic; the oldest packages are removed. Default: no limit.", form=SIZE),
    ] = None
    consumption: Annotated[
        Consumption | None,
        Field("Removal of packages that all registered subscribers have imported. Default: none."),
    ] = None

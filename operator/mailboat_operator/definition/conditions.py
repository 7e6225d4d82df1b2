"""What all kinds say of their state: conditions, as `kubectl wait` and kstatus read them, and what they speak of."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Form

REASON = Form(r"^[A-Za-z]([A-Za-z0-9_,:]{0,126}[A-Za-z0-9_])?$", "a reason in camel case", 128)


class ConditionStatus(enum.StrEnum):
    """What is known of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(Frozen):
    """One thing that holds, does not hold, or is not known."""

    type: Annotated[str, Field("Type of the condition, such as Ready.", form=REASON)]
    status: Annotated[ConditionStatus, Field("True, False or Unknown.")]
    reason: Annotated[str, Field("Reason for programs; errors as in `mailboat explain`.", form=REASON)]
    message: Annotated[str, Field("Reason and next step, for people.", max_length=32_768)]
    observed_generation: Annotated[int, Field("Generation of the spec that it describes.", minimum=0)]
    last_transition_at: Annotated[datetime, Field("Time of the last change of the status.", name="lastTransitionTime")]

    @property
    def holds(self) -> bool:
        """Whether it is True; not if it is unknown."""
        return self.status is ConditionStatus.TRUE


def condition_of(conditions: Iterable[Condition], type: str) -> Condition | None:  # noqa: A002
    """The condition of a type; None if absent."""
    return next((condition for condition in conditions if condition.type == type), None)


class ReclaimPolicy(enum.StrEnum):
    """Whether data outlives the object that created it."""

    RETAIN = "Retain"
    DELETE = "Delete"


class Status(Frozen):
    """What the status of every kind begins with."""

    observed_generation: Annotated[
        int | None, Field("Generation of the spec that the status describes.", minimum=0)
    ] = None
    conditions: Annotated[
        tuple[Condition, ...], Field("Conditions of the object. Ready comes first.", max_items=16, key="type")
    ] = ()


Suspend = Annotated[bool, Field("Pause reconciliation: nothing is created, changed or corrected.")]

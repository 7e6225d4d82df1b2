"""Distribution: one request to a publisher, and how far it got. It is asked for once and never changed."""

from __future__ import annotations

import enum
from dataclasses import field
from datetime import datetime
from typing import Annotated, ClassVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import Status
from mailboat_operator.definition.fields import Field, Rule, unchangeable
from mailboat_operator.definition.forms import CANT_BE_CONTENT, CONTENT_PATH, can_be_content, can_be_content_in_cel
from mailboat_operator.definition.kind import AGE, REASON, Kind, PrinterColumn
from mailboat_operator.definition.metadata import Metadata, Reference

MAX_PATHS = 500
_ONCE = "the distribution has been requested; create another Distribution"


class DistributionAction(enum.StrEnum):
    """What to do with the paths."""

    ADD = "Add"
    DELETE = "Delete"
    INVALIDATE = "Invalidate"
    TEST = "Test"


class DistributionState(enum.StrEnum):
    """How far a Distribution got."""

    PENDING = "Pending"
    PUBLISHED = "Published"
    DISTRIBUTED = "Distributed"
    FAILED = "Failed"


class DistributedPath(Frozen):
    """One path."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            can_be_content_in_cel("self.path"),
            f"path {CANT_BE_CONTENT}",
            ".path",
            lambda one: can_be_content(one.path),
        ),
    )

    path: Annotated[str, Field("The path of the content.", form=CONTENT_PATH)]
    deep: Annotated[bool, Field("Include everything below the path; a Delete is always deep.")] = False


class DistributionSpec(Frozen):
    """What is asked for."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.paths) && size(self.paths) > 0 ? self.action != 'Test' : self.action == 'Test'",
            "paths are required with the actions Add, Delete and Invalidate, and not allowed with Test",
            ".paths",
            lambda spec: (not spec.paths) == (spec.action == DistributionAction.TEST),
        ),
        Rule(
            "self.action == 'Add' || !has(self.paths) || self.paths.all(one, !one.deep)",
            "deep is allowed with the action Add only",
            ".paths",
            lambda spec: spec.action == DistributionAction.ADD or not any(path.deep for path in spec.paths),
        ),
        unchangeable("publisherRef", _ONCE),
        unchangeable("action", _ONCE),
        unchangeable("paths", _ONCE),
    )

    publisher_ref: Annotated[Reference, Field("Publisher that publishes the paths.")]
    action: Annotated[DistributionAction, Field("Action of the request.")]
    paths: Annotated[tuple[DistributedPath, ...], Field("The paths.", max_items=MAX_PATHS, key="path")] = ()
    active_deadline_seconds: Annotated[
        int | None,
        Field(
            "Time after creation at which it fails if not all members have the package. Default: never.",
            minimum=1,
            maximum=2**31 - 1,
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        Field("Time after the end at which the object is deleted. Default: never.", minimum=0, maximum=2**31 - 1),
    ] = None


class PoolProgress(Frozen):
    """How far one pool got."""

    name: Annotated[str, Field("Name of the SubscriberPool.")]
    done: Annotated[int, Field("Members that imported the package.", minimum=0)]
    members: Annotated[int, Field("Number of members.", minimum=0)]
    waiting: Annotated[tuple[str, ...], Field("First ten members that have not imported it yet, by agent name.")] = ()
    failed: Annotated[tuple[str, ...], Field("First ten members whose import failed permanently.")] = ()
    missed: Annotated[
        tuple[str, ...],
        Field("First ten members that dropped or skipped it, or whose import cannot be confirmed."),
    ] = ()


class DistributionStatus(Status):
    """State of the request."""

    state: Annotated[DistributionState | None, Field("State of the request.")] = None
    package_id: Annotated[str | None, Field("Id of its package.")] = None
    offset: Annotated[int | None, Field("Offset of the package in the journal.", minimum=0)] = None
    done: Annotated[str | None, Field("Subscribers that imported it, out of all: `3/5`.", max_length=32)] = None
    pools: Annotated[tuple[PoolProgress, ...], Field("The same by pool.", max_items=100, key="name")] = ()
    published_at: Annotated[datetime | None, Field("When the package was appended.")] = None
    finished_at: Annotated[datetime | None, Field("Time when it was distributed, or failed.")] = None


class Distribution(Frozen):
    """A Distribution as it is stored."""

    metadata: Metadata
    spec: DistributionSpec
    status: DistributionStatus = field(default_factory=DistributionStatus)


DISTRIBUTION = Kind(
    "Distribution",
    "distributions",
    "mbdist",
    Distribution,
    (
        PrinterColumn("Action", ".spec.action", text="The request."),
        PrinterColumn("State", ".status.state", text="State of the request."),
        REASON,
        PrinterColumn("Done", ".status.done", text="Subscribers that imported it, of all."),
        PrinterColumn("Offset", ".status.offset", "integer", "Offset of the package in the journal."),
        AGE,
    ),
    "One request to a publisher, and its progress.",
)

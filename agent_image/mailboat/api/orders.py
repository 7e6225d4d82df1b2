"""Requests of the control API, as records of plain values: what the client encodes and a server decodes.

Requests on jobs are in `job_orders.py`. The framework of the server reads the records as they are, with their bounds;
no client loads it for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from mailboat.frozen import Frozen
from mailboat.model.requests import DistributionRequest

# Offsets of Kafka and SQLite have 63 bits.
MAX_OFFSET: Final = 2**63 - 1
MAX_PAGE: Final = 1000
"""Items in one answer, and packages in one request to drive them again."""

LONGEST_NAME: Final = 200
LONGEST_WAIT_SECONDS: Final = 60.0
"""The longest time that an agent waits in one request; for a longer wait the client asks again."""

MIN_SUSPENDED_SECONDS: Final = 1.0
MAX_SUSPENDED_SECONDS: Final = 366 * 86_400
_LONGEST_TARGET: Final = 4096

# An agent measures while it serves: its memory and the journal's load are bounded.
_MAX_BENCH_BYTES: Final = 1024 * 1024
_MAX_BENCH_ROUNDS: Final = 10_000
_MAX_BENCH_SECONDS: Final = 30.0


class Constraints:
    """What a server checks of a field besides its type; stands in its annotation."""

    def __init__(self, **constraints: float) -> None:
        """Take them under the names that pydantic's core schema has for them, such as `max_length`."""
        self._constraints = constraints

    # pydantic calls this by its name; its own classes, or those of annotated-types, would take every client of the API
    # 10 ms or more to load
    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Mapping[str, Any]:
        return {**handler(source), **self._constraints}


class ApiOrder(Frozen):
    """A request's body. A server refuses members that it does not know."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  # pydantic reads this attribute

    def document(self) -> dict[str, Any]:
        """The body as a JSON object, without members that have their defaults.

        An agent takes the same defaults, and refuses members that it does not know: so a new member reaches an older
        agent only where it is set.
        """
        members, defaults = vars(self), self._constants
        return {
            name: _plain(value) for name, value in members.items() if name not in defaults or value != defaults[name]
        }


def _plain(value: Any) -> Any:
    if isinstance(value, ApiOrder):
        return value.document()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


Name = Annotated[str, Constraints(max_length=LONGEST_NAME)]
Offset = Annotated[int, Constraints(ge=0, le=MAX_OFFSET)]
WaitSeconds = Annotated[float, Constraints(ge=0, le=LONGEST_WAIT_SECONDS)]
_GivenName = Annotated[str, Constraints(min_length=1, max_length=LONGEST_NAME)]
_Target = Annotated[str, Constraints(min_length=1, max_length=_LONGEST_TARGET)]


class DistributionOrder(ApiOrder):
    """A request to a publisher, before it is checked.

    Attributes:
        action: ADD, DELETE, INVALIDATE or TEST.
        paths: The content paths concerned.
        deep_paths: The paths of an ADD that stand for their whole subtree.
        request_id: Idempotency key: reusing it never publishes twice.
        user_id: The caller.
        trace_parent: W3C trace context of the caller; over HTTP also the header `traceparent`.
    """

    action: str
    paths: tuple[str, ...] = ()
    deep_paths: tuple[str, ...] = ()
    request_id: str | None = None
    user_id: str | None = None
    trace_parent: str | None = None

    @classmethod
    def of(cls, request: DistributionRequest) -> Self:
        """The order for a request."""
        return cls(
            str(request.action),
            request.paths,
            tuple(sorted(request.deep_paths)),
            request.request_id,
            request.user_id,
            request.trace_parent,
        )


class ChangeOrder(ApiOrder):
    """A request to publish what changed, before it is checked.

    Attributes:
        paths: The content paths to compare, each with its subtree.
        user_id: The caller.
    """

    paths: tuple[str, ...] = ("/",)
    user_id: str | None = None


class ClearOrder(ApiOrder):
    """What a clear asks for.

    Attributes:
        max_items: How many packages to drop from the head on; null drops all that the queue holds now.
        wait_seconds: How long to wait for the subscriber's answer.
    """

    max_items: Annotated[int, Constraints(ge=1, le=MAX_OFFSET)] | None = None
    wait_seconds: WaitSeconds = 0.0


class RedriveOrder(ApiOrder):
    """What a re-drive asks for.

    Attributes:
        subscriber: Subscriber that gave the packages up.
        offsets: The packages' offsets.
        wait_seconds: How long to wait for the subscriber's answers.
    """

    subscriber: Name
    offsets: Annotated[tuple[Offset, ...], Constraints(min_length=1, max_length=MAX_PAGE)]
    wait_seconds: WaitSeconds = 0.0


class SubscriberSuspendOrder(ApiOrder):
    """What a suspension asks for.

    Attributes:
        seconds: Imports resume after so long; null: when they are resumed by a request.
        wait_seconds: How long to wait for the subscriber's answer.
    """

    seconds: Annotated[float, Constraints(ge=MIN_SUSPENDED_SECONDS, le=MAX_SUSPENDED_SECONDS)] | None = None
    wait_seconds: WaitSeconds = 0.0


class ResumeOrder(ApiOrder):
    """What a resume asks for.

    Attributes:
        wait_seconds: How long to wait for the subscriber's answer.
    """

    wait_seconds: WaitSeconds = 0.0


class VerifyOrder(ApiOrder):
    """A request to check the journal.

    Attributes:
        read_blobs: Read every byte of every blob as well.
    """

    read_blobs: bool = False


class TruncateOrder(ApiOrder):
    """A request to remove the oldest messages of a topic.

    Attributes:
        before: The first offset to keep.
        dry_run: Remove nothing; name the subscribers that would lose packages.
    """

    before: Offset
    dry_run: bool = True


class EnsureOrder(ApiOrder):
    """A request to create or correct the topics.

    Attributes:
        dry_run: Change nothing; list the differences.
    """

    dry_run: bool = True


class BenchOrder(ApiOrder):
    """A request to measure the journal.

    Attributes:
        message_bytes: Size of a message.
        rounds: Number of messages per latency figure.
        seconds: Duration per batch size.
    """

    message_bytes: Annotated[int, Constraints(ge=1, le=_MAX_BENCH_BYTES)] = 1000
    rounds: Annotated[int, Constraints(ge=10, le=_MAX_BENCH_ROUNDS)] = 200
    seconds: Annotated[float, Constraints(ge=0.05, le=_MAX_BENCH_SECONDS)] = 1.0


class SweepOrder(ApiOrder):
    """A request to sweep the blob store.

    Attributes:
        dry_run: Count blobs; remove nothing.
        forget_journal: Id of a journal to treat as deleted; its blobs may be removed.
    """

    dry_run: bool = True
    forget_journal: _GivenName | None = None


class SnapshotOrder(ApiOrder):
    """A request to store a snapshot.

    Attributes:
        target: The target of a subscriber of this agent, as its status shows it.
        name: The name of the snapshot.
        force: Replace a snapshot of that name that is as new, or of another journal.
    """

    target: _Target
    name: _GivenName
    force: bool = False


class RestoreOrder(ApiOrder):
    """A request to restore a snapshot.

    Attributes:
        target: The target of a subscriber of this agent, as `GET /restores` lists it.
        replace: Replace the content of the target; without it, a target with content is refused.
    """

    target: _Target
    replace: Annotated[bool, Constraints(strict=True)] = False

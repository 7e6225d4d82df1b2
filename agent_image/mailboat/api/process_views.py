"""Views of an agent's own process: its memory, and its lag of the last hour."""

from __future__ import annotations

from dataclasses import dataclass

from mailboat.api.records import Moment


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Lag and throughput at a moment.

    Attributes:
        at: When the sample was taken.
        lag: Packages between the position and the end of the log; None if unknown.
        rate_per_second: Messages per second since the sample before; None of the first one, or if unknown.
    """

    at: Moment
    lag: int | None = None
    rate_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Lag and throughput over the last hour, since the agent started.

    Attributes:
        samples: One about every 10 seconds, oldest first.
    """

    samples: tuple[HistorySample, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryAccountView:
    """A structure in the memory of an agent's process.

    Attributes:
        name: `queues`, `error-queues`, `command-answers`, `event-stream`, `history` (of lag) or `jobs`.
        used_bytes: What it holds.
        limit_bytes: Beyond it the oldest entries are dropped; None: it grows with the number of jobs.
    """

    name: str
    used_bytes: int
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The memory of an agent's process.

    Attributes:
        resident_bytes: Resident memory of the process; None if unknown.
        limit_bytes: Limit of its control group, as of a container; None: none, or unknown.
        accounts: Its bounded structures. The process needs more than their sum.
    """

    resident_bytes: int | None = None
    limit_bytes: int | None = None
    accounts: tuple[MemoryAccountView, ...] = ()

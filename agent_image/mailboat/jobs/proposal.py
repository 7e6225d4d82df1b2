"""Which jobs a worker should claim: a preference that keeps the claims of several workers from colliding.

It is never an assignment. Each ready call is preferred by one live worker with a free slot, chosen by rendezvous
hashing, so that the death of a worker moves only the calls that it preferred. A call that its preferred worker does not
claim within a moment may be claimed by any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mailboat.jobs.fold import JobFold, WorkerState
from mailboat.model.jobs import JobId, any_matches

MAX_EXAMINED: Final = 1_024
"""Ready calls of one queue that are examined for one proposal."""


class Proposal(NamedTuple):
    """Groups to claim at once, and those that another worker should claim first."""

    preferred: Sequence[Sequence[JobId]]
    others: Sequence[Sequence[JobId]]


def plan_claims(fold: JobFold, worker: str, free_slots: int) -> Proposal:
    """Choose up to `free_slots` calls for a worker that the fold knows; queues take turns."""
    state = fold.workers.get(worker)
    if state is None or free_slots <= 0:
        return Proposal((), ())
    preferred: list[Sequence[JobId]] = []
    others: list[Sequence[JobId]] = []
    turns = [_calls(fold, name, worker, state) for name in sorted(fold.queues)]
    while turns and len(preferred) < free_slots:
        left = []
        for calls in turns:
            call = next(calls, None)
            if call is None:
                continue
            left.append(calls)
            group, is_preferred = call
            if not is_preferred:
                others.append(group)
            elif len(preferred) < free_slots:
                preferred.append(group)
        turns = left
    return Proposal(preferred, others[: free_slots - len(preferred)])


def _calls(fold: JobFold, queue_name: str, worker: str, state: WorkerState) -> Iterator[tuple[Sequence[JobId], bool]]:
    """The calls of one queue that may start and that this worker takes, and whether it is the preferred worker."""
    queue = fold.queues[queue_name]
    room = queue.room(fold.now_ms)
    free = [name for name, other in fold.workers.items() if other.running < other.slots]
    for group in islice(queue.ready(fold.now_ms), min(MAX_EXAMINED, room)):
        topic = fold.topic(group[0])
        if any_matches(state.topics, topic):
            able = [name for name in free if any_matches(fold.workers[name].topics, topic)]
            yield group, not able or _preferred(group[0], able) == worker


def _preferred(job: JobId, workers: Sequence[str]) -> str:
    return max(workers, key=lambda name: hashlib.blake2b(f"{job} {name}".encode(), digest_size=8).digest())

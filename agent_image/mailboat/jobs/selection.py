"""Which jobs a worker should claim, and why the others wait. Pure readings of the fold.

The choice is a preference that keeps the claims of several workers from colliding, never an assignment. Each ready
call is preferred by one live worker with a free slot, chosen by rendezvous hashing, so that the death of a worker moves
only the calls that it preferred. A call that its preferred worker leaves for a moment may be claimed by any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from mailboat.clock import moment_of
from mailboat.jobs.fold import JobFold
from mailboat.jobs.job_queue import Queue
from mailboat.jobs.leases import WorkerState, takers
from mailboat.jobs.table import NO_KEY
from mailboat.model.jobs import UNASSIGNED, JobId, JobState, QueueKind, show_job_id

ENDED: Final = "ended"
"""A job that ended and is not in the history: it succeeded without `keep`, was dropped, or is too old."""


MAX_EXAMINED: Final = 1_024
"""Ready calls of one queue that the worker takes and that are examined for one proposal."""

MAX_POSITION: Final = 1_000
"""Calls that are counted before a job; a list of jobs counts for each of them."""


class Proposal(NamedTuple):
    """Groups to claim at once, and those that another worker should claim first."""

    preferred: Sequence[Sequence[JobId]]
    others: Sequence[Sequence[JobId]]


def plan_claims(fold: JobFold, worker: str, free_slots: int) -> Proposal:
    """Choose up to `free_slots` calls for a worker of the fold; queues take turns."""
    known = fold.workers.get(worker)
    if known is None or free_slots <= 0:
        return Proposal((), ())
    queues = [queue for queue in fold.all_queues() if queue.queued > queue.delayed]
    older = _older(fold, known)
    if older:
        queues = [queue for queue in queues if not takers(older.values(), queue.settings.topics)]
    free = [
        name
        for name, other in fold.workers.items()
        if other.running < other.slots and name != worker and other.rules == known.rules and other.topics
    ]
    if len(queues) == 1 and not free and not older:
        # No other worker is to be asked: without it, ranks and turns are a tenth of what a claim costs.
        return Proposal(_only_calls(fold, queues[0], worker, free_slots), ())
    preferred: list[Sequence[JobId]] = []
    others: list[tuple[int, Sequence[JobId]]] = []
    turns = [_calls(fold, queue, worker, free, older, free_slots) for queue in queues]
    for rank, group in turns[0] if len(turns) == 1 else _in_turns(turns):
        if rank:
            others.append((rank, group))
            continue
        preferred.append(group)
        if len(preferred) == free_slots:
            break
    # By rank, so that two workers that take what a third one left take different calls.
    others.sort(key=itemgetter(0))
    return Proposal(preferred, [group for _, group in others[: free_slots - len(preferred)]])


def older_workers(fold: JobFold, queue: Queue) -> Sequence[str]:
    """Live workers of an older version to which newer ones leave jobs of a queue."""
    if len({each.rules for each in fold.workers.values()}) < 2:
        return ()  # the usual case, and every list of queues asks
    alike = {(tuple(each.topics), each.rules): each for each in fold.workers.values()}  # pools have many of one kind
    older = {
        kind
        for kind, one in alike.items()
        if any(one.rules < other.rules and _is_left_to(fold, queue, one, other) for other in alike.values())
    }
    return sorted(name for name, each in fold.workers.items() if (tuple(each.topics), each.rules) in older)


def _is_left_to(fold: JobFold, queue: Queue, older: WorkerState, newer: WorkerState) -> bool:
    patterns, untaken = queue.settings.topics, newer.untaken(fold.table.topics)
    # Jobs that were added under other patterns stay in the queue, and the workers that take them may be others.
    if takers([older], patterns):
        return bool(takers([newer], patterns) or queue.ready(fold.now_ms, 1, untaken))
    return bool(queue.ready(fold.now_ms, 1, untaken | older.untaken(fold.table.topics)))


def waits_for(fold: JobFold, worker: str) -> Sequence[str]:
    """Live workers of an older version that take topics of this one, or to which it leaves a call that could start."""
    known = fold.workers.get(worker)
    older = {} if known is None else _older(fold, known)
    if known is None or not known.topics or not older:
        return ()
    untaken = known.untaken(fold.table.topics)
    queues = [queue for queue in fold.all_queues() if queue.ready(fold.now_ms, 1, untaken)]
    shared = [known.topics, *(queue.settings.topics for queue in queues)]
    return sorted(name for name, other in older.items() if any(takers([other], topics) for topics in shared))


def checkpoint_writer(fold: JobFold) -> str:
    """The live worker that writes checkpoints: all of them see at the same time that one is due."""
    # Of the newest version: those that start later begin with the state that it wrote, and must agree with it.
    newest = max((worker.rules for worker in fold.workers.values()), default=0)
    return min((name for name, worker in fold.workers.items() if worker.rules == newest), default="")


def _older(fold: JobFold, known: WorkerState) -> dict[str, WorkerState]:
    """Live workers of an older version, which may decide in another way what this one may claim."""
    if known.rules == fold.oldest_rules:
        return {}
    return {name: worker for name, worker in fold.workers.items() if worker.rules < known.rules}


def _in_turns(turns: list[Iterator[tuple[int, Sequence[JobId]]]]) -> Iterator[tuple[int, Sequence[JobId]]]:
    while turns:
        left = []
        for calls in turns:
            call = next(calls, None)
            if call is not None:
                left.append(calls)
                yield call
        turns = left


def _only_calls(fold: JobFold, queue: Queue, worker: str, free_slots: int) -> list[Sequence[JobId]]:
    """The first calls of one queue that may start and that this worker takes, the only one with free slots."""
    most = min(queue.room(fold.now_ms), free_slots)
    return queue.ready(fold.now_ms, most, fold.workers[worker].untaken(fold.table.topics)) if most else []


def _calls(
    fold: JobFold, queue: Queue, worker: str, free: Sequence[str], older: Mapping[str, WorkerState], free_slots: int
) -> Iterator[tuple[int, Sequence[JobId]]]:
    """The calls of one queue that may start and that this worker takes, after its rank: the preferred worker's is 0."""
    untaken = fold.workers[worker].untaken(fold.table.topics)
    room = min(MAX_EXAMINED, queue.room(fold.now_ms))
    able_of: dict[str, Sequence[str]] = {}  # a backlog has few topics and many jobs
    # Each worker is preferred for as many calls as the others: mostly, so many hold enough for this one.
    examined, most = 0, min(room, free_slots * (2 * len(free) + 1))
    while examined < most:
        # Without jobs that this worker does not take: they would use up the room, and start nothing.
        groups = queue.ready(fold.now_ms, most, untaken)
        for group in groups[examined:]:
            topic = fold.topic(group[0])
            able = able_of.get(topic)
            if able is None:
                able = [worker, *(name for name in free if fold.workers[name].takes(topic))]
                # Its queue may have had other patterns when the job was added.
                if any(other.takes(topic) for other in older.values()):
                    able = []
                able_of[topic] = able
            if able:
                yield _rank(group[0], worker, able), group
        if len(groups) < most:
            return
        examined, most = most, room


def _rank(job: JobId, worker: str, able: Sequence[str]) -> int:
    """How many of the workers have the job before this one."""
    if len(able) == 1:
        return 0
    ours = _weight(job, worker)
    return sum(_weight(job, name) > ours for name in able)


def _weight(job: JobId, worker: str) -> bytes:
    return hashlib.blake2b(f"{job} {worker}".encode(), digest_size=8).digest()


def shown_state(fold: JobFold, job: JobId, now_ms: int) -> str:
    """The state that users see at a moment: a due job that no live worker takes is `unassigned`."""
    state = fold.table.state(job)
    if state is None:
        return ENDED
    # A job that is due later may find a worker by then: pools are scaled to zero meanwhile.
    if fold.table.is_ready(job, now_ms) and not fold.is_served(fold.topic(job)):
        return UNASSIGNED
    return state.label


def position(fold: JobFold, job: JobId) -> int | None:
    """Number of calls that start before this job, up to `MAX_POSITION`; None for a job that is not due.

    Of a job that waits for others of its key, these are counted: a fair queue may start those of other keys, too.
    """
    if not fold.table.is_ready(job, fold.now_ms):
        return None
    before = fold.queue(job).jobs_before(job, MAX_POSITION)
    if before is not None:
        return before
    unserved = _unserved(fold) if fold.is_served(fold.topic(job)) else frozenset()
    for place, group in enumerate(fold.queue(job).ready(fold.now_ms, MAX_POSITION + 1, unserved)):
        if place == MAX_POSITION:
            return place
        if job in group:
            return place
    return None


def _unserved(fold: JobFold) -> frozenset[int]:
    """The numbers of the topics that no live worker takes: their jobs start before no other one."""
    untaken = [worker.untaken(fold.table.topics) for worker in fold.workers.values() if worker.slots]
    return untaken[0].intersection(*untaken[1:]) if untaken else frozenset()


def expected_start_ms(fold: JobFold, job: JobId, now_ms: int) -> int | None:
    """Expected start of a queued job, at its queue's recent pace; None if that is unknown."""
    queue, place = fold.queue(job), position(fold, job)
    pace_ms = queue.pace_ms(now_ms)
    if place is None or pace_ms is None or queue.is_suspended(now_ms) or not fold.is_served(fold.topic(job)):
        return None
    return now_ms + int((place + 1) * pace_ms)


def why_pending(fold: JobFold, job: JobId, now_ms: int) -> str:
    """What a queued job waits for at a moment: the first reason; empty for other jobs."""
    return next(_reasons(fold, job, now_ms), "") if fold.table.state(job) is JobState.QUEUED else ""


def _reasons(fold: JobFold, job: JobId, now_ms: int) -> Iterator[str]:
    queue, topic = fold.queue(job), fold.topic(job)
    name = queue.settings.name
    if queue.is_suspended(now_ms):
        yield f"queue {name} is suspended"
    if fold.table.is_ready(job, now_ms) and not fold.is_served(topic):
        yield f"no live worker takes the topic {topic}"
    serving = [worker.rules for worker in takers(fold.workers.values(), queue.settings.topics)]
    # Not of those that serve the queue: it may have had other patterns when the job was added.
    able = [worker.rules for worker in fold.workers.values() if worker.slots and worker.takes(topic)]
    if able and serving and min(able) > min(serving):
        yield f"its workers claim nothing from queue {name} while one of an older version serves it"
    now_ms = fold.now_ms  # on an idle log a job starts when a record says that it is due
    if fold.table.due_ms(job) > now_ms:
        tries = fold.table.tries(job)
        moment = moment_of(fold.table.due_ms(job)).isoformat(timespec="seconds")
        attempts = "1 failed attempt" if tries == 1 else f"{tries} failed attempts"
        yield f"due at {moment}" if not tries else f"retry at {moment} after {attempts}"
    before = queue.before(job)
    if before is not None:
        unassigned = fold.table.is_ready(before, now_ms) and not fold.is_served(fold.topic(before))
        why = f", whose topic {fold.topic(before)} no live worker takes" if unassigned else ""
        has_key = queue.settings.kind is not QueueKind.ORDERED and fold.table.key(job) != NO_KEY
        of_key = " of the same key" if has_key else ""
        yield f"waits for job {show_job_id(before)}{of_key}{why}"
    if not queue.room(now_ms):
        if (limit := queue.limit) is not None and limit <= queue.running:
            yield f"queue {name} runs {queue.running} of {limit} calls"
        yield f"queue {name} started {queue.settings.rate} calls within {queue.settings.rate_period_ms / 1000:g} s"
    place = position(fold, job)
    if place is None:
        yield f"waits up to {queue.settings.merge_within_ms / 1000:g} s for jobs to merge with"
    more = " or more" if place == MAX_POSITION else ""
    yield "starts next" if place == 0 else f"behind {place}{more} ready calls of queue {name}"

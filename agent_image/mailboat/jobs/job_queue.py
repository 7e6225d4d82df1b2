"""One queue of jobs: which of them may start next, and whether another call may start at all."""

from __future__ import annotations

from array import array
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import compress
from typing import Final, cast

from mailboat.jobs.chains import Chains
from mailboat.jobs.table import NO_KEY, JobTable
from mailboat.model.job_checkpoint import QueueCheckpoint
from mailboat.model.jobs import JobId, JobState, QueueKind, QueueSettings

_NO_LIMIT: Final = 1 << 31
_ALL_TAKEN: Final[frozenset[int]] = frozenset()
_CHUNK: Final = 256
_PACE_CALLS: Final = 64
"""Calls that ended last: how fast the queue is, for people. Not in checkpoints, as nothing is decided by it."""

_MOST_COUNTED: Final = 2_000
"""Keys with a due job that are counted: reading them takes a millisecond."""

_MOST_PASSED: Final = 16
"""Sets of topics that workers do not take, for which the first entry to examine is kept."""

_RIPENING_BYTES: Final = 138

_KEPT_ENTRIES: Final = 1_024
"""Fewer entries before the start than this are not worth moving the rest for."""


class _ReadyJobs:
    """Jobs of one priority that may start, oldest first. Entries of jobs that started or ended stay until read."""

    def __init__(self, run: array[int], *, has_turns: bool) -> None:
        """Begin with jobs in their order: that of their ids, unless they have turns."""
        self._run = run
        self._start = 0
        self._late: list[int] = []  # sorted; jobs that became ready again, behind younger ones
        self._has_turns = has_turns
        self._topics: list[str] = []
        """Those that numbers in `_passed` are of."""
        self._passed: dict[frozenset[int], int] = {}
        """By `untaken` topics: first entries that hold no other ready job. They are not examined again."""

    def push(self, job: JobId) -> None:
        if not self._run or job > self._run[-1]:
            self._run.append(job)
        else:
            insort(self._late, job)

    def push_last(self, job: JobId) -> None:
        """Add a job behind all others, whatever its id. A run of fair turns is never pushed to in another way."""
        self._run.append(job)

    def oldest(self, table: JobTable, now_ms: int, most: int, untaken: frozenset[int] = _ALL_TAKEN) -> list[JobId]:
        """Up to so many ready jobs in order, each once, without those of topics with these numbers."""
        if not self._run and not self._late:
            return []
        self._drop_first(table, now_ms)
        if self._late or self._has_turns:
            return self._oldest_once(table, now_ms, most, untaken)
        found: list[JobId] = []
        place, asked = self._first(table, untaken), min(_CHUNK, most)
        while len(found) < most and place < len(self._run):
            found += table.ready_of(self._run[place : place + asked].tolist(), now_ms, untaken)
            place += asked
            if untaken and not found:
                self._passed[untaken] = min(place, len(self._run))
            asked = _CHUNK if untaken else min(_CHUNK, most - len(found))
        return found[:most] if len(found) > most else found

    def _oldest_once(self, table: JobTable, now_ms: int, most: int, untaken: frozenset[int]) -> list[JobId]:
        """The same where a job may have entries of several attempts."""
        found: dict[int, JobId] = {}
        for job in merge(self._rest(self._first(table, untaken)), tuple(self._late)):
            if job not in found and table.is_ready(job, now_ms) and table.topic(JobId(job)) not in untaken:
                found[job] = JobId(job)
                if len(found) >= most:
                    break
        if untaken and not found:
            self._passed[untaken] = len(self._run)
        return list(found.values())

    def _first(self, table: JobTable, untaken: frozenset[int]) -> int:
        """The first entry to examine for a worker that does not take these topics."""
        if not untaken:
            return self._start
        if table.topics is not self._topics:  # their numbers have changed
            self._topics, self._passed = table.topics, {}
        # A job that is ready again has another entry. What holds for fewer topics holds for these, too.
        passed = self._passed.get(untaken)
        if passed is None:
            passed = max([0, *(most for topics, most in self._passed.items() if topics <= untaken)])
            if len(self._passed) == _MOST_PASSED:
                del self._passed[next(iter(self._passed))]
            self._passed[untaken] = passed
        return max(self._start, passed)

    def _drop_first(self, table: JobTable, now_ms: int) -> None:
        """Drop entries of jobs that are not ready, up to the first one that is."""
        run, late = self._run, self._late
        while self._start < len(run) and not table.is_ready(run[self._start], now_ms):
            self._start += 1
        while late and not table.is_ready(late[0], now_ms):
            late.pop(0)
        if self._start > max(_KEPT_ENTRIES, len(run) // 2):
            del run[: self._start]
            self._passed = {topics: max(0, most - self._start) for topics, most in self._passed.items()}
            self._start = 0

    def _rest(self, first: int) -> Iterator[int]:
        # Not a comprehension: mypyc would make a list of it, and a backlog may be long.
        for place in range(first, len(self._run)):
            yield self._run[place]


class Queue:
    """The state of one queue.

    In ordered and keyed queues only the first job of each key is ready; a job that is retried keeps its place. In fair
    queues only the first job of each key is ready, too, but the next one follows when it starts, behind all other keys.
    Where jobs are merged, the first job of a key stands for all of them.
    """

    def __init__(self, settings: QueueSettings, table: JobTable) -> None:
        self.settings = settings
        self.name = settings.name
        self.running = 0
        """Calls that run; a merged group is one."""
        self.queued = 0
        """Jobs that wait, also those that are due later."""
        self.delayed = 0
        """Queued jobs that are due later."""
        self.given_up = 0
        """Jobs in the history that used up their retries."""
        self._table = table
        self.suspended_until_ms: int | None = 0
        """Nothing starts before this moment; None: until `resume`."""
        # By number: a dictionary calls the hash of the enumeration, which is interpreted.
        # By priority, highest first. It holds within a queue only: queues take turns (`selection.plan_claims`).
        self._ready: list[_ReadyJobs] = []
        self._chains = Chains(table)
        self._ripening: list[tuple[int, JobId]] = []
        """A heap of when the first jobs of keys wait no longer for others; entries of jobs that started may stay."""
        self._starts: deque[int] = deque()
        self._ends: deque[int] = deque(maxlen=_PACE_CALLS)
        self._slots = 0
        self._note_settings()
        self._arrange((), (), 0)

    def _note_settings(self) -> None:
        settings = self.settings
        # The fold asks for these at each claim: fields of a named tuple are not compiled.
        self._max_parallel = settings.max_parallel
        self._percent = settings.parallel_percent
        self._rate = settings.rate
        self._is_limited = settings.max_parallel >= 0 or settings.parallel_percent > 0 or settings.rate > 0
        # Without an order, no job waits for another one, and keys are not looked up.
        self._has_order = settings.kind is not QueueKind.PARALLEL or settings.merge > 1
        self._is_merging = settings.merge > 1
        self._is_fair = settings.kind is QueueKind.FAIR
        self._is_line = settings.kind is QueueKind.ORDERED
        self._is_free_without_key = settings.kind is QueueKind.KEYED
        # A started or retried job still holds up those behind it.
        self._active_stay = settings.kind in (QueueKind.ORDERED, QueueKind.KEYED)

    # Limits

    def suspend(self, until_ms: int | None) -> None:
        """Start nothing before this moment; None: until `resume`."""
        self.suspended_until_ms = until_ms

    def resume(self) -> None:
        """End a suspension."""
        self.suspended_until_ms = 0

    def is_suspended(self, now_ms: int) -> bool:
        """Whether a suspension holds."""
        return self.suspended_until_ms is None or now_ms < self.suspended_until_ms

    def share(self, slots: int) -> None:
        """Take the number of slots that `parallel_percent` is a share of."""
        self._slots = slots

    @property
    def limit(self) -> int | None:
        """Calls that may run at the same time; None is without limit."""
        limit = None if self._max_parallel < 0 else self._max_parallel
        if self._percent:
            # At least one: a share of few slots must not stop the queue.
            shared = max(1, self._slots * self._percent // 100)
            limit = shared if limit is None else min(limit, shared)
        return limit

    def room(self, now_ms: int) -> int:
        """How many calls may start now: 0 while suspended, at the limit of calls, or at the rate."""
        if self.is_suspended(now_ms):
            return 0
        if not self._is_limited:
            return _NO_LIMIT
        limit = self.limit
        room = _NO_LIMIT if limit is None else limit - self.running
        if self._rate:
            room = min(room, self._allowed_starts(now_ms))
        return max(0, room)

    def _allowed_starts(self, now_ms: int) -> int:
        """How many calls the rate lets start now; below zero after the rate became lower."""
        # Not removed here: a reader that looks more often would decide in another way once the period is longer.
        over = bisect_right(self._starts, now_ms - self.settings.rate_period_ms)
        return self._rate - len(self._starts) + over

    def due_calls(self, log_ms: int, now_ms: int, came_due: Collection[JobId]) -> int:
        """How many calls order and rate would let start at a moment, with enough workers: 0 while suspended.

        A limit of calls does not count: what runs under it ends, and the next call needs a worker then.

        Args:
            log_ms: The time of the log.
            now_ms: The moment, not before it.
            came_due: Queued jobs that came due between them.
        """
        if self.is_suspended(now_ms):
            return 0
        if self.settings.kind in (QueueKind.ORDERED, QueueKind.KEYED):
            heads = [group[0] for group in self.ready(log_ms, _MOST_COUNTED)]
            heads += [job for job in came_due if self.before(job) is None]
            chained = [self._is_chained(job) for job in heads]
            keys = {0 if self._is_line else self._table.key(job) for job in compress(heads, chained)}
            calls = len(keys) + chained.count(False)
        else:
            # Groups of many keys are not full; behind the first one of a key there may be more.
            groups = self.ready(now_ms, _MOST_COUNTED) if self.settings.merge > 1 else ()
            rest = len(came_due) + self.queued - self.delayed - sum(map(len, groups))
            calls = len(groups) - (rest // -self.settings.merge)
        return max(0, min(calls, self._allowed_starts(now_ms))) if self._rate else calls

    def next_start_ms(self, now_ms: int) -> int | None:
        """When time alone lets a due job start; None where a record must come first, or nothing waits for it."""
        if self.queued == self.delayed:
            return None
        opens_ms = self.suspended_until_ms or 0
        if self._rate and len(self._starts) >= self._rate:
            opens_ms = max(opens_ms, self._starts[-self._rate] + self.settings.rate_period_ms)
        if opens_ms > now_ms:
            return opens_ms  # whether a call is ready by then is decided then: a full one waits for no merge
        while self._ripening and not self._is_ripening(self._ripening[0], now_ms):
            heappop(self._ripening)
        return self._ripening[0][0] if self._ripening else None

    def _is_ripening(self, entry: tuple[int, JobId], now_ms: int) -> bool:
        """Whether the job of the entry still waits until then for others to be merged with."""
        return entry[0] > now_ms and self._table.is_queued(entry[1]) and self.ripens_ms(entry[1]) == entry[0]

    def change(self, settings: QueueSettings, jobs: Iterable[JobId], now_ms: int) -> None:
        """Apply new settings. Where they order jobs as before, each keeps its place.

        Args:
            settings: Of the queue with this name.
            jobs: All jobs of the queue, by id; read only if the order is another one.
            now_ms: The time of the log.
        """
        has_same_order = _order(settings) == _order(self.settings)
        placed = set() if has_same_order else set(self.chained())
        self.settings = settings
        self._note_settings()
        if not has_same_order:
            running: list[JobId] = []
            waiting: list[JobId] = []
            for job in jobs:
                if self._table.state(job) is JobState.ACTIVE:
                    running.append(job)
                elif self._table.is_ready(job, now_ms) or self._table.tries(job) > 0 or job in placed:
                    waiting.append(job)
            # Those that run are first: in an order of keys, none starts before they end.
            placed_rows = self._table.rows_of([*running, *waiting])
            self._arrange(placed_rows, [row for row in placed_rows if self._table.is_ready_at(row, now_ms)], now_ms)
        elif settings.merge > 1:  # the first jobs of keys may wait longer or shorter now
            ripening = [(self.ripens_ms(first), first) for first in self._chains.firsts()]
            self._ripening = [entry for entry in ripening if entry[0] > now_ms]
            heapify(self._ripening)

    def _arrange(self, placed: Sequence[int], ready: Sequence[int], now_ms: int) -> None:
        """Order the jobs of the queue from nothing.

        Args:
            placed: Rows of jobs in the order in which keys have them. Those that may have no place are left out.
            ready: The rows of the jobs that are due and queued, in their order.
            now_ms: The time of the log.
        """
        self._chains.begin(by_key=not self._is_line, by_topic=self.settings.merge > 1)
        table, chains = self._table, self._chains
        if self._has_order:
            is_first = chains.fill(self._fitting(placed, now_ms))
            for row in table.unmarked(ready, is_first):
                # A first job that runs or is due later is made ready when it is added again.
                if table.link(row) < 0 and (not self._is_chained_row(row) or chains.append_row(row)):
                    is_first[row] = 1
            ready = table.marked(ready, is_first)
        jobs, within_ms = table.jobs_of(ready), self.settings.merge_within_ms
        due_ms = table.due_ms_of(ready) if self._is_merging else array("q")
        self._ripening = []
        if due_ms and max(due_ms) + within_ms > now_ms:
            due = zip(due_ms, jobs, strict=True)
            self._ripening = [(at + within_ms, JobId(job)) for at, job in due if at + within_ms > now_ms]
            heapify(self._ripening)
        runs = table.by_priority(ready, jobs)
        self._ready = [_ReadyJobs(run, has_turns=self._is_fair) for run in runs]

    def _fitting(self, placed: Sequence[int], now_ms: int) -> Sequence[int]:
        """The rows whose jobs an earlier order placed and that can have a place in this one.

        Others would hold up the key: they have ended, or will be added when they are due.
        """
        rows = self._table.waiting(placed, or_active=self._active_stay)
        if self._is_free_without_key:
            rows = self._table.with_key(rows)
        if self.delayed and not self._active_stay:
            rows = array("i", [row for row in rows if self._table.is_ready_at(row, now_ms)])
        return rows

    def capture(self, *, removed: bool) -> QueueCheckpoint:
        """The state of the queue, without what the jobs themselves say."""
        return QueueCheckpoint(self.settings, removed, self.suspended_until_ms, list(self._starts), self.chained())

    def chained(self) -> Sequence[JobId]:
        """The jobs that are ordered by key and have not ended, keys one after another."""
        # Not a list: a million integers are 40 MB.
        return cast("Sequence[JobId]", self._chains.waiting(active_stay=self._active_stay))

    def restore(self, state: QueueCheckpoint, placed: Sequence[int], ready: Sequence[int], now_ms: int) -> None:
        """Take over a captured state.

        Args:
            state: What was captured.
            placed: The rows of its chains.
            ready: The rows of the jobs that are due and queued, in the order of ids.
            now_ms: The time of the log.
        """
        self.suspended_until_ms = state.suspended_until_ms
        self._starts = deque(state.starts_ms)
        self._arrange(placed, ready, now_ms)

    def release(self) -> None:
        """Let go of the table: the queue was removed, and has no jobs."""
        self._table.remove_holder(self._chains)

    # Counts

    def wait(self, jobs: int) -> None:
        """Count jobs that are queued now."""
        self.queued += jobs

    def leave(self, jobs: int) -> None:
        """Count jobs that are no longer queued, and did not start."""
        self.queued -= jobs

    def delay(self, change: int) -> None:
        """Count queued jobs that are due later, or no longer."""
        self.delayed += change

    def begin_call(self) -> None:
        """Count a call that runs."""
        self.running += 1

    def end_call(self, now_ms: int) -> None:
        """Count a call that ended."""
        self.running -= 1
        self._ends.append(now_ms)

    def count_given_up(self, change: int) -> None:
        """Count jobs that used up their retries and came into the history, or left it."""
        self.given_up += change

    def oldest_due_ms(self, now_ms: int) -> int | None:
        """When the first ready job of the queue became due; None when none is ready."""
        firsts = [ready.oldest(self._table, now_ms, 1) for ready in self._ready]
        return min((self._table.due_ms(job) for jobs in firsts for job in jobs), default=None)

    # Order

    def add(self, job: JobId, now_ms: int) -> None:
        """Add a job that is due: it is ready, or waits behind others of its key."""
        if not self._has_order or not self._is_chained(job):
            self._ready[self._table.priority(job)].push(job)
            return
        # A retried job of an ordered key never left its place.
        if not self._chains.has(job):
            self._chains.append(job)
        if self._chains.first(job) == job:
            self._make_ready(job, now_ms)

    def is_turn(self, group: Sequence[JobId], now_ms: int) -> bool:
        """Whether the order of the queue lets this group of ready jobs start now, as one call."""
        if not self._has_order:
            return len(group) == 1
        if not self._is_chained(group[0]):
            return len(group) == 1
        if self.settings.merge > 1:
            return list(group) == self._merged(group[0], now_ms)[: len(group)]
        return len(group) == 1 and self._chains.first(group[0]) == group[0]

    def start(self, group: Sequence[JobId], now_ms: int) -> None:
        """Count a call that starts; its jobs are no longer queued."""
        self.begin_call()
        self.leave(len(group))
        while self._ripening and self._ripening[0][0] <= now_ms:
            heappop(self._ripening)
        if self._rate:
            while self._starts and self._starts[0] <= now_ms - self.settings.rate_period_ms:
                self._starts.popleft()
            self._starts.append(now_ms)
        if self._has_order and not self._active_stay:
            self._advance(group[0], now_ms)

    def end(self, job: JobId, now_ms: int) -> None:
        """Let the next job of a key start, if this one, which has ended, was before it."""
        if self._has_order and self._is_chained(job) and self._chains.first(job) == job:
            self._advance(job, now_ms)

    def order_bytes(self) -> int:
        """Estimated bytes of the order in memory, beyond 8 for each job."""
        return self._chains.size_bytes() + _RIPENING_BYTES * len(self._ripening)

    def before(self, job: JobId) -> JobId | None:
        """The job that has to end, or to start in a fair queue, before this one of the same key can."""
        if not self._has_order or self.settings.merge > 1 or not self._is_chained(job):
            return None
        first = self._chains.first(job)
        return None if first == job else first

    def jobs_before(self, job: JobId, most: int) -> int | None:
        """How many jobs of the same key are before this one, up to so many; None if it waits for none of them."""
        if self.before(job) is None:
            return None
        places = enumerate(self._chains.of(job))
        return next((place for place, other in places if other == job or place == most), None)

    def pace_ms(self, now_ms: int) -> float | None:
        """Milliseconds between two ends of calls lately; None if no call runs, or too few have ended."""
        if not self.running or len(self._ends) < 2:
            return None
        return (now_ms - self._ends[0]) / (len(self._ends) - 1)

    def ready(self, now_ms: int, most: int, untaken: frozenset[int] = _ALL_TAKEN) -> list[Sequence[JobId]]:
        """Up to so many calls that may start, without those of some topics: by priority, then the oldest first."""
        found: list[Sequence[JobId]] = []
        for ready in self._ready:
            if len(found) >= most:
                break
            if self._has_order:
                found += self._ready_turns(ready, now_ms, most - len(found), untaken)
            else:
                found += [[job] for job in ready.oldest(self._table, now_ms, most - len(found), untaken)]
        return found

    def _ready_turns(self, ready: _ReadyJobs, now_ms: int, most: int, untaken: frozenset[int]) -> list[Sequence[JobId]]:
        asked = most
        while True:
            jobs = ready.oldest(self._table, now_ms, asked, untaken)
            found = [turn for job in jobs if (turn := self._turn(job, now_ms))]
            if len(found) >= most or len(jobs) < asked:
                return found[:most]
            asked *= 2

    def _turn(self, job: JobId, now_ms: int) -> Sequence[JobId]:
        """The call that begins with a ready job; empty where another job is before it."""
        group = self._merged(job, now_ms) if self.settings.merge > 1 else [job]
        # An entry may be left from an earlier attempt of a job that waits behind others of its key now.
        return group if group and group[0] == job and self.is_turn(group, now_ms) else ()

    def ripens_ms(self, job: JobId) -> int:
        """When a job waits no longer for others to be merged with."""
        return self._table.due_ms(job) + (self.settings.merge_within_ms if self.settings.merge > 1 else 0)

    def _merged(self, first: JobId, now_ms: int) -> list[JobId]:
        """The jobs that one call takes; empty while it should wait for more."""
        found = []
        for job in self._chains.of(first):
            if self._table.is_ready(job, now_ms):
                found.append(job)
                if len(found) == self.settings.merge:
                    return found
        return found if found and now_ms >= self.ripens_ms(found[0]) else []

    def _is_chained(self, job: JobId) -> bool:
        """Whether a job of a queue with an order has a key; those without one start at any time."""
        return not self._is_free_without_key or self._table.key(job) != NO_KEY

    def _is_chained_row(self, row: int) -> bool:
        return not self._is_free_without_key or self._table.key_at(row) != NO_KEY

    def _advance(self, job: JobId, now_ms: int) -> None:
        """Make the next job of a key ready."""
        first = self._chains.advance(job, active_stay=self._active_stay)
        if first is not None:
            self._make_ready(first, now_ms)

    def _make_ready(self, job: JobId, now_ms: int) -> None:
        ready = self._ready[self._table.priority(job)]
        if self._is_merging:
            self._note_ripening(job, now_ms)
        if self._is_fair:
            ready.push_last(job)
        else:
            ready.push(job)

    def _note_ripening(self, job: JobId, now_ms: int) -> None:
        while self._ripening and self._ripening[0][0] <= now_ms:
            heappop(self._ripening)  # also where no call starts: the heap must not grow with the backlog
        if (ripens_ms := self.ripens_ms(job)) > now_ms:
            heappush(self._ripening, (ripens_ms, job))


def _order(settings: QueueSettings) -> tuple[QueueKind, bool]:
    """What decides which jobs wait for which others."""
    return settings.kind, settings.merge > 1

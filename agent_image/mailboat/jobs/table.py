"""All jobs that are not over, and those of the history, in columns: about 80 bytes a job."""

from __future__ import annotations

import hashlib
import operator
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, compress, islice
from typing import Final, NamedTuple, cast

from mailboat.model.jobs import JobId, JobState, Priority

NO_KEY: Final = 0
_FREE: Final = 255
_IS_KEPT: Final = bytes([state != _FREE for state in range(256)])
_PACKED_BYTES: Final = 24
_QUEUED: Final = int(JobState.QUEUED)
_ACTIVE: Final = int(JobState.ACTIVE)
_IS_ENDED: Final = bytes([_ACTIVE < state != _FREE for state in range(256)])
_IS_QUEUED: Final = bytes([state == _QUEUED for state in range(256)])
_IS_UNFINISHED: Final = bytes([state in (_QUEUED, _ACTIVE) for state in range(256)])
_IS_ZERO: Final = bytes([value == 0 for value in range(256)])
_IS_PRIORITY: Final = [bytes([value == each for value in range(256)]) for each in Priority]
# By number, as the columns have them: a lookup costs a fifth of a call of the enumeration.
_STATES: Final = tuple(JobState)
_PRIORITIES: Final = tuple(Priority)
_MOST_TRIES: Final = 65_535
"""The column has 16 bits."""

_KEPT_FREE: Final = 1_024
"""Fewer free rows than this are not worth copying the columns for."""

_FEW_NAMES: Final = 1_024
"""Fewer topics or queues than this are kept whether a job has them or not."""


def is_to_be_cleaned(count: int) -> bool:
    """Whether names without jobs should be forgotten before one more is added to so many."""
    # By what the log says, not by time or memory: readers that began with one checkpoint number names alike. Those that
    # began with others may not, and parts of two checkpoints of one offset, if both are in the log, do not fit then.
    return count >= _FEW_NAMES and count & (count - 1) == 0


def hash_key(text: str) -> int:
    """64 bits for a key, the same in every process; `NO_KEY` for the empty one.

    Two keys that share a hash share their order, and nothing else.
    """
    # 63 bits fit the signed column, and the lowest bit keeps every key different from NO_KEY.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1 | 1 if text else NO_KEY


def digest(text: str) -> bytes:
    """16 bytes for a unique name or the id of a request; empty for the empty one."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest() if text else b""


_COLUMNS: Final = (
    ("ids", "q"),
    ("states", "B"),
    ("due_ms", "q"),
    ("keys", "q"),
    ("topics", "I"),
    ("queues", "H"),
    ("tries", "H"),
    ("retries", "h"),
    ("retry_delays_ms", "I"),
    ("leases_ms", "I"),
    ("priorities", "B"),
    ("keeps", "B"),
)


_LISTS: Final = frozenset({"topics", "queues", "tries"})
"""Columns of numbers that are mostly small: a list refers to the one object that Python has of each."""


def _renumbered(column: list[int], kept: Sequence[int]) -> list[int]:
    places = {number: place for place, number in enumerate(kept)}
    return [places[number] for number in column]


def _column(name: str, code: str, values: Iterable[int]) -> bytearray | list[int] | array[int]:
    if code == "B":
        return bytearray(values)
    return list(values) if name in _LISTS else array(code, values)


class NewRow(NamedTuple):
    """A queued job as the table keeps it: topic and queue by number, the key by its hash."""

    job: JobId
    topic: int
    queue: int
    due_ms: int
    key: int
    priority: int
    retries: int
    retry_delay_ms: int
    lease_ms: int
    keep: bool


class RowHolder:
    """Keeps numbers of rows; the table says when they change."""

    def holds_rows(self) -> bool:
        """Whether there are any."""
        raise NotImplementedError

    def leave_forgotten(self) -> None:
        """Let go of the rows of jobs that were forgotten: they are removed now."""
        raise NotImplementedError

    def move_rows(self, moved: Sequence[int]) -> None:
        """Take the new number of each row, in the order of the old ones."""
        raise NotImplementedError

    def move_topics(self) -> None:
        """Note that topics have other numbers; no row is of a forgotten job."""
        raise NotImplementedError


class JobTable:
    """The rows of jobs, by id. Ids are added in ascending order; a row of an unknown job is -1."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        """By number. Another list once numbers have changed."""
        self._topic_numbers: dict[str, int] = {}
        self._ids = array("q")
        # An item of an array costs ten times an item of these: those that each claim and result needs are no arrays.
        self._states = bytearray()
        self._due_ms = array("q")
        self._keys = array("q")
        self._topics: list[int] = []
        self._queues: list[int] = []
        self._tries: list[int] = []
        self._retries = array("h")
        self._retry_delays_ms = array("I")
        self._leases_ms = array("I")
        self._priorities = bytearray()
        self._keeps = bytearray()
        self._links = array("i")  # not in checkpoints, as numbers of rows are those of one process
        self._holders: list[RowHolder] = []
        self._has_forgotten_links = False
        self._free = 0
        self._last_job = -1
        self._last_row = -1

    def __len__(self) -> int:
        return len(self._ids) - self._free

    def add(self, row: NewRow) -> None:
        """Add a queued job; its id is above all others."""
        self._ids.append(row.job)
        self._states.append(JobState.QUEUED)
        self._due_ms.append(row.due_ms)
        self._keys.append(row.key)
        self._topics.append(row.topic)
        self._queues.append(row.queue)
        self._tries.append(0)
        self._retries.append(row.retries)
        self._retry_delays_ms.append(row.retry_delay_ms)
        self._leases_ms.append(row.lease_ms)
        self._priorities.append(row.priority)
        self._keeps.append(row.keep)
        self._links.append(-1)

    def row(self, job: int) -> int:
        """Where a job is until rows are removed; -1 for a job that is unknown or was forgotten."""
        # One record asks for the same job several times in a row, and then mostly for the job of the next row.
        if job == self._last_job:
            return self._last_row
        row = self._last_row + 1
        if row >= len(self._ids) or self._ids[row] != job:
            row = bisect_left(self._ids, job)
            if row == len(self._ids) or self._ids[row] != job:
                return -1
        self._last_row = row
        if self._states[row] == _FREE:
            self._last_job = -1
            return -1
        self._last_job = job
        return row

    def state(self, job: int) -> JobState | None:
        """The state of a job; None when it is unknown."""
        row = self.row(job)
        return None if row < 0 else _STATES[self._states[row]]

    def is_ready(self, job: int, now_ms: int) -> bool:
        """Whether a job is queued and due."""
        row = self.row(job)
        return row >= 0 and self._states[row] == _QUEUED and self._due_ms[row] <= now_ms

    def are_ready(self, jobs: Sequence[JobId], now_ms: int) -> bool:
        """Whether all of these jobs are queued and due, each named once."""
        if len(jobs) > 1 and len(set(jobs)) < len(jobs):
            return False
        for job in jobs:  # noqa: SIM110  # without the generator of `all`, for each claim
            if not self.is_ready(job, now_ms):
                return False
        return True

    def ready_of(self, jobs: list[int], now_ms: int, untaken: AbstractSet[int]) -> list[JobId]:
        """The jobs of these that are queued and due, and of no topic of these numbers, in their order."""
        found: list[JobId] = []
        for job in jobs:
            row = self.row(job)
            if row >= 0 and self._states[row] == _QUEUED and self._due_ms[row] <= now_ms:
                if untaken and self._topics[row] in untaken:
                    continue
                found.append(JobId(job))
        return found

    def is_queued(self, job: int) -> bool:
        """Whether a job is queued, due or not."""
        row = self.row(job)
        return row >= 0 and self._states[row] == _QUEUED

    def start(self, job: JobId) -> int:
        """Begin an attempt of a job that is there; when it was due."""
        row = self.row(job)
        self._states[row] = _ACTIVE
        if self._tries[row] < _MOST_TRIES:
            self._tries[row] += 1
        return self._due_ms[row]

    def set_state(self, job: JobId, state: JobState) -> None:
        """Change the state of a job that is there."""
        self._states[self.row(job)] = state

    def forget(self, job: JobId) -> None:
        """Remove a job that is there."""
        row = self.row(job)
        self._states[row] = _FREE
        if self._links[row] >= 0:
            self._has_forgotten_links = True
        self._last_job = -1
        self._free += 1
        if self._free > max(_KEPT_FREE, len(self._ids) // 2):
            self._compact()

    def due_ms(self, job: JobId) -> int:
        """When a job may start."""
        return self._due_ms[self.row(job)]

    def set_due_ms(self, job: JobId, due_ms: int) -> None:
        """Let a job wait until this moment."""
        self._due_ms[self.row(job)] = due_ms

    def is_alike(self, job: JobId, other: JobId) -> bool:
        """Whether two jobs are there and have one topic and key."""
        rows = self.row(job), self.row(other)
        return min(rows) >= 0 and len({(self._topics[row], self._keys[row]) for row in rows}) == 1

    def key(self, job: JobId) -> int:
        """The hash of a job's key."""
        return self._keys[self.row(job)]

    def priority(self, job: JobId) -> Priority:
        """Which of the ready jobs start first."""
        return _PRIORITIES[self._priorities[self.row(job)]]

    # Names, which rows have by their number

    def number_of(self, topic: str) -> int:
        """The number of a topic; one that has none gets one."""
        number = self._topic_numbers.get(topic)
        if number is None:
            if is_to_be_cleaned(len(self.topics)):
                self._forget_topics()
            number = self._topic_numbers[topic] = len(self.topics)
            self.topics.append(topic)
        return number

    def _forget_topics(self) -> None:
        """Forget the topics that no job has, if they are half of all or more."""
        self._compact()
        kept = sorted(set(self._topics))
        if 2 * len(kept) > len(self.topics):
            return
        self._topics = _renumbered(self._topics, kept)
        self.topics = [self.topics[number] for number in kept]
        self._topic_numbers = {topic: number for number, topic in enumerate(self.topics)}
        for holder in self._holders:
            holder.move_topics()

    def forget_queues(self, live: AbstractSet[int], count: int) -> Sequence[int]:
        """Forget the queues that have no job and are not live, if they are half of so many or more.

        Returns: the numbers of those that stay. They get the numbers from 0 on, in this order.
        """
        self._compact()
        kept = sorted(live | set(self._queues))
        if 2 * len(kept) > count:
            return range(count)
        self._queues = _renumbered(self._queues, kept)
        return kept

    def topic(self, job: JobId) -> int:
        """The number of a job's topic."""
        return self._topics[self.row(job)]

    def queue(self, job: JobId) -> int:
        """The number of a job's queue."""
        return self._queues[self.row(job)]

    def keep(self, job: JobId) -> bool:
        """Whether a job stays in the history when it succeeded."""
        return bool(self._keeps[self.row(job)])

    def lease_ms(self, job: JobId) -> int:
        """How long a worker has a job without a renewal."""
        return self._leases_ms[self.row(job)]

    def retries(self, job: JobId) -> int:
        """How often a failed attempt is repeated; -1 without limit."""
        return self._retries[self.row(job)]

    def retry_delay_ms(self, job: JobId) -> int:
        """The pause before the first repetition."""
        return self._retry_delays_ms[self.row(job)]

    def tries(self, job: JobId) -> int:
        """Attempts that started, up to 65,535."""
        return self._tries[self.row(job)]

    def take_back_try(self, job: JobId) -> None:
        """Do not count the last attempt."""
        row = self.row(job)
        self._tries[row] = max(self._tries[row] - 1, 0)

    # Rows, which `Chains` links with one another

    def add_holder(self, holder: RowHolder) -> None:
        """Report to this object when rows change their numbers."""
        self._holders.append(holder)

    def remove_holder(self, holder: RowHolder) -> None:
        """Report to this object no longer; it holds no rows."""
        self._holders.remove(holder)

    def row_count(self) -> int:
        """Rows, with those of forgotten jobs that were not removed yet."""
        return len(self._ids)

    def rows_of(self, jobs: Iterable[int]) -> array[int]:
        """The rows of those jobs that are there, in their order."""
        rows = array("i")
        for job in jobs:
            row = self.row(job)
            if row >= 0:
                rows.append(row)
        return rows

    def are_of(self, rows: Iterable[int], queue: int) -> bool:
        """Whether the jobs of all these rows are of the queue with this number."""
        queues = self._queues
        for row in rows:  # noqa: SIM110  # without the generator of `all`, for each of a million jobs
            if queues[row] != queue:
                return False
        return True

    def job_at(self, row: int) -> JobId:
        """The job of a row."""
        return JobId(self._ids[row])

    def key_at(self, row: int) -> int:
        """The hash of the key of a row."""
        return self._keys[row]

    def topic_at(self, row: int) -> int:
        """The number of the topic of a row."""
        return self._topics[row]

    def is_forgotten(self, row: int) -> bool:
        """Whether the job of a row is no longer there."""
        return self._states[row] == _FREE

    def is_waiting(self, row: int, *, or_active: bool) -> bool:
        """Whether the job of a row is queued, or may also be active."""
        state = self._states[row]
        return state == _QUEUED or (or_active and state == _ACTIVE)

    def is_ready_at(self, row: int, now_ms: int) -> bool:
        """Whether the job of a row is queued and due."""
        return self._states[row] == _QUEUED and self._due_ms[row] <= now_ms

    def link(self, row: int) -> int:
        """The row that this one is linked with; -1 without one."""
        return self._links[row]

    def set_link(self, row: int, other: int) -> None:
        """Link a row with another one; -1 ends a link."""
        self._links[row] = other

    # Many rows. By functions of C that run without a step of the interpreter: a start asks for a million

    def waiting(self, rows: Sequence[int], *, or_active: bool) -> array[int]:
        """The rows of these whose jobs are queued, or may also be active."""
        is_waiting = self._states.translate(_IS_UNFINISHED if or_active else _IS_QUEUED)
        return array("i", compress(rows, map(is_waiting.__getitem__, rows)))

    def low_keys(self) -> array[int]:
        """The lowest 32 bits of the hash of each row's key: more than places of an index."""
        return array("I", self._keys.tobytes())[sys.byteorder == "big" :: 2]

    def with_key(self, rows: Sequence[int]) -> array[int]:
        """The rows of these whose jobs have a key."""
        return array("i", compress(rows, map(self._keys.__getitem__, rows)))  # NO_KEY is false

    def marked(self, rows: Sequence[int], marks: bytearray) -> array[int]:
        """The rows of these that have a mark of 1."""
        return array("i", compress(rows, map(marks.__getitem__, rows)))

    def unmarked(self, rows: Sequence[int], marks: bytearray) -> array[int]:
        """The rows of these that have a mark of 0."""
        return array("i", compress(rows, map(marks.translate(_IS_ZERO).__getitem__, rows)))

    def jobs_of(self, rows: Sequence[int]) -> array[int]:
        """The jobs of these rows."""
        return array("q", map(self._ids.__getitem__, rows))

    def due_ms_of(self, rows: Sequence[int]) -> array[int]:
        """When the jobs of these rows may start."""
        return array("q", map(self._due_ms.__getitem__, rows))

    def by_priority(self, rows: Sequence[int], jobs: array[int]) -> list[array[int]]:
        """The jobs of these rows, in their order, for each priority."""
        found = bytes(map(self._priorities.__getitem__, rows))
        if found.count(int(Priority.NORMAL)) == len(found):
            return [jobs if each is Priority.NORMAL else array("q") for each in Priority]
        return [array("q", compress(jobs, found.translate(is_priority))) for is_priority in _IS_PRIORITY]

    # All rows

    def parted(self, now_ms: int, queues: int) -> tuple[list[array[int]], array[int]]:
        """The rows of queued and due jobs by queue, and of all others, in the order of ids."""
        # No lists: of a million rows they would be 40 MB for a moment.
        ready, others = [array("i") for _ in range(queues)], array("i")
        states, due_ms, numbers = self._states, self._due_ms, self._queues
        for row in range(len(states)):
            if states[row] == _QUEUED and due_ms[row] <= now_ms:
                ready[numbers[row]].append(row)
            elif states[row] != _FREE:
                others.append(row)
        return ready, others

    def ended(self) -> Iterator[JobId]:
        """The jobs of the history, in the order of ids."""
        return cast("Iterator[JobId]", compress(self._ids, self._states.translate(_IS_ENDED)))

    def first(self) -> JobId | None:
        """The oldest job."""
        return next(self.all(), None)

    def all(self) -> Iterator[JobId]:
        """All jobs in the order of their ids."""
        # Not a comprehension: mypyc would make a list of it.
        for job, state in zip(self._ids, self._states, strict=True):
            if state != _FREE:
                yield JobId(job)

    def rows(self) -> Iterator[tuple[JobId, int, int, int]]:
        """Id, state, due time and number of the queue of all jobs, in the order of their ids: the quick way."""
        rows = zip(self._ids, self._states, self._due_ms, self._queues, strict=True)
        for job, state, due_ms, queue in rows:
            if state != _FREE:
                yield JobId(job), state, due_ms, queue

    def columns(self) -> Iterator[tuple[str, bytes]]:
        """All rows, column by column, little-endian. To be read before a row changes."""
        self._compact()
        for name, code in _COLUMNS:
            yield name, _little_endian(getattr(self, "_" + name), code)

    def restore(self, columns: Mapping[str, bytes], topics: Sequence[str], queues: int) -> None:
        """Replace all rows by captured ones. Raises: ValueError: they were not made by `columns`."""
        self.topics = list(topics)
        self._topic_numbers = {topic: number for number, topic in enumerate(topics)}
        most_topics = len(topics) - 1
        highest = {"states": JobState.DROPPED, "priorities": Priority.LOW, "topics": most_topics, "queues": queues - 1}
        lengths = set()
        for name, code in _COLUMNS:  # one after another: all of them twice would be most of what a start takes
            column = array(code)
            column.frombytes(columns[name])
            if sys.byteorder == "big":
                column.byteswap()
            lengths.add(len(column))
            if name == "ids" and any(map(operator.ge, column, islice(column, 1, None))):
                raise ValueError("ids that do not ascend")
            # The search for a key ends for hashes of 63 bits only.
            if name in ("ids", "keys") and min(column, default=0) < 0:
                raise ValueError(f"a value of {name} below 0")
            most = highest.get(name)
            if most is not None and max(column, default=0) > max(0, most):
                raise ValueError(f"a value of {name} above {most}")
            setattr(self, "_" + name, _column(name, code, column))
        if len(lengths) != 1:
            raise ValueError("columns of different lengths")
        self._links = array("i", [-1]) * len(self._ids)
        self._free = 0
        self._last_job = self._last_row = -1

    def _compact(self) -> None:
        if not self._free:
            return
        holders = [holder for holder in self._holders if holder.holds_rows()]
        if self._has_forgotten_links:
            for holder in holders:
                holder.leave_forgotten()
            self._has_forgotten_links = False
        kept = self._states.translate(_IS_KEPT)
        self._links = array("i", compress(self._links, kept))
        if holders:
            self._move_rows(kept, holders)
        # Jobs mostly end in their order: without a hole behind them, the rows of the oldest are cut off.
        first = kept.find(1)
        first = len(kept) if first < 0 else first
        for name, code in _COLUMNS:
            column = getattr(self, "_" + name)
            if first == self._free:
                del column[:first]
            else:
                setattr(self, "_" + name, _column(name, code, compress(column, kept)))
        self._free = 0
        self._last_job = self._last_row = -1

    def _move_rows(self, kept: Iterable[int], holders: Sequence[RowHolder]) -> None:
        moved, links = array("i", accumulate(kept, initial=-1)), self._links
        del moved[0]
        for row in range(len(links)):
            if links[row] >= 0:
                links[row] = moved[links[row]]
        for holder in holders:
            holder.move_rows(moved)


def _little_endian(column: bytearray | list[int] | array[int], code: str) -> bytes:
    if isinstance(column, bytearray):
        return bytes(column)
    if isinstance(column, array) and sys.byteorder == "little":
        return column.tobytes()  # without a copy of the array
    copied = array(code, column)
    if sys.byteorder == "big":
        copied.byteswap()
    return copied.tobytes()


def pack_digests(jobs: Mapping[bytes, JobId]) -> bytes:
    """Digests of 16 bytes with the jobs that they stand for, in their order."""
    return b"".join([digest + job.to_bytes(8, "little") for digest, job in jobs.items()])


def unpack_digests(packed: bytes) -> dict[bytes, JobId]:
    """The inverse of `pack_digests`. Raises: ValueError."""
    if len(packed) % _PACKED_BYTES:
        raise ValueError("digests that are cut")
    return {
        packed[at : at + 16]: JobId(int.from_bytes(packed[at + 16 : at + _PACKED_BYTES], "little"))
        for at in range(0, len(packed), _PACKED_BYTES)
    }

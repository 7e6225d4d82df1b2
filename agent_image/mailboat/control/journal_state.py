"""What the topics say: the log of packages, who subscribes, what was given up or dropped, and answers to commands.

One state serves all publishers of a process. Commands on a home bring it up to date when they ask; in an agent four
threads keep it current: the log's end, its past, announcements and statuses. Each has a reader of its own and changes
the state only by what it has read, so none waits for another, and reads of the state wait for none. A journal that
can't be reached ends no thread: each tries again with growing pauses, where it left off.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import cached_property
from typing import Final, Protocol, TypeVar

from mailboat.api.records import JournalView
from mailboat.clock import Clock, Deadline
from mailboat.composition.workspace import Workspace
from mailboat.discovery.roster import Roster, RosterFollower
from mailboat.errors import JournalUnavailableError
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import CommandResult, Message, TopicRole
from mailboat.queues.error_queues import FailedPackages
from mailboat.queues.log_follower import LogFollower, count_past
from mailboat.queues.log_view import LogView
from mailboat.queues.publisher_queues import QueueSources
from mailboat.queues.queue_names import QueueName
from mailboat.queues.queue_pages import PageReader
from mailboat.queues.reports import PackageReports
from mailboat.queues.statuses import StatusFollower
from mailboat.workers import Worker, WorkerOptions

_LOG: Final = logging.getLogger(__name__)
MAX_BYTES: Final = 4 * 1024**2
_ANSWER_BYTES: Final = 1_000  # measured: the objects without their texts


class CommandAnswers:
    """A fold over the status topic. Safe to use from several threads."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        """No answer yet."""
        self.dropped_count = 0
        self._max_bytes = max_bytes
        self.size_bytes = 0
        """What the answers cost, estimated from above; `MAX_BYTES` at most."""
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, QueueName], CommandResult] = OrderedDict()

    def apply(self, status: Message) -> None:
        """Apply an answer; of several to one command by one subscriber the first counts."""
        if not isinstance(status, CommandResult):
            return
        with self._lock:
            key = (status.command_id, QueueName(status.sub_sling_id, status.sub_agent_name))
            # A command that is executed again after a crash is answered again; the first answer stands.
            if key in self._answers:
                return
            self._answers[key] = status
            self.size_bytes += _cost(status)
            # The oldest go first: an answer is asked for soon after its command.
            while self.size_bytes > self._max_bytes:
                self.size_bytes -= _cost(self._answers.popitem(last=False)[1])
                self.dropped_count += 1

    def clear(self) -> None:
        """Forget all: the status topic is another one."""
        with self._lock:
            self._answers.clear()
            self.size_bytes = 0

    def find(self, command_id: str, queue_name: QueueName) -> CommandResult | None:
        """What the subscriber that a command was for answered; what others say of it counts for nothing."""
        with self._lock:
            return self._answers.get((command_id, queue_name))


def _cost(answer: CommandResult) -> int:
    texts = (answer.command_id, answer.sub_sling_id, answer.sub_agent_name, answer.pub_agent_name, answer.message)
    return _ANSWER_BYTES + sum(map(sys.getsizeof, texts))


_T = TypeVar("_T")
_LONGEST_PAUSE_SECONDS: Final = 0.25
"""Some things become true by time alone, such as that a position counts; no bell rings for them."""


class ChangeNotifier:
    """A bell for any number of waiters. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        """No waiters yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: set[threading.Event] = set()

    def notify_all(self) -> None:
        """Wake all waiters."""
        with self._lock:
            # An event for each waiter: one event for all would have to be cleared by one of them.
            for waiter in self._waiters:
                waiter.set()

    def wait_until(self, read: Callable[[], _T], is_enough: Callable[[_T], bool], seconds: float) -> _T:
        """What `read` returns when it is enough, or at the timeout.

        It reads again whenever the bell rings, and now and then.
        """
        deadline, received = Deadline(self._clock, seconds), threading.Event()
        with self._lock:
            # Registered before the first read: a change between read and wait would be missed otherwise.
            self._waiters.add(received)
        try:
            while True:
                found = read()
                if is_enough(found) or deadline.is_over():
                    return found
                self._clock.wait(received, min(deadline.remaining_seconds(), _LONGEST_PAUSE_SECONDS))
                # cleared before the next read: a ring between the read and the wait ends that wait
                received.clear()
        finally:
            with self._lock:
                self._waiters.discard(received)


RETAINED_STATUSES: Final = 100_000
"""How many of the last statuses are read at the start; what was given up before that is known to the targets only."""

_READ_SECONDS: Final = 5.0
"""How long a thread's read without records lasts; after that, retention and the past are checked again."""

_FIRST_RETRY_SECONDS: Final = 0.5
_LONGEST_RETRY_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 5.0


class Follower(Protocol):
    """Feeds the records of one topic into the state."""

    def follow(self, wait_seconds: float) -> int:
        """Read once, waiting at most so long; how many records came."""

    def interrupt(self) -> None:
        """End the current or the next `follow`, from any thread."""

    def close(self) -> None:
        """Release the reader."""


class JournalState:
    """What is known of one journal. Thread-safe, but for the followers: one thread each."""

    def __init__(self, workspace: Workspace, publishers: Collection[AgentName]) -> None:
        """Read nothing yet."""
        self._workspace = workspace
        self._publishers = frozenset(publishers)
        self.notifier = ChangeNotifier(workspace.clock)
        self.roster = Roster(workspace.clock)
        self.failed = FailedPackages()
        self.reports = PackageReports()
        self.answers = CommandAnswers()
        self._mark = (-math.inf, Offset(0))
        self._heard_at_seconds = -math.inf
        self._mark_lock = threading.Lock()
        self._workers: list[Worker] = []

    @cached_property
    def view(self) -> LogView:
        """The log of packages, from where it ends when this is first asked for."""
        topic = self._workspace.package_topic
        bounds = self._workspace.journal.bounds(topic)
        return LogView(topic, self._publishers, bounds, self._workspace.home.config.publisher.queue_cache_bytes)

    @cached_property
    def pages(self) -> PageReader:
        """Reads what the view does not have."""
        return PageReader(self.view, self._workspace.journal)

    @property
    def sources(self) -> QueueSources:
        """What queues are made of."""
        return QueueSources(self.view, self.pages, self.failed)

    @cached_property
    def log_follower(self) -> LogFollower:
        """Brings the view what is appended."""
        return LogFollower(self.view, self._workspace.journal)

    @cached_property
    def roster_follower(self) -> RosterFollower:
        """Brings the roster announcements."""
        return RosterFollower(self.roster, self._workspace.journal, self._workspace.topic(TopicRole.DISCOVERY))

    @cached_property
    def status_follower(self) -> StatusFollower:
        """Follows subscribers' statuses and answers, from the last `RETAINED_STATUSES` on."""
        topic = self._workspace.topic(TopicRole.STATUS)
        bounds = self._workspace.journal.bounds(topic)
        start = Offset(max(bounds.earliest_offset, bounds.next_offset - RETAINED_STATUSES))
        listeners = (self.failed, self.reports, self.answers)
        return StatusFollower(listeners, self._workspace.journal, topic, self._workspace.clock, start)

    @property
    def is_followed(self) -> bool:
        """Whether threads keep the state current."""
        return bool(self._workers)

    def start(self, *, with_log: bool = True) -> None:
        """Follow announcements, statuses and, `with_log`, the log. Idempotent. Raises: the journal's errors."""
        if self.is_followed:
            return
        if with_log:
            # made before several threads read it: `cached_property` has had no lock since Python 3.12, so two threads
            # could make two views of one topic
            _ = self.pages
        workers = [
            self._following("topology", "following announcements", self.roster_follower),
            self._following("statuses", "following statuses", self.status_follower),
        ]
        if with_log:
            workers.append(self._following("log", "following the log", self.log_follower))
            care = WorkerOptions("counting the past of the log", _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS)
            workers.append(Worker("log-past", self._count, self._workspace.clock, care))
        self._workers = workers  # a thread that was late to stop keeps its own, and is not revived
        for worker in workers:
            worker.start()

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline; those that do not end are daemons, and do no harm."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.ask_to_stop()
        late = [worker.name for worker in workers if not worker.join(deadline.remaining_seconds())]
        if late:
            _LOG.warning("threads that did not end in time: %s", ", ".join(late))

    def _following(self, name: str, purpose: str, follower: Follower) -> Worker:
        def turn() -> float:
            if follower.follow(_READ_SECONDS):
                self.notifier.notify_all()
            return 0.0

        care = WorkerOptions(purpose, _FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, interrupt=follower.interrupt)
        return Worker(name, turn, self._workspace.clock, care)

    def _count(self) -> float:
        """Count all of the past, and again when the view was reset; forget what concerns removed packages."""
        if count_past(self.view, self._workspace.journal):
            return 0.0
        earliest = self.view.bounds.earliest_offset
        self.failed.trim(earliest)
        self.reports.trim(earliest)
        return _READ_SECONDS

    def wait_until(self, read: Callable[[], _T], is_enough: Callable[[_T], bool], seconds: float) -> _T:
        """What `read` returns when it is enough, or at the timeout; without threads, the topics are followed meanwhile.

        Announcements and statuses are read first: what is waited for are answers and reports.
        """
        if self.is_followed:
            return self.notifier.wait_until(read, is_enough, seconds)
        self.hear_announcements()
        self.hear_statuses()
        found = read()
        if is_enough(found) or not seconds:
            return found
        # no answer depends on the log of packages, so it needs no thread
        self.start(with_log=False)
        try:
            return self.notifier.wait_until(read, is_enough, seconds)
        finally:
            self.stop(Deadline(self._workspace.clock, _STOP_SECONDS))

    def hear_announcements(self) -> None:
        """Read what is new on the discovery topic, unless a thread does."""
        # a follower is for one thread, so nothing is read here while a thread has it
        if not self.is_followed:
            _read_all(self.roster_follower)

    def hear_statuses(self) -> None:
        """Read what is new on the status topic, unless a thread does."""
        if self.is_followed:
            return
        # Before `trim` below: what is read here may be about packages that retention has removed.
        _read_all(self.status_follower)
        earliest = self._workspace.journal.bounds(self._workspace.package_topic).earliest_offset
        # Below the head nothing can be redriven or listed any more, so what was said of it is dropped.
        self.failed.trim(earliest)
        self.reports.trim(earliest)

    def statuses_heard_at_seconds(self) -> float:
        """A time, in seconds since 1970: all statuses that the log held then were read."""
        # the time before the end: all that the log held at that time lies before this end
        now_seconds = self._workspace.clock.now().timestamp()
        end = self._workspace.journal.bounds(self._workspace.topic(TopicRole.STATUS)).next_offset
        received = self.status_follower.next_offset
        with self._mark_lock:
            if received >= end:
                self._heard_at_seconds = now_seconds
            # The topic grows while it is read, so its end is marked and compared later.
            elif received >= self._mark[1]:
                self._heard_at_seconds, self._mark = max(self._heard_at_seconds, self._mark[0]), (now_seconds, end)
            return self._heard_at_seconds

    def hear_packages(self, wait_seconds: float = 0.0) -> None:
        """Read what is new on the package topic; while a thread does, give it so much time to read that.

        Raises:
            JournalUnavailableError: It has not within that time. Default: it is not waited for.
        """
        if not self.is_followed:
            _read_all(self.log_follower)
        elif wait_seconds:
            self._await_packages(wait_seconds)

    def _await_packages(self, seconds: float) -> None:
        topic = self._workspace.package_topic
        # Read once, before the wait: the end of a log that grows all the time would never be reached.
        end = self._workspace.journal.bounds(topic).next_offset
        known_to = self.notifier.wait_until(lambda: self.view.known_to, lambda known_to: known_to >= end, seconds)
        if known_to < end:
            raise JournalUnavailableError(
                f"the queues end at offset {known_to} after {seconds:g} seconds, and the log at {end}",
                next_step="retry; `mailboat status` shows whether the journal is available",
                topic=topic,
            )

    def close(self) -> None:
        """End the threads, and release the readers."""
        # the threads end before the readers that they use are closed
        self.stop(Deadline(self._workspace.clock, _STOP_SECONDS))
        for name in ("log_follower", "roster_follower", "status_follower"):
            # `cached_property` keeps its value in `__dict__`; reading the attribute would make the follower now.
            follower = self.__dict__.pop(name, None)  # only what was made
            if follower is not None:
                follower.close()

    def count_down_to(self, offset: int) -> None:
        """Count the past as far down as the queues of a subscriber at that offset need it."""
        while self.view.known_from > max(offset, self.view.bounds.earliest_offset):
            if not count_past(self.view, self._workspace.journal):
                break


def _read_all(follower: Follower) -> None:
    while follower.follow(0.0):
        pass


def journal_view(workspace: Workspace) -> JournalView:
    """The bounds and the size of the journal at this moment. Raises: the journal's errors."""
    journal = workspace.journal
    bounds = journal.bounds(workspace.package_topic)
    return JournalView(
        description=journal.description,
        earliest_offset=bounds.earliest_offset,
        next_offset=bounds.next_offset,
        size_bytes=journal.upkeep.size_bytes(),
        retention_seconds=workspace.home.config.retention.package_seconds,
    )

"""Members of a shared pool in threads or processes of a test, over one journal and one target."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from mailboat.blobs.port import BlobStore
from mailboat.clock import Clock, Deadline, SystemClock
from mailboat.config.document import SubscriberConfig
from mailboat.content.locations import opened_ledger
from mailboat.content.port import Target
from mailboat.content.targets.files import open_files_target
from mailboat.content.targets.sqlite import open_sqlite_target
from mailboat.errors import MailboatError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import AgentName, Offset, SlingId, TopicName
from mailboat.model.job_rules import JobRule
from mailboat.model.jobs import JobId
from mailboat.model.messages import JOB_TOPIC
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.packages.port import PackageCodec
from mailboat.packages.tree import TreeCodec
from mailboat.pools.member import MemberSettings, PoolMember
from mailboat.pools.shared_target import SharedTarget
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber_settings import ImportPorts, Processors, SubscriberSettings
from mailboat.testing.wait import PATIENCE_SECONDS
from support.crashes import KillingFailpoints
from support.engines import COMMANDS, Engine, EngineParts, page_source

POOL: Final = AgentName("web")
ADDED_TOPIC: Final = "purge.cdn"
LEASE_MS: Final = 1_000
"""Of members that die or stand still, so that others go on soon."""
LONG_LEASE_MS: Final = 10_000
"""Of members that live, however busy the machine is."""


def open_target(kind: str, place: Path, failpoints: Failpoints, *, is_known: bool) -> Target:
    """Open the target of a pool."""
    if kind == "sqlite":
        return open_sqlite_target(place / "content.db", is_known=is_known)
    return open_files_target(place, failpoints, is_known=is_known)


def pool_settings(**values: object) -> SubscriberSettings:
    """The settings of a pool with short pauses."""
    settings = SubscriberSettings(
        POOL,
        SlingId(""),
        command_topic=COMMANDS,
        is_editable=True,
        config=SubscriberConfig(max_retries=2, first_pause_seconds=0.01),
    )
    return replace(settings, **values)  # type: ignore[arg-type]  # checked by the record


class Stores:
    """What the members of one test share."""

    def __init__(self, journal: Journal, blobs: BlobStore, place: Path, kind: str = "files") -> None:
        self.journal = journal
        self.blobs = blobs
        self.place = place
        self.kind = kind
        self.settings = pool_settings()
        self.job_topic = JOB_TOPIC
        self.lease_ms = LONG_LEASE_MS
        self.clock: Clock = SystemClock()
        self.codecs: Mapping[str, PackageCodec] = {"tree": TreeCodec()}

    def open_target(self) -> Target:
        """The target, while no member has it open."""
        return open_target(self.kind, self.place, NoFailpoints(), is_known=False)

    def open_commands(self) -> int:
        """How many commands the target has taken and not answered."""
        with opened_ledger(f"{self.kind}:{self.place}") as ledger:
            return len(ledger.commands.open_commands())

    def jobs_of(self, topic: str) -> Sequence[JobId]:
        """The jobs of a topic."""
        with closing(open_job_topic(self.journal, topic=self.job_topic)) as opened:
            while not opened.follow():
                pass
            return [job for job in opened.fold.table.all() if opened.fold.topic(job) == topic]

    def ports(
        self,
        failpoints: Failpoints,
        chance: random.Random,
        journal: Journal | None = None,
        processors: Processors | None = None,
    ) -> ImportPorts:
        """What a member imports with."""
        return ImportPorts(
            journal or self.journal,
            self.blobs,
            self.codecs,
            self.clock,
            failpoints,
            chance,
            processors=processors or Processors(),
        )

    def member(
        self,
        name: str,
        settings: SubscriberSettings | None = None,
        *,
        failpoints: Failpoints | None = None,
        processors: Processors | None = None,
        journal: Journal | None = None,
        settled: MemberSettings | None = None,
        when_changed: Callable[[SubscriberStatistics], None] = lambda _: None,
    ) -> PoolMember:
        """A member that has not started."""
        failing = failpoints or NoFailpoints()
        chance = random.Random(name)  # reproducible, and no secret
        ports = self.ports(failing, chance, journal, processors)
        shared = SharedTarget(partial(open_target, self.kind, self.place, failing), ports.clock, chance)
        own = settled or MemberSettings(name, 4, settings or self.settings, self.lease_ms, self.job_topic)
        return PoolMember(own, ports, shared, when_changed)


class StandStill:
    """A journal and failpoints: the process stops (SIGSTOP) at a step, and not while one of its threads appends.

    One that stops in the middle of an append to a SQLite journal keeps its write lock: no other process appends either.
    """

    def __init__(self, journal: Journal, failpoint: Failpoint, count: int) -> None:
        """Wait for `failpoint`, `count` times."""
        self._journal = journal
        self._failpoints = KillingFailpoints(failpoint, count, signal.SIGSTOP)
        self._appending = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def append(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        """Append to the journal."""
        with self._appending:
            return self._journal.append(topic, records)

    def reach(self, failpoint: Failpoint) -> None:
        """Stop, if this is it."""
        with self._appending:
            self._failpoints.reach(failpoint)


class Freeze:
    """Failpoints that stop every thread of a member from one step on, as SIGSTOP does, until it goes on."""

    def __init__(self, failpoint: Failpoint, count: int = 1) -> None:
        self.frozen = threading.Event()
        self._failpoint = failpoint
        self._left = count
        self._goes_on = threading.Event()
        self._lock = threading.Lock()

    def reach(self, failpoint: Failpoint) -> None:
        """Wait, if this is the step or an earlier call has met it."""
        with self._lock:
            self._left -= failpoint is self._failpoint
            is_frozen = self._left <= 0
        if is_frozen:
            self.frozen.set()
            self._goes_on.wait()

    def go_on(self) -> None:
        """End the pause, for good."""
        self._goes_on.set()


class Members:
    """Members that run in threads."""

    def __init__(self) -> None:
        self._started: list[tuple[PoolMember, threading.Thread]] = []
        self.errors: list[MailboatError] = []

    def start(self, *members: PoolMember, is_endless: bool = True) -> None:
        """Run members, each in a thread."""
        for member in members:
            thread = threading.Thread(target=self._run, args=(member, is_endless), daemon=True)
            thread.start()
            self._started.append((member, thread))

    def all(self) -> Sequence[PoolMember]:
        """Those that were started."""
        return [member for member, _ in self._started]

    def join(self) -> Sequence[SubscriberStatistics]:
        """Wait for the end of all; their last figures."""
        for _, thread in self._started:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a member hangs"
        return [member.statistics for member, _ in self._started]

    def stop(self) -> Sequence[SubscriberStatistics]:
        """Stop all, and wait for their end."""
        for member, _ in self._started:
            member.stop(Deadline(SystemClock(), PATIENCE_SECONDS))
        return self.join()

    def _run(self, member: PoolMember, is_endless: bool) -> None:
        try:
            member.run(is_endless=is_endless)
        except MailboatError as error:
            self.errors.append(error)


def paths(packages: int) -> list[str]:
    """The paths of so many packages, of which some lie above others."""
    return [f"/content/{number // 3}" + "/page" * (number % 3) for number in range(packages)]


def prepare(folder: Path, packages: int) -> None:
    """Publish packages below a folder."""
    named = paths(packages)
    with Engine(folder / "home", EngineParts(synchronous="OFF")) as engine:
        publisher, source = engine.publisher(), page_source(*named)
        for path in named:
            # without what is below: each page comes with a package of its own
            publisher.publish(add_request([NodePath(path)], is_deep=False), source)


def work(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Run a member to the end of the log; it is killed at the n-th time that `failpoint` is reached."""
    failpoints = NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)
    with Engine(Path(folder) / "home") as engine:
        stores = Stores(engine.journal, engine.blobs, Path(folder) / "shared")
        stores.lease_ms = LEASE_MS
        stores.settings = pool_settings(job_rules=(JobRule("/content/**", ADDED_TOPIC),))
        stores.member(f"m{os.getpid()}", failpoints=failpoints).run(is_endless=False)


def stand_still(folder: str, failpoint: Failpoint, count: int) -> None:
    """Run a member to the end of the log; it stops (SIGSTOP) at the n-th time that `failpoint` is reached."""
    with Engine(Path(folder) / "home") as engine:
        still = StandStill(engine.journal, failpoint, count)
        stores = Stores(engine.journal, engine.blobs, Path(folder) / "shared")
        stores.lease_ms = LEASE_MS
        stores.settings = pool_settings(job_rules=(JobRule("/content/**", ADDED_TOPIC),))
        stores.member(f"m{os.getpid()}", failpoints=still, journal=still).run(is_endless=False)

"""An agent with one subscriber and a snapshot of it: what restores are tested with, also until the process dies."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
from mailboat.agent import restores
from mailboat.agent.process import AgentProcess
from mailboat.api.client import HttpControl
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.document import (
    AgentsConfig,
    Config,
    HttpConfig,
    PublisherAgentConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)
from mailboat.content.locations import open_source, open_target, opened_ledger
from mailboat.control.service import ControlService
from mailboat.errors import UsageError
from mailboat.failpoints import Failpoint
from mailboat.http.agent_server import server_of
from mailboat.model.paths import NodePath
from mailboat.model.requests import parse_request
from mailboat.operations import target_snapshots
from mailboat.operations.stored_snapshots import restore_stored, store_snapshot
from mailboat.testing.wait import wait_until
from support.crashes import KillingFailpoints

PAUSES = SubscriberConfig(announce_seconds=0.2, first_pause_seconds=0.05, longest_pause_seconds=0.1, max_retries=1)


class Fleet:
    """A journal of the packages `/a.html` and `/b.html`, a target `web`, and its snapshot `old` without `/b.html`."""

    def __init__(
        self, folder: Path, kind: str = "sqlite", http: HttpConfig | None = None, place: str | None = None
    ) -> None:
        """Publish, and import both packages; the configuration names the target by its `place` in the home."""
        self.folder = folder
        self.site = folder / "site"
        self.target = f"{kind}:{folder / 'web' if place is None else folder / 'home' / place}"
        self.author = PublisherAgentConfig("author", str(self.site))
        self.http = HttpConfig(port=0) if http is None else http
        self.site.mkdir(parents=True)
        self.subscribers: tuple[SubscriberAgentConfig, ...] = (
            SubscriberAgentConfig("web", self.target if place is None else f"{kind}:{place}"),
        )
        self.publish("a")
        with self.agent(is_publishing=False):
            wait_until(lambda: self.position() == 1)
        with Workspace(self.home(is_publishing=False)) as workspace:
            store_snapshot(self.target, "old", workspace)
        self.publish("b")

    def home(self, *, is_publishing: bool) -> Home:
        publishers = (self.author,) if is_publishing else ()
        agents = AgentsConfig(publishers=publishers, subscribers=self.subscribers)
        return Home(self.folder / "home", Config(agents=agents, subscriber=PAUSES, http=self.http))

    def publish(self, name: str) -> None:
        (self.site / f"{name}.html").write_text(name)
        home = self.home(is_publishing=False)
        prepare(home)
        with Workspace(home, SystemClock()) as workspace, closing(ControlService(workspace, (self.author,))) as control:
            control.distribute("author", parse_request("ADD", (f"/{name}.html",)))

    @contextmanager
    def agent(self, *, is_publishing: bool) -> Iterator[AgentProcess]:
        with AgentProcess(self.home(is_publishing=is_publishing)) as process:
            process.start()
            yield process

    @contextmanager
    def served(self, *, is_publishing: bool = True) -> Iterator[tuple[AgentProcess, HttpControl]]:
        """The agent with both packages in its target, and a client of its API."""
        with ExitStack() as opened:
            process = opened.enter_context(self.agent(is_publishing=is_publishing))
            server = server_of(process)
            server.start()
            opened.callback(lambda: server.stop(Deadline(SystemClock(), 5.0)))
            client = opened.enter_context(HttpControl(server.url))
            wait_until(lambda: self.position() == 2)
            yield process, client

    def position(self, target: str | None = None) -> int | None:
        """The next offset of a target, of `web` by default; None before its first import."""
        try:
            with opened_ledger(target or self.target) as ledger:
                position = ledger.position()
        except UsageError:
            return None
        return None if position is None else position.next_offset

    def names(self) -> list[str]:
        with closing(open_source(self.target)) as source:
            return [node.path for node in source.walk(NodePath("/"))]


BEGUN: Final = "begun.json"
AT_BEGIN: Final = Failpoint.SUBSCRIBER_BATCH_READ
AT_FETCH: Final = Failpoint.SUBSCRIBER_BATCH_BEGUN
AT_RECORD: Final = Failpoint.SUBSCRIBER_PACKAGE_APPLIED
AT_OUTCOME: Final = Failpoint.SUBSCRIBER_COMMITTED


def restore_and_die(fleet: Fleet, failpoint: Failpoint) -> None:
    """Run the agent, begin the restore of `old`, note it in a file, and be killed when the step is reached."""
    failpoints = KillingFailpoints(failpoint)

    class Watched(restores.Restore):
        """A restore that can be killed."""

        def __init__(self, *parts: Any, **choices: Any) -> None:
            super().__init__(*parts, **choices)
            (fleet.folder / BEGUN).write_bytes(msgspec.json.encode(self.view))

        def begin(self, phase: str, total_bytes: int | None = None) -> None:
            failpoints.reach(AT_BEGIN)
            super().begin(phase, total_bytes)

        def advance(self, count: int) -> None:
            failpoints.reach(AT_FETCH if self.view.phase == "fetching" else AT_RECORD)
            super().advance(count)

    def restored(*parts: Any, **choices: Any) -> Any:
        taken = restore_stored(*parts, **choices)
        failpoints.reach(AT_OUTCOME)
        return taken

    with (
        mock.patch.object(restores, "Restore", Watched),
        mock.patch.object(restores, "restore_stored", restored),
        mock.patch.object(target_snapshots, "open_target", partial(open_target, failpoints=failpoints)),
        fleet.agent(is_publishing=False) as process,
    ):
        wait_until(lambda: process.readiness().ready)
        process.restores.restore_snapshot("old", fleet.target, is_replacing=True)
        signal.pause()

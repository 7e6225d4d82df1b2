"""Restores of snapshots into the targets of a running agent: over its API, by the command line, in its dashboard."""

from __future__ import annotations

import io
import logging
import threading
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mailboat.agent import restores
from mailboat.api.archive import RestoreView
from mailboat.api.client import HttpControl
from mailboat.api.confirmations import RESTORE
from mailboat.api.records import CommandView
from mailboat.cli.main import main
from mailboat.cli.snapshots import followed
from mailboat.cli.transfer import TransferProgress
from mailboat.clock import Deadline, SystemClock, milliseconds_now, moment_of
from mailboat.composition.workspace import Workspace
from mailboat.config.document import (
    Delivery,
    HttpConfig,
    SubscriberAgentConfig,
    TokenConfig,
    Verb,
)
from mailboat.config.storage import Secret
from mailboat.content.locations import open_target, opened_ledger
from mailboat.errors import (
    AgentUnreachableError,
    JournalTrimmedError,
    RestoreInterruptedError,
    TargetBusyError,
    UsageError,
)
from mailboat.model.identifiers import Offset
from mailboat.operations.stored_snapshots import SnapshotMissingError, restore_stored, store_snapshot
from mailboat.operations.target_snapshots import RestoreRequest, SnapshotPartialError, TargetNotEmptyError
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from playwright.sync_api import Page, expect
from support.browser import barriers, chromium, page_in
from support.restored_fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def outcome(client: HttpControl) -> RestoreView:
    """The restore of `web`, once it has ended."""
    return wait_until(
        lambda: next(
            (restore for restore in client.restores() if restore.subscriber == "web" and restore.is_over), None
        )
    )


def suspend(client: HttpControl) -> None:
    """Let the subscriber import nothing, so that what a restore left can be seen."""
    assert client.suspend("web", wait_seconds=PATIENCE_SECONDS).state == "done"


@pytest.mark.parametrize("kind", ["sqlite", "files", "generations"])
@pytest.mark.parametrize("is_publishing", [True, False])
def test_a_running_subscriber_is_restored_and_goes_on(tmp_path: Path, kind: str, is_publishing: bool) -> None:
    fleet = Fleet(tmp_path, kind)
    with fleet.served(is_publishing=is_publishing) as (process, client):
        assert client.restores() == (RestoreView("web", fleet.target),)
        assert [snapshot.snapshot for snapshot in client.snapshots()] == ["blob:old"]
        suspend(client)
        begun = client.restore_snapshot("old", fleet.target, is_replacing=True)
        assert (begun.subscriber, begun.snapshot, begun.target) == ("web", "blob:old", fleet.target)
        done = outcome(client)
        assert (done.state, done.next_offset, done.given_up, done.error) == ("done", 1, 0, None)
        assert (fleet.position(), fleet.names()) == (1, ["/a.html"])
        wait_until(lambda: process.readiness().ready)
        client.resume("web")
        wait_until(lambda: fleet.position() == 2 and fleet.names() == ["/a.html", "/b.html"])  # files follow the commit


@pytest.mark.parametrize("is_publishing", [True, False])
def test_a_command_that_is_open_at_a_restore_is_answered_as_refused(tmp_path: Path, is_publishing: bool) -> None:
    fleet = Fleet(tmp_path)
    fleet.subscribers = (replace(fleet.subscribers[0], editable=True),)
    with fleet.served(is_publishing=is_publishing) as (_, client):
        suspend(client)
        fleet.publish("c")
        opened = opened_command(fleet, client)
        client.restore_snapshot("old", fleet.target, is_replacing=True)
        assert outcome(client).state == "done"
        answer = wait_until(lambda: answered(client, opened))
        assert (answer.state, answer.removed) == ("refused", 0)
        assert "the target was restored before the command was done" in str(answer.message)
        client.resume("web")
        wait_until(lambda: fleet.names() == ["/a.html", "/b.html", "/c.html"])


def opened_command(fleet: Fleet, client: HttpControl) -> str:
    """The id of a clear that the subscriber has taken and cannot do yet."""
    sent = client.clear("author", "web")
    with opened_ledger(fleet.target) as ledger:
        wait_until(ledger.commands.open_commands)
    return sent.id


def answered(client: HttpControl, command_id: str) -> CommandView | None:
    found = client.command("author", command_id)
    return None if found.state == "sent" else found


def test_a_target_may_be_named_as_in_the_configuration(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, place="web")
    assert fleet.target == f"sqlite:{tmp_path / 'home' / 'web'}"
    with fleet.served() as (_, client):
        suspend(client)
        for number, target in enumerate(("sqlite:web", fleet.target)):
            assert client.store_snapshot(target, f"new-{number}").snapshot.next_offset == 2
        begun = client.restore_snapshot("old", "sqlite:web", is_replacing=True)
        assert begun.target == fleet.target
        assert outcome(client).next_offset == 1
        for text in ("sqlite:./web", "web", "sqlite:../home/web"):
            with pytest.raises(UsageError, match="no subscriber of this agent imports into"):
                client.store_snapshot(text, "new")
            with pytest.raises(UsageError, match="no subscriber of this agent imports into"):
                client.restore_snapshot("old", text, is_replacing=True)


def test_a_restore_that_cannot_succeed_is_refused_before_the_subscriber_stops(fleet: Fleet) -> None:
    other = f"sqlite:{fleet.folder / 'pool'}"
    with fleet.served() as (process, client):
        wait_until(lambda: process.readiness().ready)
        with pytest.raises(SnapshotMissingError, match="no snapshot blob:none"):
            client.restore_snapshot("none", fleet.target, is_replacing=True)
        with pytest.raises(UsageError, match="no subscriber of this agent imports into") as refused:
            client.restore_snapshot("old", other, is_replacing=True)
        assert refused.value.next_step == f"use one of: {fleet.target}"
        with pytest.raises(TargetNotEmptyError, match="is a target already, with content"):
            client.restore_snapshot("old", fleet.target)
        client.truncate("package", 2, is_dry_run=False)
        with pytest.raises(JournalTrimmedError, match="the journal begins at 2"):
            client.restore_snapshot("old", fleet.target, is_replacing=True)
        assert client.restores() == (RestoreView("web", fleet.target),)
        assert process.readiness().ready
    fleet.subscribers = (SubscriberAgentConfig("pool", other, delivery=Delivery.SHARED),)
    with (
        fleet.agent(is_publishing=False) as process,
        pytest.raises(UsageError, match="pool is a shared pool: its members"),
    ):
        process.restores.restore_snapshot("old", other, is_replacing=True)


class Gate:
    """Holds up `restore_stored` in the subscriber's thread, before it has done anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.entered, self.opened, restore = threading.Event(), threading.Event(), restores.restore_stored

        def held_up(*parts: Any, phases: Any, **choices: Any) -> Any:
            self.entered.set()
            assert self.opened.wait(PATIENCE_SECONDS)
            if error is not None:
                raise error
            return restore(*parts, phases=phases, **choices)

        monkeypatch.setattr(restores, "restore_stored", held_up)


def test_one_restore_at_a_time(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with fleet.served() as (process, client):
        client.restore_snapshot("old", fleet.target, is_replacing=True)
        assert gate.entered.wait(PATIENCE_SECONDS)
        assert [restore.state for restore in client.restores()] == ["restoring"]
        assert [(agent.state, agent.reason) for agent in process.readiness().agents][1:] == [("starting", "restoring")]
        with pytest.raises(TargetBusyError, match="a restore into the target of web is under way"):
            client.restore_snapshot("old", fleet.target, is_replacing=True)
        gate.opened.set()
        assert outcome(client).state == "done"


@pytest.mark.parametrize(
    ("error", "name"),
    [(OSError("unexpected"), "AgentDefect"), (TargetBusyError("another process has it"), "TargetBusy")],
)
def test_a_restore_that_fails_leaves_the_target_as_it_was(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, error: Exception, name: str
) -> None:
    Gate(monkeypatch, error).opened.set()
    with fleet.served() as (process, client):
        client.restore_snapshot("old", fleet.target, is_replacing=True)
        failed = outcome(client)
        assert (failed.state, failed.error, failed.next_offset) == ("failed", name, None)
        wait_until(lambda: process.readiness().ready)
        assert (fleet.position(), fleet.names()) == (2, ["/a.html", "/b.html"])


def test_an_agent_that_stops_gives_a_restore_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with fleet.served() as (process, client):
        client.restore_snapshot("old", fleet.target, is_replacing=True)
        assert gate.entered.wait(PATIENCE_SECONDS)
        process.ask_to_stop()
        threading.Timer(0.1, gate.opened.set).start()
        process.stop(Deadline(SystemClock(), PATIENCE_SECONDS))
        assert [(restore.state, restore.error) for restore in process.restores.restores()] == [
            ("failed", "RestoreInterrupted")
        ]
        with pytest.raises(TargetBusyError, match="the agent is stopping"):
            process.restores.restore_snapshot("old", fleet.target, is_replacing=True)
        assert (fleet.position(), fleet.names()) == (2, ["/a.html", "/b.html"])
        later = RestoreRequest("blob:old", milliseconds_now(SystemClock()) + 1, is_replacing=True)
        with Workspace(fleet.home(is_publishing=False)) as home:
            restore_stored("old", fleet.target, home, request=later)
        (known,) = process.restores.restores()
        assert (known.state, known.begun_at, known.error) == ("done", moment_of(later.begun_ms), None)


def test_a_subscriber_that_ended_in_a_named_state_starts_again(fleet: Fleet) -> None:
    fleet.publish("c")
    with fleet.agent(is_publishing=False):
        wait_until(lambda: fleet.position() == 3)
    with Workspace(fleet.home(is_publishing=True)) as workspace:
        store_snapshot(fleet.target, "new", workspace)
        workspace.journal.truncate(workspace.package_topic, 3)
    with closing(open_target(fleet.target)) as target:
        position = target.ledger.position()
        assert position is not None
        target.ledger.reset_position(replace(position, next_offset=Offset(1)))
    with ExitStack() as opened:
        process = opened.enter_context(fleet.agent(is_publishing=True))
        wait_until(lambda: process.readiness().agents[1].reason == "JournalTrimmed")
        assert process.exit_code == 6
        process.restores.restore_snapshot("new", fleet.target, is_replacing=True)
        wait_until(lambda: process.readiness().ready)
        assert process.exit_code == 0
        assert [restore.state for restore in process.restores.restores()] == ["done"]
    assert fleet.position() == 3


def test_restoring_needs_the_verb_admin_and_is_audited(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mailboat")
    tokens = []
    for name, verb in (("viewer", Verb.VIEW), ("clearer", Verb.CLEAR), ("ruler", Verb.ADMIN)):
        (tmp_path / name).write_text(f"{name}-0123456789abcdef")
        tokens.append(TokenConfig(name, Secret(file=str(tmp_path / name)), (verb,)))
    fleet = Fleet(tmp_path / "fleet", http=HttpConfig(port=0, tokens=tuple(tokens)))
    for is_publishing in (True, False):
        with fleet.served(is_publishing=is_publishing) as (_, client):
            order = {"target": fleet.target, "replace": True}
            path, statuses = f"{client.url}/api/v1/snapshots/old/restore", dict[str, int]()
            caplog.clear()
            for name in ("viewer", "clearer", "ruler"):
                headers = {"authorization": f"Bearer {name}-0123456789abcdef"}
                statuses[name] = httpx2.post(path, json=order, headers=headers, timeout=PATIENCE_SECONDS).status_code
            assert statuses == {"viewer": 403, "clearer": 403, "ruler": 202}
            lines = [line.getMessage() for line in caplog.records if line.name == "mailboat.audit"]
            for fact in ("verb=admin", "snapshot=old", "subscriber=web", f"target={fleet.target}", "status=202"):
                assert fact in lines[-1]
            with HttpControl(client.url, "viewer-0123456789abcdef") as viewer:
                assert outcome(viewer).state == "done"
            wait_until(lambda: fleet.position() == 2)


def mailboat(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main([*words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_line_restores_at_an_agent(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    with fleet.served() as (_, client):
        suspend(client)
        restore = ("--url", client.url, "content", "restore", "blob:old", "--into", fleet.target)
        code, _, error = mailboat(capsys, *restore)
        assert (code, "error: TargetNotEmpty: " in error) == (2, True)
        code, _, error = mailboat(capsys, *restore, "--replace")
        assert (code, "refusing without confirmation: not a terminal" in error) == (2, True)
        code, out, _ = mailboat(capsys, *restore, "--replace", "--yes")
        assert (code, out.strip()) == (0, f"{fleet.target}: restored blob:old, at offset 1")
        assert fleet.names() == ["/a.html"]
        code, out, _ = mailboat(capsys, "--url", client.url, "content", "restores")
        assert (code, out.splitlines()[1].split()[:3]) == (0, ["web", "done", "blob:old"])
        assert out.splitlines()[1].endswith("offset 1")
        for more in (("--seed",), ("--any-journal",), ("--config", "mailboat.yaml")):
            code, _, error = mailboat(capsys, *restore, *more)
            assert (code, "an agent restores blob:NAME only" in error) == (2, True)


class Terminal(io.StringIO):
    """What is typed."""

    def isatty(self) -> bool:
        return True


def test_the_command_line_says_what_a_restore_does_and_where_an_ended_agent_is_restored(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\nn\n"))
    with fleet.served(is_publishing=False) as (_, client):
        restore = ("--url", client.url, "content", "restore", "blob:old", "--into", fleet.target, "--replace")
        for words in (restore, restore[2:]):
            code, _, error = mailboat(capsys, *words)
            assert (code, RESTORE.consequences in " ".join(error.split())) == (1, True)
    code, _, error = mailboat(capsys, *restore, "--yes")
    assert code == AgentUnreachableError.exit_code
    assert "  next  restore once the agent runs again; one without publishers ends with its last" in error
    assert "mailboat content restore blob:NAME --into TARGET --replace" in error


def test_a_restore_that_another_one_follows_is_not_confused_with_it() -> None:
    begun = RestoreView("web", "sqlite:web", "restoring", "blob:old", begun_at=moment_of(1_000))
    later = replace(begun, state="done", snapshot="blob:new", begun_at=moment_of(2_000))
    others = [replace(later, target="sqlite:other"), replace(begun, state="none", snapshot=None, begun_at=None)]
    with pytest.raises(RestoreInterruptedError, match="another restore into sqlite:web began after that of blob:old"):
        followed(lambda: [later], begun, TransferProgress(io.StringIO()), SkippingClock(), "http://agent")
    with pytest.raises(RestoreInterruptedError, match="sqlite:web is as it was before"):
        followed(lambda: others, begun, TransferProgress(io.StringIO()), SkippingClock(), "http://agent")


def test_a_snapshot_of_other_roots_is_listed_with_them_and_refused_before_it_is_fetched(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    part = SubscriberAgentConfig("part", f"sqlite:{fleet.folder / 'part'}", roots=("/a.html",))
    fleet.subscribers = (*fleet.subscribers, part)
    with fleet.served() as (process, client):
        wait_until(lambda: fleet.position(part.target) == 2)  # `served` waits for the other subscriber only
        client.store_snapshot(part.target, "part")
        process.workspace.blobs.delete(bytes.fromhex(str(client.snapshots()[1].sha256)))
        with pytest.raises(SnapshotPartialError, match=r"holds /a.html only, the subscriber of .* imports /$"):
            client.restore_snapshot("part", fleet.target, is_replacing=True)
        assert [restore.state for restore in client.restores()] == ["none", "none"]
        assert [snapshot.roots for snapshot in client.snapshots()] == [(), ("/a.html",)]
        _, out, _ = mailboat(capsys, "--url", client.url, "content", "snapshots")
        assert f"{part.target}, below /a.html only" in out


def test_a_failure_at_an_agent_is_that_of_the_command_line(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Gate(monkeypatch, TargetBusyError("another process has it", next_step="stop it")).opened.set()
    with fleet.served() as (_, client):
        restore = ("content", "restore", "blob:old", "--into", fleet.target, "--replace", "--yes")
        code, _, error = mailboat(capsys, "--url", client.url, *restore)
        assert code == TargetBusyError.exit_code
        assert error.splitlines() == ["error: TargetBusy: another process has it", "  next  stop it"]


def restore_in_browser(page: Page, url: str, target: str) -> None:
    page.goto(f"{url}/#/storage")
    row = page.get_by_role("table", name="Snapshots").get_by_role("row", name="blob:old")
    row.get_by_role("button", name="Restore…").click()
    dialog = page.get_by_role(
        "dialog", name=f"Replace content, position and error queue of {target} by those of blob:old"
    )
    expect(dialog).to_contain_text("It goes back from offset 2 to 1")
    assert barriers(page) == []
    agree = dialog.get_by_role("button", name="Restore", exact=True)
    expect(agree).to_be_disabled()
    dialog.get_by_label("Type web to confirm").fill("we")
    expect(agree).to_be_disabled()
    dialog.get_by_label("Type web to confirm").fill("web")
    agree.click()
    expect(page.get_by_role("status")).to_contain_text("web has the content of blob:old, and goes on at offset 1")
    expect(page.get_by_role("table", name="Restores").get_by_role("row", name="web")).to_contain_text("done")
    assert barriers(page) == []


def test_a_snapshot_is_restored_in_the_dashboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tmp_path)
    with chromium() as browser, page_in(browser) as page:
        for is_publishing in (True, False):
            with fleet.served(is_publishing=is_publishing) as (_, client):
                restore_in_browser(page, client.url, fleet.target)
                wait_until(lambda: fleet.position() == 2)
        Gate(monkeypatch, TargetBusyError("<b>another</b> process has it", next_step="stop it")).opened.set()
        with fleet.served() as (_, client):
            page.goto(f"{client.url}/#/storage")
            page.get_by_role("button", name="Restore…").click()
            page.get_by_label("Type web to confirm").fill("web")
            page.get_by_role("button", name="Restore", exact=True).click()
            words = "web was not restored: <b>another</b> process has it (stop it)"
            expect(page.get_by_role("status")).to_contain_text(words)
            expect(page.get_by_role("table", name="Restores")).to_contain_text("TargetBusy: <b>another</b>")

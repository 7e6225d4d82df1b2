"""The verbs of the control port as the command line shows them: tables, documents, questions, exit codes."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from mailboat.api.confirmations import DROP
from mailboat.api.records import (
    BuildProgressView,
    CauseView,
    CommandView,
    DistributionView,
    FailureView,
    JournalView,
    NotImportedView,
    PublisherView,
    StatusView,
    SubscriberStatusView,
)
from mailboat.cli import status
from mailboat.cli.command_results import answer_text
from mailboat.cli.distributions import Followed, end_by, followed_lines, merged, waited_for
from mailboat.cli.main import main
from mailboat.cli.output import Output, show
from mailboat.cli.publish import _member_lines
from mailboat.cli.status_board import changed_lines, fitted_blocks, status_report
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import moment_of
from mailboat.errors import JournalUnavailableError
from mailboat.model.paths import parse_path
from mailboat.model.requests import parse_request
from mailboat.testing.clocks import ManualClock
from support.fake_control import FakeArchive, FakeControl, FakeSubscriber

URL = "http://agent.example:8080"
FULL = CauseView("StorageFull", "no space left on device", "/news/a")


class Client(FakeControl, FakeArchive):
    """A fake agent, as the client of the HTTP API would be."""

    def __init__(self, *subscribers: FakeSubscriber) -> None:
        """With the archive of what it publishes."""
        FakeControl.__init__(self, *subscribers)
        FakeArchive.__init__(self, self)

    def close(self) -> None:
        """Nothing to release."""


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Client:
    """An agent with three packages, one subscriber that has them, one that is blocked by the first."""
    made = Client(FakeSubscriber("edge-1", 3), FakeSubscriber("edge-2", 0, error=FULL))
    for number in range(3):
        made.distribute("author", parse_request("ADD", (f"/news/{number}", "/more"), request_id=f"r-{number}"))
    monkeypatch.setattr("mailboat.api.client.HttpControl", lambda *_: made)
    return made


@pytest.fixture
def run(agent: Client, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line against the agent: its exit code, and what it printed."""

    def call(*words: object) -> tuple[int, list[str]]:
        code = main(["--url", URL, *map(str, words)])
        printed = capsys.readouterr()
        return code, [*printed.out.splitlines(), *(f"! {line}" for line in printed.err.splitlines())]

    return call


def test_queues_are_listed_with_what_blocks_them(run: Any, agent: Client) -> None:
    code, lines = run("queues", "ls")
    assert code == 0
    assert lines[0].split() == ["QUEUE", "STATE", "PACKAGES", "OLDEST", "ATTEMPTS", "TAKES", "ERROR"]
    assert lines[1].split() == ["edge-1", "idle", "0", "-", "-", "clear,", "remove"]
    assert lines[2].startswith("edge-2   blocked          3   0 ADD /news/0 … 2 paths          3   clear, remove")
    assert lines[2].endswith("StorageFull: /news/a: no space left on device")
    assert len(lines) == 3
    agent.give_up("edge-2", 0, FULL)
    _, lines = run("queues", "ls", "-o", "name")
    assert [line[37:] for line in lines] == ["edge-1", "edge-2", "edge-2-error"]
    assert run("queues", "ls")[1][3].split()[:4] == ["edge-2", "(given", "up)", "passive"]


def test_a_queue_is_shown_piece_by_piece(run: Any) -> None:
    _, lines = run("queues", "show", "edge-2", "-n", 2)
    assert lines[0] == "edge-2  blocked  3 packages of author"
    assert [line.split()[0] for line in lines[2:4]] == ["0", "1"]
    assert lines[4] == "more from offset 2: --from 2"
    assert run("queues", "show", "edge-2", "--from", 2, "-o", "name") == (0, ["package-0@2"])


def test_subscriber_is_suspended_for_a_time_and_resumed(run: Any, agent: Client) -> None:
    assert run("subscribers", "suspend", "edge-2", "--for", "1.5h")[0] == 0
    assert agent.subscribers["edge-2"].suspended_seconds == 5400
    assert run("subscribers", "resume", "edge-2", "-o", "name")[0] == 0
    assert not agent.subscribers["edge-2"].suspended_seconds
    code, lines = run("subscribers", "suspend", "edge-2", "--for", "soon")
    assert (code, "'soon' is not a duration" in lines[0]) == (2, True)


def test_a_queue_is_cleared_only_when_a_person_says_so(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = "! error: Usage: refusing without confirmation: not a terminal"
    assert run("queues", "clear", "edge-2") == (2, [refused, "!   next  pass --yes"])
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    code, lines = run("queues", "clear", "edge-2")
    question = f"! {DROP.question(packages='all 3 packages', publisher='author', subscriber='edge-2')} [y/N]: "
    assert (code, lines[-1]) == (1, f"{question}nothing was dropped")
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert "Drop the first package of author" in run("queues", "clear", "edge-2", "--first", 1)[1][-1]
    assert agent.subscribers["edge-2"].next_offset == 0
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, lines = run("queues", "clear", "edge-2", "--first", 2)
    assert (code, lines[0].strip()) == (0, "edge-2: 2 packages dropped, up to offset 1")
    assert agent.subscribers["edge-2"].removed == {0, 1}


class Terminal(io.StringIO):
    """A person's answer."""

    def isatty(self) -> bool:
        return True


def test_an_empty_queue_is_not_cleared(run: Any) -> None:
    assert run("queues", "clear", "edge-1", "--yes")[1][0].startswith("! error: Usage: the queue of edge-1 is empty")


@pytest.mark.parametrize("item", ["0", "package-0@0"])
def test_the_head_of_a_queue_is_dropped_by_its_offset_or_its_id(run: Any, agent: Client, item: str) -> None:
    assert run("queues", "remove", "edge-2", item, "--yes") == (0, ["edge-2: 1 package dropped, up to offset 0"])
    assert agent.subscribers["edge-2"].removed == {0}


def test_removal_asks_for_all_packages_that_it_drops(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\nn\n"))
    assert "Drop all packages up to offset 2 of author" in run("queues", "remove", "edge-2", 0, 2)[1][-1]
    assert "Drop the package at offset 0 of author" in run("queues", "remove", "edge-2", 0)[1][-1]


def test_an_item_that_is_not_in_the_queue_is_not_dropped(run: Any) -> None:
    code, lines = run("queues", "remove", "edge-2", "7", "--yes")
    assert (code, lines[0]) == (2, "! error: Usage: the queue edge-2 holds no package at offset 7")


def test_what_became_of_a_command_can_be_asked_later(run: Any) -> None:
    _, (name,) = run("queues", "clear", "edge-2", "--yes", "-o", "name")
    assert run("queues", "command", name) == (0, ["edge-2: 3 packages dropped, up to offset 2"])
    assert run("queues", "command", "nobody's")[0] == 2


def test_the_answer_to_a_command_is_found_at_an_agent_without_a_publisher(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = agent.suspend("edge-2", 60.0).id
    known = replace(agent.status(), publishers=())
    monkeypatch.setattr(agent, "status", lambda: known)
    code, lines = run("queues", "command", name)
    assert (code, [line.partition(":")[0] for line in lines]) == (0, ["edge-2"])


@pytest.mark.parametrize(
    ("state", "wait", "ended"),
    [
        ("sent", 5, (3, "edge-2: sent, stands elsewhere; the command is c-1")),
        ("sent", 0, (0, "edge-2: sent, stands elsewhere; the command is c-1")),
        ("refused", 5, (1, "edge-2: refused: stands elsewhere")),
        ("done", 5, (0, "edge-2: 3 packages dropped, up to offset 2")),
    ],
)
def test_the_exit_code_says_whether_the_subscriber_did_it(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch, state: str, wait: int, ended: tuple[int, str]
) -> None:
    code, text = ended
    answer = CommandView("c-1", "clear", "author", "edge-2", 2, state, 3, "stands elsewhere")
    monkeypatch.setattr(agent, "clear", lambda *_: answer)
    assert run("queues", "clear", "edge-2", "--yes", "--wait", wait) == (code, [text])


def test_a_redriven_package_is_named_by_its_offset() -> None:
    done = CommandView("c-1", "redrive", "author", "edge-2", 7, "done", 1, "the package was imported")
    assert answer_text(done) == "edge-2: redriven, offset 7: the package was imported"


def test_a_command_without_an_answer_is_named_by_its_id() -> None:
    sent = CommandView("c-1", "clear", "author", "edge-2", 7)
    assert answer_text(sent) == "edge-2: sent, no answer yet; the command is c-1"


def test_a_clear_that_found_nothing_says_so() -> None:
    done = CommandView("c-1", "clear", "author", "edge-2", 7, "done", 0, "it was past them")
    assert answer_text(done) == "edge-2: nothing dropped: it was past them"


def test_what_was_given_up_is_listed_explained_and_driven_again(run: Any, agent: Client) -> None:
    cause = CauseView("HookFailed", "exit code 1", "/news/1", "rest of a cut line\n  the end")
    agent.give_up("edge-2", 1, cause)
    _, lines = run("errors", "ls")
    assert lines[1].split()[:5] == ["edge-2", "1", "given", "up", "11"]
    assert lines[1].endswith("/news/1 /more   HookFailed: exit code 1")
    _, shown = run("errors", "show", "edge-2", 1)
    assert shown[2].startswith("status    given up ")
    assert shown[-2:] == ["            the end", "next      mailboat errors redrive edge-2 1"]
    assert run("errors", "show", "edge-2", 0)[0] == 2
    assert run("errors", "redrive", "edge-2", "--all") == (0, ["edge-2: redriven, offset 1"])
    assert run("errors", "ls") == (0, ["nothing was given up"])
    assert run("errors", "redrive", "edge-2", "--all") == (0, ["nothing was given up"])


def test_requests_are_listed_the_newest_first_with_how_many_have_them(run: Any) -> None:
    code, lines = run("distributions", "ls", "--limit", 2)
    assert code == 0
    assert lines[0].split() == ["OFFSET", "PUBLISHED", "ACTION", "PATHS", "STATE", "IMPORTED", "REQUEST"]
    assert [line.split()[0] for line in lines[1:3]] == ["2", "1"]
    assert "ADD      /news/2 … 2 paths   queued" in lines[1]
    assert lines[1].rstrip().endswith("1 of 2   r-2")
    assert lines[3] == "older ones: mailboat distributions ls --before 1"
    assert len(run("distributions", "ls", "--before", 1)[1]) == 2
    assert run("distributions", "ls", "--before", 0)[1] == ["author has published nothing"]


def test_a_distribution_is_told_with_everyone_who_has_it_or_not(run: Any) -> None:
    code, lines = run("distributions", "get", "r-1")
    assert code == 0
    assert [line.partition("  ")[0] for line in lines] == [
        "package",
        "request",
        "id",
        "published",
        "state",
        "imported",
        "waiting",
    ]
    assert lines[1] == "request    ADD /news/1 /more"
    assert lines[-2:] == ["imported   1: edge-1", "waiting    1: edge-2"]


@pytest.mark.parametrize(("words", "code"), [((), 0), (("--wait", "0"), 3), (("--wait", "1"), 3)])
def test_waiting_for_a_distribution_in_vain_is_an_exit_code(run: Any, words: tuple[str, ...], code: int) -> None:
    assert run("distributions", "get", "r-1", *words)[0] == code


def test_a_distribution_that_a_subscriber_gave_up_is_a_failure_for_those_who_wait(run: Any, agent: Client) -> None:
    agent.give_up("edge-2", 2, FULL)
    code, lines = run("distributions", "get", "r-2", "--wait", 1)
    assert (code, lines[-1]) == (1, "given up   edge-2: StorageFull: /news/a: no space left on device")
    assert run("distributions", "get", "r-0", "--wait", 1)[0] == 0
    assert run("distributions", "get", "nothing")[0] == 2


def test_an_agent_publishes_paths_of_its_own_source(run: Any, agent: Client) -> None:
    code, lines = run("publish", "/en", "/de", "--request-id", "r-9")
    assert (code, lines[0].partition("  ")[2]) == (0, "offset 3  ADD /en /de  100 B package")
    made = agent.distribution("author", "r-9")
    assert (made.paths, made.deep_paths) == (("/en", "/de"), ("/de", "/en"))
    _, lines = run("publish", "/en", "/de", "--request-id", "r-9")
    assert lines[0].endswith("published before, nothing sent")


def test_the_paths_of_an_agent_can_be_packages_of_their_own(run: Any, agent: Client) -> None:
    assert run("publish", "/en", "/de", "--each", "--shallow", "--request-id", "r-9")[0] == 0
    assert agent.distribution("author", "r-9.1").paths == ("/de",)
    assert agent.distribution("author", "r-9.1").deep_paths == ()


def test_changes_of_the_agents_source_are_planned_and_published(run: Any, agent: Client) -> None:
    agent.changed = [parse_path("/en/a"), parse_path("/de")]
    code, lines = run("plan", "--changed", "/en")
    assert (code, lines[0], lines[1]) == (0, "1 file, 1 node, 0 deletes, 0 B content, 1 package", "  + /en/a")
    code, lines = run("publish", "--changed", "-o", "json")
    (package,) = json.loads("\n".join(lines))["packages"]
    assert (code, package["paths"], package["offset"]) == (0, ["/en/a", "/de"], 3)
    assert run("publish", "--changed", "--wait", 5) == (0, ["nothing to publish"])


def test_plan_of_an_agents_path_names_what_it_replaces(run: Any) -> None:
    code, lines = run("plan", "/en")
    assert (code, lines[2]) == (0, "replaces /en: what subscribers have below and the source has not is removed")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("./site",), "of ./site"),
        (("/en", "site"), "of site"),
        (("/en", "--source", "."), "with --source"),
        ((), "without PATH"),
    ],
)
def test_agent_refuses_a_source_of_this_machine(run: Any, words: tuple[str, ...], what: str) -> None:
    code, lines = run("publish", *words)
    assert (code, lines[0]) == (
        2,
        f"! error: Usage: the agent at {URL} can't publish {what}: it publishes content paths of its own source",
    )
    assert lines[1].startswith(f"!   next  mailboat --url {URL} publish /PATH")


def test_receipt_is_printed_before_the_wait_and_stays_after_ctrl_c(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> DistributionView:
        raise KeyboardInterrupt

    monkeypatch.setattr(agent, "distribution", interrupted)
    code, lines = run("publish", "/en", "--wait", 60)
    package = lines[0].split()[0]
    assert (code, lines[0].split()[1:3]) == (130, ["offset", "3"])
    assert lines[1:] == [
        f"! 1 package published, the last one {package} at offset 3; the wait for the subscribers ended",
        f"!   next  mailboat distributions get {package}",
        "! stopped by Ctrl-C",
    ]


@pytest.mark.parametrize("cause", [JournalUnavailableError("the broker is away"), KeyboardInterrupt()])
def test_programs_get_the_packages_of_a_wait_that_failed(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch, cause: BaseException
) -> None:
    def failing(*_: object) -> DistributionView:
        raise cause

    monkeypatch.setattr(agent, "distribution", failing)
    code, lines = run("publish", "/en", "--wait", 60, "-o", "json")
    found = json.loads("\n".join(line for line in lines if not line.startswith("!")))
    assert (code, found["packages"][0]["offset"]) == (75 if isinstance(cause, JournalUnavailableError) else 130, 3)


def test_wait_shows_how_far_the_last_package_is_until_no_subscriber_is_waited_for(
    agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("a", "b")
    views = [
        DistributionView("author", "p", 1, "ADD", waiting=names[done:], imported=names[:done]) for done in range(3)
    ]
    answers, shown = iter([*views, views[-1]]), list[str]()
    agent.distribution = lambda *_: next(answers)  # type: ignore[method-assign]
    monkeypatch.setattr(TerminalLine, "can_show", lambda _: True)
    monkeypatch.setattr(TerminalLine, "show", lambda _, text: shown.append(text))
    assert waited_for(agent, "author", ["p"], ManualClock(), 60, 0.0) == [views[-1]]
    assert [text.partition(";")[0] for text in shown] == [f"imported by {done}/2 subscribers" for done in range(3)]


def test_publish_reports_the_same_fields_at_home_and_agent(run: Any) -> None:
    _, lines = run("publish", "/en", "-o", "json", "--wait", 0)
    found = json.loads("\n".join(lines))
    assert "removed" in found["packages"][0]
    assert found["packages"][0]["nodes"] is None
    assert found["followers"]["waiting"] == ["edge-1", "edge-2"]


def test_other_requests_reach_an_agent_and_can_be_waited_for(run: Any) -> None:
    assert run("delete", "/en")[0] == run("invalidate", "/en")[0] == run("ping")[0] == 0
    code, lines = run("delete", "/en", "--wait", 0)
    assert code == 3
    assert lines[1].startswith("imported by 0/2 after waiting ")
    assert lines[2:] == ["  not yet by edge-1: importing", "  not yet by edge-2: retrying"]


def test_event_to_resume_after_is_one_of_an_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", "--after", "5e1f-17"]) == 2
    assert "mailboat --url URL events --after 5e1f-17" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("content", "ls", "."), ("content", "diff", ".", "."), ("subscribe", "x")])
def test_a_command_that_needs_files_says_so(run: Any, words: tuple[str, ...]) -> None:
    code, lines = run(*words)
    assert code == 2
    name = " ".join(words[:2] if words[0] == "content" else words[:1])
    assert (
        lines[0] == f"! error: Usage: `mailboat {name}` works on the files of a home; an agent behind --url can't do it"
    )


def test_journal_commands_read_an_agent_s_journal(run: Any) -> None:
    assert run("journal", "topics")[1][1].split() == ["package", "0", "3", "3", "log-1"]
    assert run("journal", "show", "-n", 2, "-o", "name") == (0, ["1", "2"])
    assert run("journal", "show", 9)[1][0] == "! error: Usage: there is no message at offset 9"
    code, lines = run("journal", "verify", "-o", "json")
    found = json.loads("".join(lines))
    assert (code, found["problem_count"], found["blobs_read"]) == (1, 1, False)
    assert run("journal", "verify", "--deep", "-o", "name") == (1, ["package/1"])


def test_journal_commands_change_an_agent_s_journal(run: Any) -> None:
    lost = "would be cut off, and stop as JournalTrimmed: edge-7 is at offset 0"
    code, lines = run("journal", "truncate", "--before", 1)
    assert (code, lines[0]) == (2, f"! {lost}")
    _, lines = run("journal", "truncate", "--before", 1, "--yes")
    assert lines == ["package: 1 message removed", "oldest 1, next 3", f"! {lost}"]
    assert run("journal", "truncate", "--expired")[1][0] == "2 messages removed"
    assert run("journal", "retention")[1][0] == "head       0 of 3: the slowest"
    assert json.loads("".join(run("journal", "retention", "--apply", "-o", "json")[1]))["applied"] is True
    assert run("journal", "ensure")[0] == 0
    code, lines = run("journal", "ensure", "--check", "-o", "name")
    assert (code, lines[0]) == (1, "package")
    found = json.loads("".join(run("journal", "bench", "--bytes", 50, "-o", "json")[1]))
    assert (found["message_bytes"], found["rates"][0]["bytes_per_second"]) == (50, 500.0)


def test_journal_show_reads_more_messages_than_one_answer_holds(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.cli.journal.MAX_RECORDS", 2)
    assert run("journal", "show", 0, "-n", 10, "-o", "name") == (0, ["0", "1", "2"])
    assert run("journal", "show", "-n", 3, "-o", "name") == (0, ["0", "1", "2"])
    assert run("journal", "show", "--topic", "status", "-n", 3, "-o", "name") == (0, [])


def test_blob_commands_work_on_an_agent_s_blob_store(run: Any) -> None:
    assert run("blobs", "ls", "-o", "name") == (0, ["ab" * 32, "cd" * 32])
    assert run("blobs", "ls", "--removable", "-o", "name") == (0, ["cd" * 32])
    code, lines = run("blobs", "sweep")
    assert (code, lines[0]) == (0, "/blobs")
    assert lines[-2:] == [
        "sqlite:/site.db: left alone: TargetBusy",
        "! nothing was removed; to do so: mailboat blobs sweep --yes",
    ]
    assert "removed 1 blob" in run("blobs", "sweep", "--yes")[1]


def test_snapshot_commands_work_on_an_agent_s_blob_store(run: Any, tmp_path: Path) -> None:
    assert run("content", "snapshots", "-o", "name") == (0, ["blob:site"])
    for name in ("site", "blob:site"):
        assert run("content", "snapshots", "--remove", name) == (0, ["blob:site is forgotten"])
    assert run("content", "snapshot", "sqlite:/site.db", "blob:new")[1][0] == "sqlite:/site.db at 3 is blob:new"
    assert "is current: it is at offset" in run("content", "snapshot", "sqlite:/site.db", "blob:site")[1][0]
    assert run("content", "snapshot", "sqlite:/site.db", tmp_path / "file")[0] == 2
    assert run("content", "snapshots", "--config", tmp_path / "c.yaml")[0] == 2


def test_a_home_and_an_agent_can_not_both_be_meant(run: Any) -> None:
    assert "can't both be given" in run("status", "--home", "x")[1][0]


def test_the_environment_names_an_agent_unless_a_home_is_given(
    agent: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAILBOAT_URL", URL)
    assert main(["status", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["edge-1", "edge-2"]
    assert main(["status", "--home", "/nowhere"]) == 2
    assert "HomeMissing" in capsys.readouterr().err


def test_a_token_comes_from_a_file_or_the_environment(
    agent: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str | None] = []
    monkeypatch.setattr("mailboat.api.client.HttpControl", lambda _, token: (seen.append(token), agent)[1])
    file = tmp_path / "token"
    file.write_text("of-a-file\n")
    monkeypatch.setenv("MAILBOAT_TOKEN", "of-the-environment")
    assert main(["--url", URL, "status"]) == 0
    assert main(["status", "--url", URL, "--token-file", str(file)]) == 0
    assert seen == ["of-the-environment", "of-a-file"]
    capsys.readouterr()
    file.write_text("")
    assert main(["--url", URL, "--token-file", str(file), "status"]) == 2
    assert "which holds nothing" in capsys.readouterr().err


def test_which_publisher_is_meant_must_be_clear(run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    both = (PublisherView("author"), PublisherView("bob"))
    monkeypatch.setattr(agent, "status", lambda: StatusView(JournalView("memory", 0, 0), both, ()))
    code, lines = run("queues", "ls")
    assert (code, lines[1]) == (2, "!   next  --publisher NAME, one of: author, bob")
    assert run("queues", "ls", "--publisher", "author")[0] == 0


def test_the_only_publisher_of_an_agent_is_meant_whoever_else_publishes_on_its_journal(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(agent.status(), publishers=(PublisherView("author", "idle"), PublisherView("elsewhere")))
    monkeypatch.setattr(agent, "status", lambda: known)
    assert run("publish", "/en")[0] == 0


def test_documents_are_those_of_the_control_port(run: Any) -> None:
    _, lines = run("status", "-o", "json")
    document = json.loads("\n".join(lines))
    assert document["subscribers"][1]["error"] == {**document["subscribers"][1]["error"], "code": "StorageFull"}
    assert document["journal"]["next_offset"] == 3
    _, lines = run("queues", "ls", "-o", "yaml")
    assert lines[1] == "  publisher: author"


def member(number: int, **values: Any) -> SubscriberStatusView:
    return SubscriberStatusView(f"edge-{number}", **{"state": "current", "next_offset": 9, "lag": 0, **values})


def shown(view: StatusView, blocks: Any = None) -> list[str]:
    into = io.StringIO()
    report = status_report(view, moment_of(10_000))
    show(report, Output.TABLE, into)
    return into.getvalue().splitlines()


def test_a_status_says_which_build_a_subscriber_is_in_the_middle_of() -> None:
    members = (member(1, state="importing", lag=4, build=BuildProgressView("release-42", 1_200, 5_000)), member(2))
    view = StatusView(JournalView("sqlite x", 0, 9, 4_200_000, None), (), members)
    lines = shown(view)
    assert "importing release-42, 1,200 of 5,000  " in lines[2]
    assert lines[3].split()[:3] == ["edge-2", "current", "9"]
    (line,) = changed_lines(view, {"": "journal  next 9", "edge-2": "edge-2  current  position 9  lag 0"})
    assert line == "edge-1  importing release-42, 1,200 of 5,000  position 9  lag 4"


def test_a_status_says_who_is_ready_and_why_not() -> None:
    publishers = (
        PublisherView("author", "blocked", last_published_at=moment_of(8_000), delay_seconds=2.5),
        PublisherView("b"),
    )
    members = (
        member(1, ready=True, rate_per_second=210.4),
        member(2, ready=False, ready_reason="lags", lag=4, eta_seconds=12.0, rate_per_second=2.5),
        member(3, state="retrying", attempts=3, max_retries=10, error=FULL, given_up=2, ready=False),
        SubscriberStatusView("edge-4", "new"),
    )
    view = StatusView(JournalView("sqlite x", 0, 9, 4_200_000, None), publishers, members, 1)
    dropped = "dropped    2 subscribers dropped to bound the agent's memory: not listed here"
    assert shown(replace(view, dropped_subscribers=2))[4] == dropped
    lines = shown(view)
    assert lines[:4] == [
        "journal    sqlite x   oldest 0   next 9   4.2 MB   kept without age limit",
        "publisher  author   queues blocked   last published 2.0 s ago   held back by 2.5 s",
        "publisher  b        nothing published lately",
        "discovery  1 message can't be understood: see mailboat journal verify",
    ]
    assert lines[5].split() == ["edge-1", "current", "9", "0", "210/s", "-", "-", "yes"]
    assert lines[6].split(maxsplit=8) == [
        *["edge-2", "current", "9", "4", "2.5/s"],
        "12",
        "s",
        "-",
        "no      not ready: lags",
    ]
    assert "3 of 11   no" in lines[7]
    assert lines[7].endswith("StorageFull: /news/a: no space left on device; 2 given up: see mailboat errors ls edge-3")
    assert lines[8].split() == ["edge-4", "new", "-", "-", "-", "-", "-", "-"]


def test_a_low_terminal_shows_those_in_trouble_first() -> None:
    members = [member(number) for number in range(1, 21)]
    members[15] = member(16, state="retrying", error=FULL)
    members[7] = member(8, state="importing", lag=5)
    view = StatusView(JournalView("sqlite x", 0, 9), (), tuple(members))
    *_, table, rest = fitted_blocks(view, moment_of(0), 8)
    assert [row[0] for row in table.rows] == ["edge-16", "edge-8", "edge-1", "edge-2", "edge-3"]  # type: ignore[union-attr]
    assert rest == "and 15 subscribers more: 15 current"
    assert len(fitted_blocks(view, moment_of(0), 30)) == 2


def test_what_a_terminal_shows_is_measured_in_its_lines_and_not_in_rows() -> None:
    view = StatusView(
        JournalView("x", 0, 9), (), tuple(member(number, state="retrying", error=FULL) for number in range(9))
    )

    def doubled(blocks: Any) -> int:
        return sum(1 if isinstance(block, str) else 1 + 2 * len(block.rows) for block in blocks)

    *_, table, rest = fitted_blocks(view, moment_of(0), 12, doubled)
    assert len(table.rows) == 4  # type: ignore[union-attr]
    assert rest == "and 5 subscribers more: 5 retrying"
    assert fitted_blocks(view, moment_of(0), 1, doubled)[-1] == "and 9 subscribers more: 9 retrying"


def test_subscribers_are_in_the_order_that_people_count_in() -> None:
    view = StatusView(JournalView("x", 0, 9), (), tuple(member(item) for item in (10, 2, 1)))
    assert [line.split()[0] for line in shown(view)[2:]] == ["edge-1", "edge-2", "edge-10"]


def test_lines_tell_what_changed_since_the_last_look() -> None:
    seen: dict[str, str] = {}
    first = StatusView(JournalView("x", 0, 9), (), (member(1), member(2, attempts=2)))
    assert list(changed_lines(first, seen)) == [
        "journal  next 9",
        "edge-1  current  position 9  lag 0",
        "edge-2  current  position 9  lag 0  attempt 2",
    ]
    assert list(changed_lines(first, seen)) == []
    second = StatusView(JournalView("x", 0, 10), (), (member(1), member(2, lag=1)))
    assert list(changed_lines(second, seen)) == ["journal  next 10", "edge-2  current  position 9  lag 1"]
    third = StatusView(JournalView("x", 0, 10), (), (member(1),))
    assert list(changed_lines(third, seen)) == ["edge-2  no longer listed"]
    assert list(changed_lines(second, seen)) == ["edge-2  current  position 9  lag 1"]


def test_a_watch_goes_on_when_the_agent_does_not_answer_for_a_while(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter(range(3))

    class Clock(status.SystemClock):
        def wait(self, *_: Any) -> bool:
            agent.failure = JournalUnavailableError("no answer") if next(waits, None) == 0 else None
            if next(waits, None) is None:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(status, "SystemClock", Clock)
    code, lines = run("status", "--watch", "--every", "0.1")
    assert code == 130
    assert [line[10:] for line in lines[1:3]] == [
        "edge-1  current  position 3  lag 0",
        "edge-2  retrying  position 0  lag 3  attempt 3  StorageFull: /news/a: no space left on device",
    ]
    assert lines[3].endswith("JournalUnavailable: no answer")


@pytest.mark.parametrize("output", ["table", "json"])
def test_watch_prints_a_lasting_failure_once_and_nothing_that_steers_a_terminal(
    run: Any, agent: Client, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    agent.subscribers["edge-2"].error = CauseView("Failed", "a\x1b[2J\n12:00:00  edge-9  current")
    waits = iter(range(4))

    class Clock(status.SystemClock):
        def wait(self, *_: Any) -> bool:
            agent.failure = JournalUnavailableError("no answer")
            if next(waits, None) is None:
                raise KeyboardInterrupt
            return False

    monkeypatch.setattr(status, "SystemClock", Clock)
    _, lines = run("status", "--watch", "--every", "0.1", "-o", output)
    assert sum("no answer" in line for line in lines) == 1
    assert not any("\x1b" in line or line.startswith("12:00:00") for line in lines)


def test_packages_before_a_failed_path_are_printed_with_an_agent(run: Any, agent: Client) -> None:
    agent.distribute("author", parse_request("ADD", ("/other",), request_id="id.1"))
    code, lines = run("publish", "/en", "/de", "--each", "--request-id", "id")
    assert (code, "  ADD /en" in lines[0]) == (2, True)
    assert "RequestConflict" in lines[1]


def view_of(number: int, **values: Any) -> DistributionView:
    return DistributionView("author", f"p-{number}", number, "ADD", **values)


def test_who_gave_up_one_of_several_packages_did_not_import_them() -> None:
    first = view_of(0, state="failed", imported=("a", "c"), failed=(FailureView("b", FULL),), removed=("c",))
    last = view_of(1, state="distributed", imported=("a", "b", "c"))
    found = merged([first, last])
    assert (found.state, found.imported, found.removed) == ("failed", ("a",), ("c",))
    assert found.failed == (FailureView("b", FULL),)
    assert merged([first, view_of(1, waiting=("a",))]).state == "queued"


def test_packages_of_one_command_are_merged_with_each_subscriber_once() -> None:
    staged, restored = NotImportedView("b", "staged", "golden"), NotImportedView("c", "before-reports")
    first = view_of(0, state="incomplete", imported=("a",), skipped=(staged,), unknown=(restored,), removed=("golden",))
    last = view_of(1, state="queued", imported=("b", "c", "golden"), waiting=("a",))
    found = merged([first, last])
    assert (found.state, found.imported, found.waiting) == ("queued", (), ("a",))
    assert (found.skipped, found.unknown, found.removed) == ((staged,), (restored,), ("golden",))
    last = view_of(1, state="distributed", imported=("a", "b", "c", "golden"))
    assert merged([first, last]).state == "incomplete"


SKIPPED = (NotImportedView("b", "staged", "golden"), NotImportedView("c", "staged", "golden"))
UNFOLLOWED = NotImportedView("d", "not-followed")


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"imported": ("a",)}, 0),
        ({"imported": ("a",), "skipped": (UNFOLLOWED,)}, 0),
        ({"imported": ("a",), "skipped": SKIPPED}, 1),
        ({"imported": ("a",), "removed": ("b",)}, 1),
        ({"imported": ("a",), "failed": (FailureView("b", FULL),)}, 1),
        ({"imported": ("a",), "unknown": (NotImportedView("b", "no-reports"),)}, 1),
        ({"imported": ("a",), "waiting": ("b",), "removed": ("c",)}, 1),
        ({"imported": ("a",), "waiting": ("b",)}, 3),
        ({}, 3),
        ({"skipped": (UNFOLLOWED,)}, 3),
    ],
)
def test_a_wait_ends_with_0_only_if_all_that_follow_imported_it(facts: dict[str, Any], code: int) -> None:
    with nullcontext() if code == 0 else pytest.raises(typer.Exit) as ended:
        end_by([view_of(0, imported=("a",)), view_of(1, **facts)])
    assert code == (0 if ended is None else ended.value.exit_code)


def test_skipped_and_unknown_are_said_with_their_reasons() -> None:
    unknown = (NotImportedView("e", "before-reports"), NotImportedView("f", "no-reports"))
    view = view_of(1, imported=("a",), skipped=(*SKIPPED, UNFOLLOWED), unknown=unknown)
    assert list(followed_lines(Followed(view, 2.0, {}))) == [
        "imported by 1/5 in 2.0 s",
        "  skipped by 2: b, c (staged behind golden, which did not import it)",
        "  unknown of 1: e (the package is older than the subscriber's reports: restored, or gap accepted)",
        "  unknown of 1: f (this kind of subscriber does not report what it skips)",
    ]


def test_many_who_are_waited_for_are_told_by_their_states() -> None:
    names = tuple(f"edge-{number}" for number in range(1, 9))
    states = {**dict.fromkeys(names, "stopped"), "edge-1": "importing"}
    lines = list(followed_lines(Followed(view_of(1, waiting=names), 2.0, states)))
    assert lines == [
        "imported by 0/8 after waiting 2.0 s",
        "  not yet by 1: importing: edge-1",
        "  not yet by 7: stopped: edge-2, edge-3, edge-4, edge-5 and 3 more",
    ]


def test_a_plan_says_who_cannot_import() -> None:
    members = [
        SubscriberStatusView("edge-1", "current", lag=0),
        SubscriberStatusView("edge-2", "importing", lag=5),
        SubscriberStatusView("typo", "stopped", error=CauseView("JournalIncomplete", "the journal starts at 2")),
    ]
    assert list(_member_lines(members)) == [
        "edge-1: up to date; edge-2: 5 packages behind",
        "typo: stopped, no position: JournalIncomplete: the journal starts at 2",
    ]
    assert list(_member_lines([])) == ["no subscriber is known"]

"""`subscribe`, `status` and `errors`: subscribers from the command line, in this process and in their own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, SlingId
from mailboat.model.messages import DiscoveryMessage, TopicRole
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.messages import encode_message

LARGE = bytes(range(256)) * 1000


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "en").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Home</h1>")
    (folder / "en" / "index.html").write_text("<h1>English</h1>")
    (folder / "picture.png").write_bytes(LARGE)
    return folder


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(boat: Any) -> Iterator[Start]:
    """Starts `mailboat` in a process, which is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def run(*words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "mailboat.cli", "--home", str(boat.home), *map(str, words)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def pipe_of(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def until_current(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Read the progress of a subscriber that prints JSON lines until it has nothing to do."""
    for line in pipe_of(process):
        progress: dict[str, Any] = json.loads(line)
        if progress["state"] == "current":
            return progress
    raise AssertionError("it ended before it was current")


@pytest.mark.parametrize("kind", ["files", "generations", "sqlite"])
def test_a_subscriber_imports_into_every_kind_of_target(boat: Any, site: Path, tmp_path: Path, kind: str) -> None:
    boat.do("publish", site, "/")
    target = f"{kind}:{tmp_path / 'target'}"
    ran = boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    assert ran.lines == ["web: 1 package imported, at offset 1"]
    assert boat.do("content", "diff", site, target).lines == ["no difference"]


def test_progress_is_plain_lines_where_there_is_no_terminal(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    ran = boat.do("subscribe", "web", "--into", f"sqlite:{tmp_path / 'db'}", "--until", "caught-up")
    assert "\x1b" not in ran.err
    assert "\r" not in ran.err
    assert any(line.startswith("web  current    1/1  1 imported") for line in ran.err.splitlines())


def test_progress_for_programs_is_json_lines(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    ran = boat.do("subscribe", "web", "--into", f"sqlite:{tmp_path / 'db'}", "--until", "caught-up", "-o", "json")
    last = json.loads(ran.lines[-1])
    assert (last["subscriber"], last["state"], last["position"], last["lag"]) == ("web", "stopped", 1, 0)
    assert {"imported", "failed", "skipped", "put", "removed", "content_bytes", "attempts", "error"} <= set(last)


def test_the_target_is_remembered(boat: Any, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    boat.do("subscribe", "web", "--into", "files:web", "--until", "caught-up")
    boat.do("publish", site, "/")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    boat.do("subscribe", "web", "--until", "caught-up")
    assert (tmp_path / "web" / "index.html").read_text() == "<h1>Home</h1>"


def test_a_new_subscriber_needs_a_target(boat: Any) -> None:
    ran = boat.run("subscribe", "web")
    assert (ran.code, "web has no target yet" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("web", "--into", "nfs:/srv"),
        ("web", "--into", "files:"),
        ("web", "--until", "sunday", "--into", "files:x"),
        ("web", "--max-retries", "few", "--into", "files:x"),
        ("two words", "--into", "files:x"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_made(
    boat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert boat.run("subscribe", *words).code == 2
    assert not (tmp_path / "x").exists()
    assert boat.json("status")["subscribers"] == []


def test_a_target_belongs_to_one_subscriber(boat: Any, tmp_path: Path) -> None:
    target = f"sqlite:{tmp_path / 'db'}"
    boat.do("subscribe", "web", "--into", target, "--until", "caught-up")
    ran = boat.run("subscribe", "other", "--into", target, "--until", "caught-up")
    assert (ran.code, "error: TargetOwned:" in ran.err) == (5, True)
    assert [subscriber["name"] for subscriber in boat.json("status")["subscribers"]] == ["web"]


def test_a_subscriber_has_one_target_until_it_is_forgotten(
    boat: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    boat.do("subscribe", "web", "--into", "files:one", "--until", "caught-up")
    ran = boat.run("subscribe", "web", "--into", "files:two", "--until", "caught-up")
    assert (ran.code, f"web already has the target files:{tmp_path / 'one'}" in ran.err) == (2, True)
    assert "mailboat subscribers forget web" in ran.err
    assert not (tmp_path / "two").exists()
    boat.do("subscribe", "web", "--into", f"files:../{tmp_path.name}/one", "--until", "caught-up")
    boat.do("subscribers", "forget", "web")
    boat.do("subscribe", "web", "--into", "files:two", "--until", "caught-up")
    shutil.rmtree(tmp_path / "two")
    boat.do("subscribe", "web", "--into", "files:three", "--until", "caught-up")
    assert [subscriber["target"] for subscriber in boat.json("status")["subscribers"]] == [
        f"files:{tmp_path / 'three'}"
    ]


def test_a_subscriber_runs_once_on_a_home(boat: Any, start: Start, tmp_path: Path) -> None:
    process = start("subscribe", "web", "--into", f"files:{tmp_path / 'one'}", "-o", "json")
    until_current(process)
    (boat.home / "subscribers/web.yaml").unlink()
    ran = boat.run("subscribe", "web", "--into", f"files:{tmp_path / 'two'}", "--until", "caught-up")
    assert (ran.code, "error: SubscriberBusy: a subscriber web runs on this home" in ran.err) == (5, True)
    process.kill()
    process.wait()
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'two'}", "--until", "caught-up")


def test_only_the_publishers_that_are_followed_are_imported(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/en", "--publisher", "english")
    boat.do("publish", site, "/index.html", "--publisher", "other", "--new-publisher")
    words = ("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert boat.do(*words, "--follow", "english").lines == ["web: 1 package imported, at offset 2"]
    assert not (tmp_path / "web" / "index.html").exists()


def test_sigterm_ends_a_subscriber_cleanly(boat: Any, start: Start, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    process = start("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "-o", "json")
    assert until_current(process)["position"] == 1
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["state"] == "stopped"
    assert [subscriber["state"] for subscriber in boat.json("status")["subscribers"]] == ["stopped"]


def test_ctrl_c_ends_a_subscriber_cleanly(start: Start, tmp_path: Path) -> None:
    process = start("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "-o", "json")
    until_current(process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, "Traceback" in err) == (130, False)


def test_a_running_subscriber_is_seen_and_waited_for(boat: Any, start: Start, site: Path, tmp_path: Path) -> None:
    process = start("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "-o", "json")
    until_current(process)
    ran = boat.do("publish", site, "/", "--wait", "120")
    assert ran.lines[-1].startswith("imported by 1/1 in ")
    (seen,) = boat.json("status")["subscribers"]
    assert (seen["name"], seen["next_offset"], seen["lag"]) == ("web", 1, 0)
    busy = boat.run("subscribe", "web", "--until", "caught-up")
    assert (busy.code, "error: TargetBusy:" in busy.err) == (5, True)


def test_a_trimmed_journal_stops_a_subscriber_until_a_person_accepts_the_gap(
    boat: Any, site: Path, tmp_path: Path
) -> None:
    boat.do("publish", site, "/en")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    boat.do("publish", site, "/index.html")
    boat.do("publish", site, "/picture.png")
    boat.do("journal", "truncate", "--before", "2", "--yes")
    ran = boat.run("subscribe", "web", "--until", "caught-up")
    assert (ran.code, "error: JournalTrimmed:" in ran.err) == (6, True)
    (seen,) = boat.json("status")["subscribers"]
    assert (seen["state"], seen["next_offset"], seen["error"]["code"]) == ("stopped", 1, "JournalTrimmed")
    assert "JournalTrimmed" in boat.do("status").out
    boat.do("subscribe", "web", "--accept-gap", "--until", "caught-up")
    assert (tmp_path / "web" / "picture.png").exists()
    assert not (tmp_path / "web" / "index.html").exists()


def next_steps(errors: str) -> dict[str, str]:
    """The commands that an error prints, by their first word and without `mailboat`."""
    commands = re.findall(r"mailboat (\S+)(.*?)(?:   \(.*|$)", errors, re.MULTILINE)
    return {name: f"{name}{rest}" for name, rest in reversed(commands)}


def test_an_unknown_followed_publisher_is_warned_of_and_widening_refused(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/")
    into = f"files:{tmp_path / 'x'}"
    typo = boat.do("subscribe", "x", "--into", into, "--follow", "autor", "--until", "caught-up")
    assert "warning: no package of autor was found; publishers that were found: author" in typo.err
    assert "packages of publishers that are not followed were skipped: author" in typo.err
    assert "FOLLOWS" in boat.do("status").lines[-2]
    ran = boat.run("subscribe", "x", "--follow", "author", "--until", "caught-up")
    assert (ran.code, "error: FollowWidened: x follows author now" in ran.err) == (6, True)
    steps = next_steps(ran.err)
    fresh = steps["subscribe"].replace("NEW-NAME", "y").replace("TARGET", f"files:{tmp_path / 'y'}")
    made = boat.do(*fresh.split(), "--until", "caught-up")
    assert "warning" not in made.err
    assert boat.do("content", "diff", site, f"files:{tmp_path / 'y'}").lines == ["no difference"]
    boat.do("publish", site, "/")
    boat.do("subscribe", "x", "--accept-gap", "--until", "caught-up")
    assert boat.do("content", "diff", site, into).lines == ["no difference"]


def test_a_new_subscriber_of_a_trimmed_journal_stops_until_the_whole_tree_is_there_again(
    boat: Any, site: Path, tmp_path: Path
) -> None:
    boat.do("publish", site, "/en")
    boat.do("publish", site, "/index.html")
    boat.do("journal", "truncate", "--before", "1", "--yes")
    late = ("subscribe", "late", "--into", f"files:{tmp_path / 'late'}", "--until", "caught-up")
    ran = boat.run(*late)
    assert (ran.code, "error: JournalIncomplete:" in ran.err) == (6, True)
    assert "JournalIncomplete" in boat.do("status").out
    assert not (tmp_path / "late" / "index.html").exists()
    steps = next_steps(ran.err)
    boat.do(*steps["publish"].replace("SOURCE", str(site)).split())
    boat.do(*steps["subscribe"].split(), "--until", "caught-up")
    assert boat.do("content", "diff", site, f"files:{tmp_path / 'late'}").lines == ["no difference"]
    boat.do("publish", site, "/picture.png")
    boat.do("subscribe", "late", "--until", "caught-up")


@pytest.fixture
def given_up(boat: Any, site: Path, tmp_path: Path) -> Path:
    """A subscriber that gave a package up, since its blob was away; where the blob should be."""
    boat.do("publish", site, "/en")
    boat.do("publish", site, "/picture.png")
    (blob,) = (path for path in (boat.home / "blobs" / "sha256").rglob("*") if path.is_file())
    shutil.move(blob, tmp_path / "away")
    ran = boat.run(
        "subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up", "--max-retries", "0"
    )
    assert (ran.code, ran.lines) == (
        1,
        ["web: 1 package imported, 1 given up: see mailboat errors ls web, at offset 2"],
    )
    assert any("attempt 1 failed  BlobMissing" in line for line in ran.err.splitlines())
    return blob


def test_what_was_given_up_is_listed_and_explained(boat: Any, given_up: Path) -> None:
    (row,) = boat.json("errors", "ls")
    assert (row["subscriber"], row["offset"], row["paths"], row["error"]["code"]) == (
        "web",
        1,
        ["/picture.png"],
        "BlobMissing",
    )
    assert boat.do("errors", "ls", "web", "-o", "name").lines == ["web/1"]
    table = boat.do("errors", "ls").lines
    assert table[0].split() == ["SUBSCRIBER", "OFFSET", "STATUS", "ATTEMPTS", "PATHS", "ERROR"]
    assert "BlobMissing: " in table[1]
    assert set(row["error"]) == {"code", "message", "path", "truncated"}
    trace = boat.json("errors", "show", "web", "1")["error"]["trace"]
    assert row["error"]["message"] in trace.splitlines()[-1]
    shown = boat.do("errors", "show", "web", "1").lines
    assert shown[1] == "paths     /picture.png"
    assert shown[-1] == "next      mailboat errors redrive web 1"


def test_what_was_given_up_is_imported_once_its_cause_is_gone(
    boat: Any, given_up: Path, site: Path, tmp_path: Path
) -> None:
    shutil.move(tmp_path / "away", given_up)
    (line,) = boat.do("errors", "redrive", "web", "1").lines
    assert line.startswith("web: sent, no answer yet; the command is ")
    ran = boat.do("subscribe", "web", "--until", "caught-up")
    assert ran.lines == ["web: 1 re-driven, at offset 2"]
    assert "1 re-driven" in ran.err
    assert boat.do("errors", "ls").lines == ["nothing was given up"]
    assert (tmp_path / "web" / "picture.png").read_bytes() == LARGE


def test_what_still_fails_stays_given_up(boat: Any, given_up: Path) -> None:
    boat.do("errors", "redrive", "web", "--all")
    ran = boat.run("subscribe", "web", "--until", "caught-up")
    assert (ran.code, ran.lines[0].startswith("web: 1 still given up: BlobMissing: ")) == (1, True)
    assert "1 still given up" in ran.err
    (row,) = boat.json("errors", "ls")
    assert row["error"]["code"] == "BlobMissing"


@pytest.mark.parametrize(
    "words",
    [
        ("redrive", "web"),
        ("redrive", "web", "1", "--all"),
        ("redrive", "web", "7"),
        ("redrive", "nobody", "1"),
        ("show", "web", "7"),
        ("list", "nobody"),
    ],
)
def test_errors_commands_refuse_what_is_not_there(boat: Any, given_up: Path, words: tuple[str, ...]) -> None:
    assert boat.run("errors", *words).code == 2


def test_waiting_tells_who_gave_a_package_up(boat: Any, start: Start, site: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = type(boat)(tmp_path / "elsewhere")
    other.do("init")
    (other.home / "journal.db").unlink()
    (other.home / "journal.db").symlink_to(boat.home / "journal.db")  # one log, but blobs that no one shares
    until_current(start("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--max-retries", "0", "-o", "json"))
    ran = other.run("publish", site, "/", "--wait", "120")
    assert (ran.code, ran.lines[-2]) == (1, ran.lines[-2])
    assert ran.lines[-1].startswith("  given up by web: BlobMissing: ")


def test_status_of_an_empty_home_says_so(boat: Any) -> None:
    lines = boat.do("status").lines
    assert lines[0].startswith("journal    sqlite ")
    assert lines[1:] == ["publisher  author   queues idle   nothing published lately", "no subscriber is known"]


def append_nonsense(boat: Any) -> None:
    """What another program, or a broken one, may write to the topics that everyone reads."""
    with Workspace(Home(boat.home)) as workspace:
        headers = encode_message(DiscoveryMessage(SlingId("0" * 36), AgentName("web"), ()))[0]
        nonsense = [NewRecord(b"?", headers), NewRecord(b"?")]
        for role in (TopicRole.DISCOVERY, TopicRole.STATUS):
            workspace.journal.append(workspace.topic(role), nonsense)


def test_status_counts_announcements_that_it_cannot_understand(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    assert boat.json("status")["unreadable_announcements"] == 0
    append_nonsense(boat)
    status = boat.json("status")
    assert (status["unreadable_announcements"], status["subscribers"][0]["state"]) == (2, "stopped")
    assert boat.do("status").lines[2] == "discovery  2 messages can't be understood: see mailboat journal verify"
    assert boat.json("plan", site, "/")["behind"] == {"web": 0}


def test_waiting_goes_on_over_answers_that_cannot_be_understood(
    boat: Any, start: Start, site: Path, tmp_path: Path
) -> None:
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    process = start("publish", site, "/", "--wait", "120", "-o", "json")
    wait_until(lambda: boat.json("journal", "topics")[0]["next_offset"] == 1, "the publisher to wait")
    append_nonsense(boat)
    boat.do("subscribe", "web", "--until", "caught-up")
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["followers"]["imported"] == ["web"]


def test_status_looks_again_until_it_is_stopped(boat: Any, start: Start, site: Path) -> None:
    process = start("status", "--watch", "--every", "0.1")
    assert next(pipe_of(process))[10:] == "journal  next 0\n"
    boat.do("publish", site, "/index.html")
    assert next(pipe_of(process))[10:] == "journal  next 1\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (130, "stopped by Ctrl-C\n")


def test_a_pipe_that_closes_is_no_error(start: Start) -> None:
    process = start("status", "--watch", "--every", "0.1", "-o", "json")
    assert json.loads(next(pipe_of(process)))["subscribers"] == []
    pipe_of(process).close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(PATIENCE_SECONDS) == 141


def test_a_restart_loads_neither_typer_nor_rich_nor_the_engine_of_jobs() -> None:
    """They cost half of what a restart with nothing to do costs: see SEAMS in tests/repo/test_structure.py."""
    check = (
        "import sys, mailboat.cli.main, mailboat.cli.subscriber_run;"
        "print(*sorted({'typer', 'rich', 'subprocess', 'yaml', 'mailboat.jobs.job_worker'} & sys.modules.keys()))"
    )
    loaded = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"

"""The demo, as a user runs it: agents as processes, a real kill, a mistake, and targets that equal the source."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from mailboat.cli.demo import demo_run
from mailboat.cli.demo.demo_command import MADE, MARK, _new_home
from mailboat.cli.demo.demo_state import AUTHOR, GOLDEN, DemoProcess, DemoState, SubscriberProgress
from mailboat.cli.demo.portions import Portion
from mailboat.cli.demo.screen import LineScreen
from mailboat.clock import SystemClock
from mailboat.errors import DemoFailedError, MailboatError, UsageError
from support.fake_control import FakeControl, FakeSubscriber

PROGRAM = [sys.executable, "-m", "mailboat.cli"]


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False, timeout=250
    )


def left_running(folder: Path) -> list[str]:
    """Processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [item for item in found if str(folder) in item and "agent run" in item]


@pytest.mark.long("trees-and-demos")
@pytest.mark.costly("the demo itself: twenty subscribers, killed and started again")
def test_demo_without_source_succeeds_and_its_next_commands_work(tmp_path: Path) -> None:
    done = run("demo", "--seconds", "4", "--home", tmp_path / "boat", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        f"Publishing {tmp_path}/boat/site (100 files, 1.6 MB)",
        f"to 20 subscribers through {tmp_path}/boat",
        "golden checks each package first; up to 6 of the others share a process",
    ]
    assert lines[3] == ""
    assert re.fullmatch(r"Watch it in a browser once author is up: http://127\.0\.0\.1:\d+/", lines[4])
    story = [line[9:] for line in lines if re.match(r" *\d+\.\d s  ", line)]
    for happening in (
        "group-2  killed (SIGKILL) with 6 subscribers",
        "author   DELETE /images, by mistake",
        "golden   BLOCKED: its check refuses DELETE /images; 19 wait behind it",
        "golden   1 package dropped through the API (queues remove)",
    ):
        assert story.count(happening) == 1, done.stdout
    opening = story[: story.index("group-2  killed (SIGKILL) with 6 subscribers")]
    address = re.compile(r"author +ready: API and dashboard at http://127\.0\.0\.1:\d+, pid \d+")
    assert any(map(address.fullmatch, opening)), opening
    assert any(line.startswith("group-2  again ready: 6 subscribers") for line in story)
    assert any("joined late, at " in line for line in story)
    assert "\x1b" not in done.stdout
    at = next(number for number, line in enumerate(lines) if line.startswith("SUBSCRIBER"))
    rows = [line.split() for line in lines[at + 1 : at + 21]]
    assert [row[0] for row in rows] == ["golden", *(f"edge-{number}" for number in range(1, 20))]
    assert {(row[2], row[5], row[8:][0]) for row in rows} == {("40", "0", "=")}
    assert [row[6] for row in rows] == ["0"] * 7 + ["1"] * 6 + ["0"] * 7
    assert max(map(len, lines[at : at + 24])) <= 80
    assert lines[at + 22].startswith("Nothing lost, nothing twice: 40 packages to 20 subscribers in ")
    assert lines[at + 23] == "The mistaken delete reached no subscriber."
    assert left_running(tmp_path) == []

    commands = [shlex.split(line)[1:] for line in lines[at + 26 :] if not line.startswith("  #")]
    for words in commands[:3]:
        after = run(*words, folder=tmp_path)
        assert after.returncode == 0, after.stderr
    assert "state      queued" not in run(*commands[1], folder=tmp_path).stdout
    assert "dropped    1: golden" in run(*commands[1], folder=tmp_path).stdout
    agent = subprocess.Popen([*PROGRAM, *commands[3]], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    assert agent.stdout.readline().startswith("ready: publisher author; dashboard and API at ")
    looked = run(*[word for word in commands[4] if word != "--watch"], folder=tmp_path)
    agent.terminate()
    agent.communicate(timeout=250)
    assert (looked.returncode, agent.returncode, "golden" in looked.stdout) == (0, 0, True)


def test_what_the_demo_names_next_works_when_pasted_into_a_shell_that_has_no_mailboat(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only.txt").write_text("x")
    makes_path = {**os.environ, "PATH": f"{tmp_path}/.venv/bin:{os.environ['PATH']}"}
    called = [".venv/bin/mailboat", "demo", "site", "--subscribers", "1", "--seconds", "0", "-o", "json"]
    done = subprocess.run(called, cwd=tmp_path, env=makes_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["next"]
    plain = {**os.environ, "PATH": os.defpath}
    pasted = subprocess.run(
        ["/bin/sh", "-e"],
        input="\n".join(lines[:2]),
        cwd=tmp_path,
        env=plain,
        capture_output=True,
        text=True,
        check=False,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert all(line.startswith(".venv/bin/mailboat ") for line in lines)


def test_a_demo_that_is_ended_leaves_nothing_running(tmp_path: Path) -> None:
    words = [*PROGRAM, "demo", "--home", str(tmp_path / "boat"), "--subscribers", "3"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    opening = list(itertools.takewhile(lambda line: "ready" not in line, iter(process.stdout.readline, "")))
    address = re.compile(r"Watch it in a browser once author is up: http://127\.0\.0\.1:\d+/\n")
    assert any(map(address.fullmatch, opening)), opening
    process.terminate()
    process.communicate(timeout=250)
    assert process.returncode == 128 + signal.SIGTERM
    assert left_running(tmp_path) == []


def test_demo_on_a_terminal_keeps_its_agents_until_enter(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only.txt").write_text("x")
    words = [*PROGRAM, "demo", "site", "--subscribers", "1", "--seconds", "0"]
    outer, inner = os.openpty()
    with subprocess.Popen(words, cwd=tmp_path, stdin=inner, stdout=inner, stderr=inner) as demo:
        os.close(inner)
        shown = printed_until(outer, "Press Enter or Ctrl-C here to end the demo.")
        printed = next(line for line in shown.splitlines() if " publish /only.txt" in line)
        published = run(*shlex.split(printed)[1:], folder=tmp_path)
        os.write(outer, b"\n")
        assert "All agents have ended." in printed_until(outer, "Next:")
        assert demo.wait(250) == 0
    os.close(outer)
    assert re.search(r"All agents still run, with the dashboard at http://127\.0\.0\.1:\d+/", shown)
    assert re.search(r"^imported by 1/1 in ", published.stdout, re.MULTILINE), published.stderr
    assert left_running(tmp_path) == []


def printed_until(terminal: int, end: str) -> str:
    """What a terminal shows, up to a text."""
    shown = ""
    while end not in shown:
        shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


@pytest.mark.long("trees-and-demos")
def test_the_demo_runs_again_in_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only.txt").write_text("x")
    for _ in range(2):
        done = run(
            "demo", "site", "--home", "boat", "--subscribers", "1", "--seconds", "0", "-o", "json", folder=tmp_path
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["packages"], found["equal"], found["subscribers"][0]["restarts"]) == (1, True, 0)


def test_a_directory_with_odd_entries_is_published_without_them(tmp_path: Path) -> None:
    site = tmp_path / "odd site"
    (site / "empty" / "deep").mkdir(parents=True)
    (site / "ünï [bold]").mkdir()
    (site / "ünï [bold]" / "it's $HOME").write_text("x")
    (site / "zero").write_text("")
    (site / "ZERO").write_text("differs in case only")
    (site / "large.bin").write_bytes(bytes(3_000_000))
    (site / "dead").symlink_to("/nowhere")
    os.mkfifo(site / "pipe")
    done = run("demo", site, "--subscribers", "2", "--seconds", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "  2 entries left out that content can't hold, such as:\n" in done.stdout
    assert done.stdout.count("= source") == 2


@pytest.mark.parametrize(
    ("words", "name"),
    [(("/does/not/exist",), "SourceMissing"), (("empty",), "Usage"), (("full", "--home", "full"), "Usage")],
)
def test_the_demo_refuses_what_it_cannot_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_boat: Any, words: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("not a demo's")
    ran = new_boat.run("demo", *words)
    assert (ran.code, ran.err.split(":")[1].strip()) == (2, name)
    assert (tmp_path / "full" / "mine.txt").read_text() == "not a demo's"
    assert "make demo" not in ran.err  # an installed package has no make


def test_home_of_a_demo_that_runs_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_boat: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boat" / "site").mkdir(parents=True)
    (tmp_path / "boat" / "site" / "a.html").write_text("changed by hand")
    mark = tmp_path / "boat" / MARK
    mark.write_bytes(MADE)
    with mark.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # as a demo that stays until Enter
        ran = new_boat.run("demo", "--home", "boat")
    assert (ran.code, "another demo runs in boat" in ran.err) == (2, True), ran.err
    ran = new_boat.run("demo", "boat/site", "--home", "boat")
    assert (ran.code, "boat/site is in boat, where the demo keeps its own files" in ran.err) == (2, True), ran.err
    assert (tmp_path / "boat" / "site" / "a.html").read_text() == "changed by hand"
    ran = new_boat.run("demo", ".", "--home", "new")
    assert (ran.code, "new, where the demo keeps its own files, is in ." in ran.err) == (2, True), ran.err


def test_a_folder_with_a_file_that_is_called_as_the_mark_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_boat: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    (project / MARK).write_text("#!/bin/sh\nexec ./server --demo\n")
    (project / "server.py").write_text("a year of work")
    ran = new_boat.run("demo", "--home", "project")
    assert (ran.code, "project is not empty, and not an earlier demo" in ran.err) == (2, True), ran.err
    assert sorted(file.name for file in project.iterdir()) == [MARK, "server.py"]


def test_a_folder_that_can_not_be_made_is_no_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_boat: Any
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "boat")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mailboat.cli.demo.demo_command.Path.mkdir", fail)
    ran = new_boat.run("demo", "--home", "boat")
    assert (ran.code, "StorageReadOnly: boat can't be written" in ran.err) == (77, True), ran.err


def test_a_demo_that_ends_while_it_clears_its_folder_can_be_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / MARK).write_bytes(MADE)

    def interrupted(folder: Path) -> None:
        (folder / MARK).unlink(missing_ok=True)  # in no order
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, ExitStack() as held:
        patched.setattr("mailboat.cli.demo.demo_command.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _new_home(tmp_path, {}, held)
    with ExitStack() as held:
        assert _new_home(tmp_path, {}, held).path == tmp_path
    assert not (tmp_path / "targets").exists()


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """Plays a script whose processes are given by their commands."""

    def played(commands: dict[str, list[str]], control: Any, is_over: Callable[[], bool] | None = None) -> DemoState:
        agents = [DemoProcess(AUTHOR), DemoProcess(GOLDEN, [SubscriberProgress(GOLDEN, "files:x")])]
        plan = demo_run.DemoPlan(
            home=tmp_path,
            portions=[Portion(deep=("/a",))],  # type: ignore[arg-type]
            mistake="/a",
            agents=agents,
            pace_seconds=0.0,
            block_seconds=0.0,
            command=commands.__getitem__,
            control=control,
        )
        run = demo_run.DemoRun(plan, LineScreen(sys.stderr), SystemClock())
        with run.play() as state:
            if is_over is not None:
                run.stay(is_over)
        return state

    return played


READY = [
    sys.executable,
    "-c",
    """import json, os, sys, time
print(json.dumps({"url": "http://x", "pid": 1}), flush=True)
time.sleep(600)""",
]
WAITING = """
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
sys.exit(3)"""
FAILING = [sys.executable, "-c", "import sys; sys.exit('no such luck')"]


def test_a_process_that_ends_by_itself_fails_the_demo_with_its_last_words(play: Any) -> None:
    with pytest.raises(DemoFailedError, match="golden ended with exit code 1") as caught:
        play({AUTHOR: READY, GOLDEN: FAILING}, FakeControl(FakeSubscriber(GOLDEN)))
    assert caught.value.where["output"] == "no such luck"


def test_a_publisher_that_refuses_fails_the_demo(play: Any) -> None:
    control = FakeControl(FakeSubscriber(GOLDEN))
    control.failure = UsageError("there is no /a")
    with pytest.raises(MailboatError, match="/a"):
        play({AUTHOR: READY, GOLDEN: READY}, control)


def test_a_demo_in_which_nothing_moves_is_given_up(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "STANDSTILL_SECONDS", 1.0)
    with pytest.raises(DemoFailedError, match="nothing moved"):
        play({AUTHOR: READY, GOLDEN: READY}, FakeControl(FakeSubscriber(GOLDEN, next_offset=0)))


def test_a_process_that_does_not_end_well_fails_the_demo(play: Any) -> None:
    with pytest.raises(DemoFailedError, match="author ended with exit code -15 after SIGTERM"):
        play({AUTHOR: READY, GOLDEN: READY}, FakeControl(FakeSubscriber(GOLDEN, next_offset=1)))


def test_a_demo_that_stays_reports_an_agent_that_ends(
    play: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown, stays = "", tmp_path / "stays"

    def is_over() -> bool:
        nonlocal shown
        stays.touch()
        shown += capsys.readouterr().err
        return "golden   ended with exit code 3" in shown

    brief = [*READY[:2], READY[2].replace("time.sleep(600)", WAITING), str(stays)]
    with pytest.raises(DemoFailedError, match="author ended with exit code -15"):
        play({AUTHOR: READY, GOLDEN: brief}, FakeControl(FakeSubscriber(GOLDEN, next_offset=1)), is_over)


def test_a_demo_ended_by_ctrl_c_allows_agents_that_got_it_too(play: Any) -> None:
    polite = [*READY[:2], "import signal; signal.signal(15, lambda *_: sys.exit(130)); " + READY[2]]
    polite[2] = polite[2].replace("import signal;", "import signal, sys;")
    play({AUTHOR: polite, GOLDEN: polite}, FakeControl(FakeSubscriber(GOLDEN, next_offset=1)))

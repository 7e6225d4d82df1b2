"""`status` of subscribers that do not run: what they would stop in, and what they gave up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from mailboat.testing.wait import PATIENCE_SECONDS


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.html").write_text(f"<h1>{number}</h1>")
    (folder / "picture.png").write_bytes(bytes(range(256)) * 1000)
    return folder


@pytest.fixture
def followed(boat: Any, site: Path, tmp_path: Path) -> Any:
    """A home with a subscriber that has imported one package; another package was published since."""
    boat.do("publish", site, "/0.html")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    boat.do("publish", site, "/1.html")
    return boat


def state_of(boat: Any) -> tuple[Any, ...]:
    (seen,) = boat.json("status")["subscribers"]
    return seen["state"], seen["next_offset"], seen["lag"], seen["error"] and seen["error"]["code"]


def test_a_position_that_fits_the_journal_is_no_error(followed: Any) -> None:
    assert state_of(followed) == ("stopped", 1, 1, None)


def test_a_journal_that_lost_its_end_is_seen_before_an_import(followed: Any, site: Path, tmp_path: Path) -> None:
    shutil.copytree(followed.home, tmp_path / "kept", ignore=shutil.ignore_patterns("*.wake"))
    followed.do("publish", site, "/2.html")
    followed.do("subscribe", "web", "--until", "caught-up")
    shutil.rmtree(followed.home)
    shutil.copytree(tmp_path / "kept", followed.home)
    assert state_of(followed) == ("stopped", 3, None, "JournalShorter")


def test_a_trimmed_journal_is_seen_before_a_subscriber_runs(followed: Any, site: Path) -> None:
    followed.do("publish", site, "/2.html")
    followed.do("journal", "truncate", "--before", "2", "--yes")
    assert state_of(followed) == ("stopped", 1, 2, "JournalTrimmed")
    assert "JournalTrimmed: web is at offset 1" in followed.do("status").out


def test_another_journal_is_seen_before_a_subscriber_runs(followed: Any, command_line: Any, tmp_path: Path) -> None:
    other = command_line(tmp_path / "other")
    other.do("init")
    shutil.copytree(followed.home / "subscribers", other.home / "subscribers", dirs_exist_ok=True)
    assert state_of(other)[3] == "JournalReplaced"


def lose_journal(home: Path) -> None:
    for file in home.glob("journal.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()


def test_a_lost_journal_is_made_again_only_when_asked_for(followed: Any, site: Path) -> None:
    lose_journal(followed.home)
    command = f"mailboat --home {followed.home} init --new-journal"
    lost = followed.run("status")
    assert (lost.code, "error: JournalMissing:" in lost.err, command in lost.err) == (2, True, True)
    refused = followed.run("init")
    assert (refused.code, "error: HomeExists:" in refused.err, command in refused.err) == (2, True, True)
    assert "JournalReplaced" in followed.do("init", "--new-journal").err
    assert state_of(followed)[3] == "JournalReplaced"
    again = followed.run("subscribe", "web", "--until", "caught-up")
    assert (again.code, "error: JournalReplaced:" in again.err) == (6, True)
    assert "--accept-gap" not in again.err, "that would not help"


def test_queues_of_a_home_are_those_of_its_own_publisher(new_boat: Any) -> None:
    new_boat.home.mkdir()
    (new_boat.home / "mailboat.yaml").write_text("agents: {publishers: [{name: news}]}\n")
    new_boat.do("init")
    assert new_boat.do("queues", "ls").out == "news has no queues\n"
    (new_boat.home / "mailboat.yaml").write_text("agents: {publishers: [{name: news}, {name: sport}]}\n")
    ran = new_boat.run("queues", "ls")
    assert (ran.code, "--publisher NAME, one of: news, sport" in ran.err) == (2, True)


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_a_new_journal_never_takes_the_place_of_another(boat: Any, suffix: str) -> None:
    for file in boat.home.glob("journal.db*"):
        file.rename(file.with_name(f"kept-{file.name}"))
    (boat.home / f"journal.db{suffix}").write_bytes(b"?")
    ran = boat.run("init", "--new-journal")
    assert (ran.code, "error: HomeExists:" in ran.err) == (2, True)
    assert (boat.home / f"journal.db{suffix}").read_bytes() == b"?"
    ran = boat.run("init", "--new-journal", "--kafka", "broker:9092")
    assert (ran.code, "omit --kafka" in ran.err) == (2, True)


def test_packages_given_up_are_counted(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/picture.png")
    shutil.rmtree(boat.home / "blobs" / "sha256")
    boat.run("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up", "--max-retries", "0")
    assert [subscriber["given_up"] for subscriber in boat.json("status")["subscribers"]] == [1]
    assert boat.do("status").lines[-1].endswith("1 given up: see mailboat errors ls web")


def test_a_terminal_is_shown_a_table_that_changes_in_place(boat: Any) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    words = [sys.executable, "-m", "mailboat.cli", "--home", str(boat.home), "status", "--watch", "--every", "0.1"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    try:
        while shown.count(b"no subscriber is known") < 3:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # what a terminal says whose other end is closed
            while more := os.read(ours, 65536):
                shown += more
        code = process.wait(timeout=PATIENCE_SECONDS)  # it lets go of the terminal before it has ended
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert code == 130
    before, _, after = shown.partition(b"\x1b[?1049l")
    assert b"\x1b[?1049h" in before
    assert after.count(b"no subscriber is known") == 1


def test_keys_filter_and_end_a_watch(followed: Any) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 160, 0, 0))
    before = termios.tcgetattr(theirs)
    words = [sys.executable, "-m", "mailboat.cli", "--home", str(followed.home), "status", "--watch", "--sort", "lag"]
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    shown = b""
    try:
        for awaited, keys in ((b"sort lag", b"/nobody\n"), (b"no subscriber is known", b"\x1b"), (b"web", b"q")):
            shown = b""
            while awaited not in shown:
                shown += os.read(ours, 65536)
            os.write(ours, keys)
        assert process.wait(timeout=PATIENCE_SECONDS) == 0
        assert termios.tcgetattr(theirs) == before
        assert b"\x1b[3" not in shown, "NO_COLOR"
    finally:
        process.kill()
        process.wait()
        os.close(theirs)
        os.close(ours)

"""The end of commands by a signal: stopped in order, whatever the main thread holds, and never later than the limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from mailboat.cli.signals import exit_at, stopped_by_signals
from mailboat.testing.wait import PATIENCE_SECONDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_work_where_the_main_thread_holds_a_lock_that_the_stop_needs(number: int) -> None:
    stopping, lock = threading.Event(), threading.Lock()

    def stop() -> None:
        with lock:
            stopping.set()

    with stopped_by_signals(stop, PATIENCE_SECONDS) as received:
        with lock:
            os.kill(os.getpid(), number)
        assert stopping.wait(PATIENCE_SECONDS)
    assert received == {number}


def test_a_second_ctrl_c_ends_the_work_at_once() -> None:
    first = threading.Event()
    with stopped_by_signals(first.set, PATIENCE_SECONDS):
        os.kill(os.getpid(), signal.SIGINT)
        assert first.wait(PATIENCE_SECONDS)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_handlers_and_wake_up_descriptor_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with stopped_by_signals(list, 10.0):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    descriptor = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)
    assert descriptor == -1


def test_command_is_closed_by_a_signal_unless_it_is_ignored() -> None:
    before, closed = signal.signal(signal.SIGHUP, signal.SIG_IGN), list[int]()

    def work(number: int) -> None:
        with exit_at(signal.SIGHUP, signal.SIGTERM):
            try:
                os.kill(os.getpid(), number)
            finally:
                closed.append(number)

    try:
        work(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        with pytest.raises(SystemExit) as caught:
            work(signal.SIGTERM)
        assert (caught.value.code, closed) == (143, [signal.SIGHUP, signal.SIGTERM])
    finally:
        signal.signal(signal.SIGHUP, before)


def test_first_process_of_a_container_is_ended_by_sigterm_while_it_loads(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("""
import os, signal, sys
assert os.getpid() == 1
class Loading:
    @staticmethod
    def find_spec(name, *_):
        if name == "mailboat.cli.main":
            os.kill(1, signal.SIGTERM)
sys.meta_path.insert(0, Loading)
from mailboat.cli.__main__ import run
run()
""")
    namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    command = [*namespace, sys.executable, str(file), "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, ""), ended.stderr


def run_program(program: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "program.py"
    file.write_text(f"import mailboat.cli.signals as signals\nsignals.EXIT_SECONDS = 0.2\n{program}")
    command = [sys.executable, str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


def test_work_that_goes_on_after_a_signal_is_ended_with_the_traces_of_its_threads(tmp_path: Path) -> None:
    program = """
import os, signal, threading
def hangs_after_the_signal():
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait()
with signals.stopped_by_signals(lambda: None, 0.1, 0.2):
    hangs_after_the_signal()
"""
    ended = run_program(program, tmp_path)
    assert ended.returncode == 1
    assert "in hangs_after_the_signal" in ended.stderr


def test_a_thread_that_does_not_end_keeps_the_process_no_longer_than_the_limit(tmp_path: Path) -> None:
    program = """
import threading
hangs = threading.Event()
def hangs_at_the_end():
    hangs.set()
    threading.Event().wait()
threading.Thread(target=hangs_at_the_end).start()
hangs.wait()
signals.exit_with(0)
"""
    ended = run_program(program, tmp_path)
    assert ended.returncode == 1
    assert "in hangs_at_the_end" in ended.stderr

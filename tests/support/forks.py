"""Processes of tests, forked from a server that has loaded what they need.

A fork costs milliseconds; a process that loads our modules by itself costs a third of a CPU second, and an operator a
whole one. pytest's own process has threads, so it can't be forked.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

FORKS: Final = multiprocessing.get_context("forkserver")
CHILD_SECONDS: Final = 200.0
_loaded: dict[str, None] = {}
if hasattr(sys.modules["__main__"], "__file__"):  # pytest without workers: each process runs its main module again
    _loaded["pytest"] = None


def preload(*modules: str) -> None:
    """Have the server load these modules too; what comes after its start is loaded by each process that needs it."""
    _loaded.update(dict.fromkeys(modules))
    FORKS.set_forkserver_preload(list(_loaded))


def fork(work: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Start `work` of an importable module in a process of its own."""
    _ensure_server()
    child = FORKS.Process(target=work, args=arguments)
    child.start()
    return child


def end_of(child: ForkServerProcess) -> int:
    """Wait for its end: 0, its exit code, or minus the signal that ended it."""
    child.join(CHILD_SECONDS)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode


def run_child(work: Callable[..., None], *arguments: object) -> int:
    """Run `work` in a process of its own; 0, its exit code, or minus the signal that ended it."""
    return end_of(fork(work, *arguments))


def server_cpu_seconds() -> float:
    """CPU seconds of the server and of its processes that have ended (proc(5), fields 14 to 17 of `stat`)."""
    pid = _server()._forkserver_pid
    if pid is None:
        return 0.0
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")


def stop_server() -> None:
    """End the server and wait for it, so that its CPU seconds are counted as those of a child."""
    for child in multiprocessing.active_children():  # it would wait for what a broken test left
        child.kill()
        child.join()
    _server()._stop()


def _server() -> Any:
    # the standard library has no public name for it
    return forkserver._forkserver


def _ensure_server() -> None:
    before = os.environ.get("PYTHONPATH")
    # Python before 3.11.9 does not give the server our path, and it passes over what it can't import without a word:
    # https://github.com/python/cpython/issues/117378
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before

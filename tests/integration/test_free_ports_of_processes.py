"""Ports for the servers of tests that several processes start at the same time."""

from __future__ import annotations

import subprocess
import sys

TAKE = "from support.free_ports import free_ports; print(*free_ports(5))"


def test_processes_that_look_at_the_same_time_are_given_different_ports() -> None:
    started = [subprocess.Popen([sys.executable, "-c", TAKE], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    given = [port for process in started for port in process.communicate()[0].split()]
    assert [process.returncode for process in started] == [0] * 4
    assert len(set(given)) == 20

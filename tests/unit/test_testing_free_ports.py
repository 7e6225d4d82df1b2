"""Ports for the servers of tests: nobody is given what somebody else was given a moment ago."""

from __future__ import annotations

import socket
import subprocess
import sys

from mailboat.testing.free_ports import LOOPBACK, free_ports

TAKE = "from mailboat.testing.free_ports import free_ports; print(*free_ports(5))"


def test_what_was_given_is_not_given_again_though_nobody_listens_yet() -> None:
    given = [*free_ports(4), *free_ports(4), *free_ports(2, beside=10_000)]
    assert len(set(given)) == len(given)


def test_processes_that_look_at_the_same_time_are_given_different_ports() -> None:
    started = [subprocess.Popen([sys.executable, "-c", TAKE], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    given = [port for process in started for port in process.communicate()[0].split()]
    assert [process.returncode for process in started] == [0] * 4
    assert len(set(given)) == 20


def test_ports_that_are_listened_on_are_left_out() -> None:
    with socket.socket() as server:
        (port,) = free_ports(1)
        server.bind((LOOPBACK, port))
        assert port not in free_ports(40)

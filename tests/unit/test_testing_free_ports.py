"""Ports for the servers of tests: no port is given twice within a moment."""

from __future__ import annotations

import socket

from support.free_ports import LOOPBACK, free_ports


def test_what_was_given_is_not_given_again_though_no_one_listens_yet() -> None:
    given = [*free_ports(4), *free_ports(4), *free_ports(2, beside=10_000)]
    assert len(set(given)) == len(given)


def test_ports_that_are_listened_on_are_left_out() -> None:
    with socket.socket() as server:
        (port,) = free_ports(1)
        server.bind((LOOPBACK, port))
        assert port not in free_ports(40)

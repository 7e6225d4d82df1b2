"""Free ports, and ends of processes, for the real servers that tests start."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_FIRST_PORT: Final = 18_000
_PORTS: Final = 2_000
_OF_A_PROCESS: Final = 32  # processes that look at the same time begin at different places


def free_ports(count: int, beside: int = 0) -> list[int]:
    """Ports that nobody listens on, nor on the ports that are `beside` higher.

    They lie below those that the system gives to outgoing connections: one of these could take the port of a server
    that is down, and a client that tries to reach the server could even be connected to itself.
    """
    free: list[int] = []
    port = _FIRST_PORT + os.getpid() * _OF_A_PROCESS % _PORTS
    while len(free) < count:
        port = _FIRST_PORT + (port + 1 - _FIRST_PORT) % _PORTS
        if _is_free(port) and (beside == 0 or _is_free(port + beside)):
            free.append(port)
    return free


def until_parent_ends() -> list[str]:
    """Where the system can do so: words that make a command end with the thread that started it, however that ends."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True

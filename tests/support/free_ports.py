"""Free ports, and ends of processes, for the real servers that tests start."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Final

from mailboat.errors import PermanentError

LOOPBACK: Final = "127.0.0.1"
_FIRST_PORT: Final = 18_000
_PORTS: Final = 2_000
_OF_A_PROCESS: Final = 32  # processes that look at the same time begin at different places
_HELD_SECONDS: Final = 240.0


class NoFreePortError(PermanentError):
    """All ports that servers of tests may have are taken. Look for servers that an interrupted run left behind."""


def free_ports(count: int, beside: int = 0) -> list[int]:
    """Ports that no one listens on, nor on the ports that are `beside` higher, and that no one else is given meanwhile.

    A server takes its time to listen, so what was given is given to no other process for a while. The ports lie below
    those that the system gives to outgoing connections: one of these could take the port of a server that is down, and
    a client that tries to reach the server could even be connected to itself. Raises: NoFreePortError.
    """
    folder = Path(tempfile.gettempdir()) / f"mailboat-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    first = os.getpid() * _OF_A_PROCESS
    free: list[int] = []
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(lock.fileno())
        now = os.fstat(lock.fileno()).st_mtime
        for port in (_FIRST_PORT + (first + at) % _PORTS for at in range(_PORTS)):
            if len(free) == count:
                break
            mark = folder / str(port)
            is_held = mark.exists() and now - mark.stat().st_mtime < _HELD_SECONDS
            if not is_held and _is_free(port) and (beside == 0 or _is_free(port + beside)):
                mark.touch()
                free.append(port)
    if len(free) < count:
        raise NoFreePortError(f"{count} free ports are wanted, there are {len(free)} of {_PORTS}")
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

"""A real PostgreSQL on a socket in a folder of its own, from Debian's package; nothing listens on a port."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mailboat.clock import SystemClock
from support.free_ports import until_parent_ends

PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")


class PostgresServer:
    """A cluster of databases in a folder, which the user of the server must be able to enter."""

    def __init__(self, folder: Path) -> None:
        """Make the cluster; its superuser is the server's user, and no one is asked for a password."""
        folder.chmod(0o755)
        self.data = folder / "cluster"
        self.data.mkdir()
        self._is_root = os.geteuid() == 0
        self._as_user = until_parent_ends()
        # PostgreSQL refuses to run as root.
        if self._is_root:
            self._as_user[1:1] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"]
            subprocess.run(["chown", "postgres", self.data], check=True)
        self.run("initdb", "-D", self.data, "-A", "trust", "--no-sync", "--no-instructions")

    @property
    def address(self) -> str:
        """How clients connect, as libpq reads it."""
        user = "user=postgres" if self._is_root else ""
        return f"host={self.data} dbname=postgres {user}"

    def run(self, program: str, *arguments: object) -> None:
        """Run a program of PostgreSQL. Raises: CalledProcessError."""
        command: list[str | Path] = [*self._as_user, PROGRAMS / program, *map(str, arguments)]
        subprocess.run(command, cwd=self.data, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    @contextmanager
    def running(self, *options: str) -> Iterator[None]:
        """The server until the block ends, with some settings `NAME=VALUE`; its CPU time is then our children's."""
        settings = [part for option in ("listen_addresses=", *options) for part in ("-c", option)]
        command: list[str | Path] = [*self._as_user, PROGRAMS / "postgres", "-D", self.data, "-k", self.data, *settings]
        clock, never = SystemClock(), threading.Event()
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as started:
            try:
                while subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", self.data], check=False).returncode:
                    assert started.poll() is None, "the server ended while it started"
                    clock.wait(never, 0.02)
                yield
            finally:
                self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "stop")
                started.wait()

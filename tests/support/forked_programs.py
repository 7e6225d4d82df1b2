"""`mailboat` and the operator as processes of their own, forked from a server that has loaded them.

They are what a user starts but for the start of Python; `test_cli_subscribe` and others start that, too.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from mailboat.cli.main import main
from mailboat.cli.signals import exit_with
from support.forks import fork, preload

COMMANDS = (
    *("agents", "config", "content", "distributions", "init", "journal", "publish", "queues", "rich_output", "status"),
    "subscribe",
)
preload(
    "support.forked_programs",
    "mailboat.cli.program",
    *(f"mailboat.cli.{name}" for name in COMMANDS),
    # what `agent run` loads when it needs it
    "mailboat.agent.observability",
    "mailboat.control.lag_history",
    "mailboat.control.service",
    "mailboat.http.agent_server",
    "support.loaded_agent",
    # what commands with `--url` load
    "mailboat.api.client",
    "httpcore2",
)


class ForkedProgram:
    """What tests do with a process, by the names that `subprocess.Popen` has for it.

    Attributes:
        pid: Of the process.
        stdout: What it prints, where no file takes it.
    """

    def __init__(
        self,
        program: Callable[..., None],
        *arguments: object,
        errors: int,
        output: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; `errors` and `output` are descriptors of files."""
        self.stdout: IO[str] | None = None
        if output is None:
            readable, written = os.pipe()
            self.stdout = os.fdopen(readable, encoding="utf-8")
        else:
            written = os.dup(output)
        # what multiprocessing calls a connection is a descriptor that a child gets
        with Connection(written, readable=False) as out, Connection(os.dup(errors), readable=False) as err:
            taken = dict(os.environ if environment is None else environment)
            self._process = fork(_run, out, err, taken, str(Path.cwd()), program, *arguments)
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, at its end. Raises: subprocess.TimeoutExpired."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What it prints until its end."""
        printed = "" if self.stdout is None or self.stdout.closed else self.stdout.read()
        self.wait(timeout)
        if self.stdout is not None:
            self.stdout.close()
        return printed, None

    def send_signal(self, number: int) -> None:
        """Unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start_mailboat(words: Sequence[object], errors: Path) -> ForkedProgram:
    """`mailboat WORDS…`, whose errors are added to a file."""
    with errors.open("ab") as file:
        return ForkedProgram(mailboat, [str(word) for word in words], errors=file.fileno())


def run_mailboat(
    words: Sequence[object], environment: Mapping[str, str] | None = None, timeout: float = 200.0
) -> subprocess.CompletedProcess[str]:
    """`mailboat WORDS…` to its end."""
    texts = [str(word) for word in words]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = ForkedProgram(mailboat, texts, errors=err.fileno(), output=out.fileno(), environment=environment)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        printed = []
        for file in (out, err):
            file.seek(0)
            printed.append(file.read().decode())
    return subprocess.CompletedProcess(texts, code, *printed)


def mailboat(words: list[str]) -> None:
    """The program; it ends the process."""
    sys.argv = ["mailboat", *words]
    exit_with(main(words))


def operator(names: Mapping[str, str], constants: Mapping[str, float]) -> None:
    """The program; it ends the process.

    `names` has addresses by host name, as the DNS of a cluster, and `constants` values for constants of modules.
    """
    from mailboat_operator.main import run  # noqa: PLC0415  # of few tests, and a CPU second

    for place, value in constants.items():
        module, _, name = place.rpartition(".")
        assert hasattr(importlib.import_module(module), name), place
        setattr(importlib.import_module(module), name, value)
    resolve, encoded = socket.getaddrinfo, {name.encode(): address for name, address in names.items()}  # as anyio asks
    socket.getaddrinfo = lambda host, *more, **options: resolve(encoded.get(host, host), *more, **options)
    warnings.simplefilter("error")
    sys.exit(run())


def _run(
    out: Connection,
    err: Connection,
    environment: dict[str, str],
    folder: str,
    program: Callable[..., None],
    *given: Any,
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    out.close()
    err.close()
    program(*given)

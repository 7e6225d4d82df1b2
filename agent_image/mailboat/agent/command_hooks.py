"""Hooks of a subscriber that are commands of the user: run without a shell, with the package on standard input.

A command gets one JSON object, and nothing of the package's content:

    {"subscriber": "edge", "publisher": "author", "offset": 7, "package_id": "dstrpck-…", "package_type": "tree",
     "action": "ADD", "paths": ["/site"], "deep_paths": ["/site"]}

An exit code other than 0, and running longer than allowed, are failures; the command is then ended with all that it
started, and so it is when the agent is killed (`HookWatch`). What it prints is discarded, but for the last line, which
stands in the error. Used by `agent/subscriber_process.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

from mailboat.clock import Clock, Deadline
from mailboat.content.foreign_failures import TranslatedFailures
from mailboat.errors import ProcessorFailedError, RetryableError
from mailboat.model.identifiers import AgentName
from mailboat.subscriber.admission import StopAskedError
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors
from mailboat.workers import heartbeat

if TYPE_CHECKING:
    from mailboat.config.document import HooksConfig

_LOG: Final = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0
_PROGRAM: Final = """
import os, signal, sys
running = set()
for line in sys.stdin.buffer:
    number = int(line[1:])
    running.add(number) if line[:1] == b"+" else running.discard(number)
for group in running:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class HookWatch:
    """Process that kills running hooks if the agent dies. Safe to use from several threads.

    An agent that gets SIGKILL can end nothing any more, and a hook that goes on would meet the hook of the next start.
    The kernel's own signal for this (`PR_SET_PDEATHSIG`) reaches the command itself only, not what that has started,
    and has to be set between fork and exec, where a process with threads must run nothing. So the watch learns of every
    hook through a pipe; when the pipe ends while hooks run, it kills their process groups. One for a subscriber, from
    its first hook on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._running: set[int] = set()

    def prepare(self) -> None:
        """A hook is about to be started: the watch is there before it."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()

    def began(self, group: int) -> None:
        """A hook runs, in the process group of that number."""
        with self._lock:
            # added before the pipe is written: a restarted watch gets every group of this set from `_start`
            self._running.add(group)
            if not self._send(f"+{group}"):
                self._start()

    def ended(self, group: int) -> None:
        """It has ended, with all that is known of it."""
        with self._lock:
            self._running.discard(group)
            self._send(f"-{group}")

    def close(self) -> None:
        """End the watch. No hook may run any more."""
        with self._lock:
            self._end()

    def _start(self) -> None:
        """Start the watch, or another one after one that was killed."""
        self._end()
        # -I ignores PYTHON* variables and the user's site-packages, -S skips `site`: the start takes milliseconds
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM]
        nowhere = subprocess.DEVNULL
        try:
            # own session: a signal to the agent's process group (Ctrl-C) must not end the watch before the agent
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                command, bufsize=0, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
            )
        except OSError as error:
            _LOG.warning("hooks are not watched, and would go on if this process were killed: %s", error)
        for group in self._running:
            self._send(f"+{group}")

    def _end(self) -> None:
        """End the process: its pipe ends."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _send(self, line: str) -> bool:
        """Write a line to the watch; whether its pipe took it."""
        if self._process is None or self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError:
            return False
        return True


# a stop or the time limit is noticed so much later at most
_POLL_SECONDS: Final = 0.2
_TAIL_BYTES: Final = 2000
_LINE_CHARACTERS: Final = 300
_PLACE: Final = "the folder for temporary files"
_LIMITS: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Limits of this machine and of this process: neither the hook nor the package is at fault, so no attempt counts."""


class CommandHook:
    """One command; see `Processor`. `stop` may come from any thread."""

    def __init__(
        self,
        arguments: Sequence[str],
        subscriber: AgentName,
        timeout_seconds: float,
        clock: Clock,
        watch: HookWatch | None = None,
    ) -> None:
        """Run `arguments` for each package, for at most so long; `watch` ends them if this process is killed."""
        self._watch = watch
        self._arguments = tuple(arguments)
        self._subscriber = subscriber
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._stop_by: Deadline | None = None

    def stop(self, deadline: Deadline) -> None:
        """The subscriber ends: a command that still runs when the deadline is over is ended."""
        self._stop_by = deadline

    def process(self, package: ProcessedPackage) -> None:
        """See `Processor`.

        Raises:
            ProcessorFailedError: It could not be started, failed, or took too long.
            RetryableError: This machine lacks space, memory or processes for it.
            StopAskedError: The subscriber must end before the command did.
        """
        # files instead of pipes: a hook that reads nothing, or prints without end, can't block this thread
        with _temporary_file() as document, _temporary_file() as output:
            with TranslatedFailures(_PLACE):
                document.write(document_of(self._subscriber, package))
                document.seek(0)
            if self._watch is not None:
                # the watch runs before the hook: only a kill between `_start` and `began` leaves a hook unwatched
                self._watch.prepare()
            process = self._start(document, output, package)
            try:
                if self._watch is not None:
                    self._watch.began(process.pid)
                self._await(process, package)
            finally:
                # the group is killed before the watch forgets it: a SIGKILL of the agent in between changes nothing
                _end(process)
                if self._watch is not None:
                    self._watch.ended(process.pid)
            if process.returncode != 0:
                raise self._failed(package, f"ended with the exit code {process.returncode}", _last_line(output))

    def _start(self, document: BinaryIO, output: BinaryIO, package: ProcessedPackage) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603  # an argument list from the configuration, no shell
                self._arguments, stdin=document, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            if error.errno in _LIMITS:
                message = f"the hook {self._arguments[0]} can't be started now: {error.strerror}"
                raise RetryableError(message, offset=package.offset) from error
            raise self._failed(package, f"can't be started: {error.strerror or error}") from error

    def _await(self, process: subprocess.Popen[bytes], package: ProcessedPackage) -> None:
        heartbeat(self._clock)(self._timeout_seconds)
        deadline = Deadline(self._clock, self._timeout_seconds)
        while process.poll() is None:
            if deadline.is_over():
                raise self._failed(package, f"took longer than {self._timeout_seconds:g} seconds")
            if self._stop_by is not None and self._stop_by.is_over():
                raise StopAskedError
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_SECONDS)

    def _failed(self, package: ProcessedPackage, what: str, last_line: str = "") -> ProcessorFailedError:
        detail = f": {last_line}" if last_line else ""
        return ProcessorFailedError(
            f"the hook {self._arguments[0]} {what}{detail}", package=package.package_id, offset=package.offset
        )


class Hooks:
    """The hooks of one subscriber, as its configuration says."""

    def __init__(self, config: HooksConfig, subscriber: AgentName, clock: Clock) -> None:
        """Make those that are configured."""
        self._made: list[CommandHook] = []
        self._watch = HookWatch()

        def made(arguments: Sequence[str]) -> CommandHook | None:
            if not arguments:
                return None
            self._made.append(CommandHook(arguments, subscriber, config.timeout_seconds, clock, self._watch))
            return self._made[-1]

        self.processors: Final = Processors(made(config.before), made(config.after), made(config.invalidate))

    def stop(self, deadline: Deadline) -> None:
        """The subscriber ends; see `CommandHook.stop`."""
        for hook in self._made:
            hook.stop(deadline)

    def close(self) -> None:
        """No hook runs any more."""
        self._watch.close()


def document_of(subscriber: AgentName, package: ProcessedPackage) -> bytes:
    """What a hook gets on its standard input."""
    fields = {
        "subscriber": subscriber,
        "publisher": package.pub_agent_name,
        "offset": package.offset,
        "package_id": package.package_id,
        "package_type": package.package_type,
        "action": package.action,
        "paths": package.paths,
        "deep_paths": package.deep_paths,
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _temporary_file() -> BinaryIO:
    with TranslatedFailures(_PLACE):
        return tempfile.TemporaryFile()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command that has not succeeded, with all that it started: a retry must not run next to what is left."""
    if process.poll() != 0:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # `start_new_session` made the hook the leader of its process group, so its pid is the group's id. Also once
            # `poll` took its exit code: the kernel gives out all other pids before it gives this one again.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_line(output: BinaryIO) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _TAIL_BYTES))
    # bounded: a process that left the group may still write
    lines = output.read(_TAIL_BYTES).decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:_LINE_CHARACTERS] if lines else ""

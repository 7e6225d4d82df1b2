"""Handlers that are commands of the user: run without a shell, with one JSON object on standard input.

    {"job": "1042-0", "token": 1043, "attempt": 1, "topic": "purge.cdn", "key": "", "data": {"keys": ["/news"]}}

`data` is the payload, if it is JSON, else a string. A call of merged jobs has `jobs`, a list of objects with `job`,
`key` and `data`, in place of the three. Exit code 0 is success. 75 (EX_TEMPFAIL of sysexits.h), the end by a signal and
a command that cannot be started are failures that are retried; any other exit code is a failure that is not. A command
that exits with 75 chooses the pause by a line `retry-after: SECONDS` in its output, as an HTTP receiver does with 429.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from mailboat.jobs.job_worker import Call, Result
from mailboat.json_decoder import parse_value
from mailboat.model.jobs import AttemptOutcome, show_job_id

TRY_AGAIN_EXIT_CODE: Final = 75
_RETRY_AFTER: Final = re.compile(rb"^retry-after:[ \t]*(\d{1,7}(?:\.\d{1,3})?)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)
_TAIL_BYTES: Final = 2_000
_LINE_CHARACTERS: Final = 300
_FIRST_POLL_SECONDS: Final = 0.005
_LONGEST_POLL_SECONDS: Final = 0.1
"""Between two looks whether a command has ended: short ones are noticed soon, long ones cost nothing."""
_KILL_AFTER_SECONDS: Final = 5.0


class SubprocessHandler:
    """Runs one command for each call. A job that should stop gets SIGTERM, and SIGKILL five seconds later."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """Run these arguments."""
        self._arguments = tuple(arguments)

    def __call__(self, call: Call) -> Result:
        """Run the command, and translate its exit code."""
        # Files and not pipes: a command that fills a pipe would block until it is read.
        with tempfile.TemporaryFile() as document, tempfile.TemporaryFile() as output:
            document.write(document_of(call))
            document.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603  # an argument list from the configuration, no shell
                    self._arguments, stdin=document, stdout=output, stderr=output, start_new_session=True
                )
            except OSError as error:
                return Result(AttemptOutcome.FAIL, f"{self._arguments[0]} cannot be started: {error.strerror or error}")
            code = self._wait(process, call)
            output.seek(max(0, output.seek(0, os.SEEK_END) - _TAIL_BYTES))
            # bounded: a process that left the group may still write
            return _result(self._arguments[0], code, output.read(_TAIL_BYTES))

    def _wait(self, process: subprocess.Popen[bytes], call: Call) -> int:
        pause = _FIRST_POLL_SECONDS
        try:
            while not call.wait(pause):
                if process.poll() is not None:
                    return process.returncode
                pause = min(2 * pause, _LONGEST_POLL_SECONDS)
            # To the whole group (`start_new_session`), so that children of the command get it as well.
            _signal_group(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_AFTER_SECONDS)
        finally:
            _signal_group(process, signal.SIGKILL)  # also what the command left behind
            process.wait()
        return process.returncode


def document_of(call: Call) -> bytes:
    """What a command reads on its standard input."""
    first = next(iter(call.jobs.values()), None)
    fields: dict[str, Any] = {
        "token": call.token,
        "attempt": call.attempt,
        "topic": first.topic if first is not None else "",
    }
    jobs = [
        {"job": show_job_id(job), "key": new.key, "data": payload_value(new.payload)} for job, new in call.jobs.items()
    ]
    fields |= jobs[0] if len(jobs) == 1 else {"jobs": jobs}
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def payload_value(payload: bytes) -> object:
    """A payload as programs read it: its JSON value, else a string."""
    try:
        value = parse_value(payload) if payload else None
        if b"\\" in payload or not payload.isascii():
            # The parser accepts half of a surrogate pair, which no answer and no command could get.
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return payload.decode(errors="replace")
    else:
        return value


def _result(command: str, code: int, output: bytes) -> Result:
    if code == 0:
        return Result()
    outcome = AttemptOutcome.FAIL if code == TRY_AGAIN_EXIT_CODE or code < 0 else AttemptOutcome.CANCEL
    what = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    last_line, asked = _last_line(output), _RETRY_AFTER.findall(output)
    delay_seconds = float(asked[-1]) if asked and code == TRY_AGAIN_EXIT_CODE else None
    return Result(outcome, f"{command} {what}{f': {last_line}' if last_line else ''}", delay_seconds)


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1][:_LINE_CHARACTERS] if lines else ""


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

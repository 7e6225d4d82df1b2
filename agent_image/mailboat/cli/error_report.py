"""How errors end a command: what happened, the facts, the next step, the exit code.

The exit code comes from the error's class (`errors.py`), so it is the same whatever the command was.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TextIO

from mailboat.errors import (
    MailboatError,
    OutputFailedError,
    PermanentError,
    PlaceUnusableError,
)
from mailboat.printable import printable

INTERRUPTED_EXIT_CODE: Final = 130
"""Ctrl-C, as shells report it: 128 + SIGINT."""

BROKEN_PIPE_EXIT_CODE: Final = 141
"""The output pipe was closed: 128 + SIGPIPE. Nothing is printed."""

NOT_IMPORTED_EXIT_CODE: Final = 1
"""A subscriber gave up, dropped or skipped a package that was waited for, or refused a command."""

DECLINED_EXIT_CODE: Final = 1
"""A question was answered with no."""

NOT_YET_EXIT_CODE: Final = 3
"""Durable, but what was waited for did not happen in time."""

EXIT_CODES: Final[tuple[tuple[int, str], ...]] = (
    (0, "done"),
    (
        1,
        "failed, retrying will not help; or a difference was found, packages were not imported, a command was refused",
    ),
    (2, "invalid command line, configuration or request"),
    (3, "`--wait` timed out, or no subscriber is known; the request was published or sent"),
    (4, "input violates a rule or a limit, and was not written"),
    (5, "the target is locked, or owned by another subscriber"),
    (6, "a named state in which going on could lose content: `mailboat explain NAME`"),
    (70, "internal error: `mailboat explain InternalDefect`"),
    (75, "temporary failure; retry"),
    (77, "not permitted by the server or the file system"),
    (INTERRUPTED_EXIT_CODE, "stopped by Ctrl-C"),
    (BROKEN_PIPE_EXIT_CODE, "the output pipe was closed"),
)

_TOLD: Final = 300
"""Characters of a foreign exception's text that are shown."""

_OF_NAMES: Final = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EAGAIN})
_OF_OUTPUT: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF})


class InternalDefectError(PermanentError):
    """Internal error in a command: a bug in Mailboat. Changes that it made before the error remain.

    Run the same command with `--verbose`, and report the traceback at https://github.com/mailboat-dev/mailboat/issues.
    """

    exit_code = 70  # EX_SOFTWARE of sysexits.h


class PermissionMissingError(PermanentError):
    """The file system denies access to a file or folder that the command needs. Check its owner and mode."""

    exit_code = 77  # EX_NOPERM of sysexits.h


def print_error(error: MailboatError, into: TextIO, *, is_verbose: bool = False, is_coloured: bool = False) -> None:
    """Print an error to people, with its trace when asked for."""
    _print_lines(error, into, error_lines(error, is_coloured=is_coloured), is_verbose=is_verbose)


def print_warning(error: MailboatError, into: TextIO, what: str, *, is_verbose: bool = False) -> None:
    """Print an error that does not end the command; `what` came of it, for the first line."""
    error.with_next_step(f"mailboat explain {error.name}")
    _print_lines(error, into, _lines(error, f"warning: {what}:"), is_verbose=is_verbose)


def _print_lines(error: MailboatError, into: TextIO, lines: Iterator[str], *, is_verbose: bool) -> None:
    try:
        if is_verbose:
            trace = "".join(traceback.format_exception(error))
            into.writelines(f"{printable(line)}\n" for line in trace.splitlines())
        into.writelines(f"{line}\n" for line in lines)
        into.flush()
    except OSError:  # a closed pipe or a full disk: the exit code still says which error it was
        leave_stream(into)


def error_lines(error: MailboatError, *, is_coloured: bool = False) -> Iterator[str]:
    """The lines of an error: name and message, then facts in a column, then what to do."""
    return _lines(error, "\x1b[1;31merror:\x1b[0m" if is_coloured else "error:")


def _lines(error: MailboatError, mark: str) -> Iterator[str]:
    yield f"{mark} {error.name}: {printable(error.message)}"
    facts = [(printable(key).replace("_", " "), printable(str(value))) for key, value in error.where.items()]
    # Only the next step may have several lines: in a fact, a second line would look like advice of ours.
    steps = [] if error.next_step is None else error.next_step.splitlines() or [""]
    facts += [("" if number else "next", printable(step)) for number, step in enumerate(steps)]
    width = max([len(key) for key, _ in facts], default=0)
    yield from (f"  {key:<{width}}  {value}" for key, value in facts)


def named_failure(error: Exception) -> MailboatError:
    """The error for an unhandled exception: of the system about a place or the output, or a defect."""
    if isinstance(error, OSError):
        if error.filename is None and error.errno in _OF_OUTPUT:
            return OutputFailedError(f"standard output can't be written: {error.strerror}")
        if error.filename is not None and error.errno in _OF_NAMES:
            return PlaceUnusableError(f"{str(error.filename)[:_TOLD]}: {error.strerror}")
        if error.filename is not None and isinstance(error, PermissionError):
            return PermissionMissingError(f"{error.filename}: {error.strerror}")
    told = str(error).splitlines()
    return InternalDefectError(
        f"the command failed unexpectedly: {type(error).__name__}" + (f": {told[0][:_TOLD]}" if told else ""),
        next_step="run the command again with --verbose, and report its output: mailboat explain InternalDefect",
        where=_place_of(error),
    )


def _place_of(error: Exception) -> str | None:
    """The innermost line of Mailboat's that the exception went through."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        places += [f"{name}:{trace.tb_lineno}"] if name.startswith("mailboat.") else []
        trace = trace.tb_next
    return places[-1] if places else None


def leave_broken_pipe() -> None:
    """Give up standard output, and standard error where it is the same pipe."""
    leave_stream(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        leave_stream(sys.stderr)


def heed_unwritable(stream: TextIO, error: OSError) -> None:
    """A line could not be written: leave the stream, unless its next line may pass, as on a disk that is full now."""
    if error.errno not in _PASSING:
        leave_stream(stream)


def leave_stream(stream: TextIO) -> None:
    """Point a stream elsewhere, so that the interpreter's flush at exit does not fail again, with exit code 120."""
    with suppress(OSError, ValueError):  # also where it was closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

"""Where `mailboat` starts: finds the command, runs it, turns whatever comes out into an exit code.

The framework that reads options, and the modules of commands, are imported when they are needed: a subscriber that
restarts with nothing to do should not pay for them (`fast_path.py`).
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mailboat.cli.error_report import (
    BROKEN_PIPE_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    leave_broken_pipe,
    leave_stream,
    named_failure,
    print_error,
)
from mailboat.cli.fast_path import run_quickly
from mailboat.cli.session import Defaults
from mailboat.cli.signals import exit_with
from mailboat.composition.environment import check_encoding, current_settings
from mailboat.errors import MailboatError, OutputFailedError, UsageError

_EMPTY_OPTION: Final = re.compile("--[a-z-]+=")


def run() -> None:
    """The entry point of the installed program."""
    open_closed_streams()
    code = main(sys.argv[1:])
    try:
        sys.stderr.flush()
    except OSError:
        leave_stream(sys.stderr)  # else the interpreter ends with exit code 120
    gc.freeze()  # the interpreter ends by looking through all that was imported: a sixth of a short command
    exit_with(code)


def open_closed_streams() -> None:
    """Stand in for standard streams that the caller closed: Python has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends


def main(arguments: Sequence[str]) -> int:
    """Run one command line; its exit code: 0, or that of the error's class (`EXIT_CODES` of `error_report.py`)."""
    defaults = Defaults()
    try:
        check_encoding(sys.getfilesystemencoding())
        _refuse_empty(arguments)
        code = run_quickly(arguments, defaults)
        if code is None:
            from mailboat.cli.program import run_application  # with the framework

            code = run_application(arguments, defaults)
        sys.stdout.flush()
    except MailboatError as error:
        print_error(error, sys.stderr, is_verbose=_is_verbose(defaults), is_coloured=_is_coloured())
        return error.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        leave_broken_pipe()
        return BROKEN_PIPE_EXIT_CODE
    except Exception as error:  # noqa: BLE001  # the last line of defence: a defect still gets a sentence and a code
        found = _wrong_text(error, arguments) or named_failure(error)
        found.__cause__ = error
        print_error(found, sys.stderr, is_verbose=_is_verbose(defaults), is_coloured=_is_coloured())
        if isinstance(found, OutputFailedError):
            leave_broken_pipe()
        return found.exit_code
    if code == INTERRUPTED_EXIT_CODE:
        try:
            sys.stderr.write("stopped by Ctrl-C\n")
        except OSError:
            leave_stream(sys.stderr)
    return code


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: that is what an unset variable of a shell gives.

    As a path it would be the current folder, and without `--url` a command works on a home. Raises: UsageError.
    """
    for number, argument in enumerate(arguments):
        if not argument or _EMPTY_OPTION.fullmatch(argument):
            before = arguments[number - 1] if number and not argument else argument.removesuffix("=")
            where = f"after {before}" if number and not argument else f"of {before}" if argument else "at the beginning"
            raise UsageError(f"the value {where} is empty", next_step="check that its variable is set")


def _wrong_text(error: Exception, arguments: Sequence[str]) -> MailboatError | None:
    """The error for an argument whose bytes are no text; file names may have such bytes, so none is refused before."""
    # bytes that are no UTF-8 come as half surrogates
    wrong = next((one for one in arguments if any("\ud800" <= char <= "\udfff" for char in one)), None)
    if not isinstance(error, UnicodeEncodeError) or wrong is None:
        return None
    return UsageError(f"the argument {wrong!r} is not text in UTF-8")


def _is_verbose(defaults: Defaults) -> bool:
    return defaults.is_verbose or current_settings().is_verbose


def _is_coloured() -> bool:
    return sys.stderr.isatty() and current_settings().is_colour_wanted

"""Where `mailboat` starts: finds the command, runs it, turns whatever comes out into an exit code.

Command modules, and the framework that reads their options, are imported when they are needed: a subscriber that
restarts with nothing to do should not pay for them (`quick.py`). Help, completion and misspelt names import them all.
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from mailboat.cli.failures import (
    BROKEN_PIPE_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    leave_broken_pipe,
    named_failure,
    print_error,
)
from mailboat.cli.quick import run_quickly
from mailboat.cli.session import Defaults
from mailboat.composition.settings import current_settings
from mailboat.errors import MailboatError, OutputFailedError, UsageError

if TYPE_CHECKING:
    import typer

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "init": "starting",
        "demo": "demo.command",
        "plan": "publishing",
        "publish": "publishing",
        "delete": "publishing",
        "invalidate": "publishing",
        "ping": "publishing",
        "bulk": "bulk",
        "subscribe": "subscribing",
        "agent": "agents",
        "status": "status",
        "distributions": "distributions",
        "publishers": "publishers",
        "queues": "queues",
        "errors": "giving_up",
        "subscribers": "subscribers",
        "content": "content",
        "packages": "packages",
        "journal": "journal",
        "blobs": "blobs",
        "config": "configuring",
        "explain": "explain",
        "completion": "completion",
    }
)
"""Every command and group with the module of this folder that defines it, in the order of the help."""

_TAKE_VALUES: Final = frozenset({"--home", "--url", "--token-file"})

_EMPTY_OPTION: Final = re.compile("--[a-z-]+=")


def run() -> None:
    """The entry point of the installed program."""
    _open_closed_streams()
    code = main(sys.argv[1:])
    gc.freeze()  # the interpreter ends by looking through all that was imported: a sixth of a short command
    sys.exit(code)


def _open_closed_streams() -> None:
    """Stand in for standard output and error that the caller closed: Python has None in their place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  # until the process ends


def main(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: Without the program's name.

    Returns:
        The exit code: 0, or that of the error's class; see `failures.EXIT_CODES`.
    """
    defaults = Defaults()
    try:
        code = _invoke(arguments, defaults)
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
        found = named_failure(error)
        found.__cause__ = error
        print_error(found, sys.stderr, is_verbose=_is_verbose(defaults), is_coloured=_is_coloured())
        if isinstance(found, OutputFailedError):
            leave_broken_pipe()
        return found.exit_code
    if code == INTERRUPTED_EXIT_CODE:
        sys.stderr.write("stopped by Ctrl-C\n")
    return code


def _invoke(arguments: Sequence[str], defaults: Defaults) -> int:
    _refuse_empty(arguments)
    code = run_quickly(arguments)
    if code is not None:
        return code
    import typer

    app = build_app(named_command(arguments))
    command = typer.main.get_command(app)
    try:
        result = command.main(args=list(arguments), prog_name="mailboat", standalone_mode=False, obj=defaults)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except typer.TyperException as error:
        raise _usage_error(error) from error
    return result if isinstance(result, int) else 0


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty argument: that is what an unset variable of a shell gives.

    As a path it would be the current folder, and without `--url` a command works on a home. Raises: UsageError.
    """
    for number, argument in enumerate(arguments):
        if not argument or _EMPTY_OPTION.fullmatch(argument):
            before = arguments[number - 1] if number and not argument else argument.removesuffix("=")
            where = f"after {before}" if number and not argument else f"of {before}" if argument else "at the beginning"
            raise UsageError(f"the value {where} is empty", next_step="see that the variable that it comes from is set")


def build_app(named: str | None = None) -> typer.Typer:
    """The application: with all commands, or with nothing but the one named."""
    from mailboat.cli.application import new_application

    app = new_application()
    wanted = COMMANDS.values() if named is None else [COMMANDS[named]]
    for module in dict.fromkeys(wanted):
        importlib.import_module(f"mailboat.cli.{module}").register(app)
    return app


def named_command(arguments: Sequence[str]) -> str | None:
    """The command among the arguments, when it is surely one."""
    from mailboat.cli.help_page import ALIASES

    remaining = iter(arguments)
    for one in remaining:
        if one in _TAKE_VALUES:
            next(remaining, None)
        elif not one.startswith("-"):
            name = ALIASES.get(one, one)
            return name if name in COMMANDS else None
        elif one in {"-h", "--help"}:
            return None
    return None


def _usage_error(error: typer.TyperException) -> MailboatError:
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "mailboat")
    words = " ".join(error.format_message().split())
    message = words.replace("': Value error, ", "': ")  # pydantic's prefix
    return UsageError(message or "invalid command line", next_step=f"{path} --help")


def _is_verbose(defaults: Defaults) -> bool:
    return defaults.is_verbose or current_settings().is_verbose


def _is_coloured() -> bool:
    return sys.stderr.isatty() and current_settings().is_colour_wanted

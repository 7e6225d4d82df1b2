"""Questions before something is removed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mailboat.cli.error_report import DECLINED_EXIT_CODE
from mailboat.errors import UsageError
from mailboat.printable import printable

SureOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def ask(question: str, declined: str, *, is_sure: bool) -> None:
    """Go on only when a person says yes, or has given `--yes`.

    Raises:
        UsageError: There is no terminal.
        typer.Exit: The answer is no.
    """
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise UsageError("refusing without confirmation: not a terminal", next_step="pass --yes")
    if not _is_confirmed(question):
        sys.stderr.write(f"{declined}\n")
        raise typer.Exit(DECLINED_EXIT_CODE)


def _is_confirmed(question: str) -> bool:
    """The answer; no answer is a no. Raises: KeyboardInterrupt, with the cursor in a new line."""
    while True:
        sys.stderr.write(f"{printable(question)} [y/N]: ")
        sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            raise
        if not line.endswith("\n"):
            sys.stderr.write("\n")
        answer = line.strip().lower()
        if answer in {"", "n", "no", "y", "yes"}:
            return answer.startswith("y")
        sys.stderr.write("answer y or n\n")

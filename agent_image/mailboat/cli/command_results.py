"""What subscribers answer to commands, and with which exit code a command ends that waited for one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mailboat.api.records import document_of
from mailboat.cli.error_report import NOT_IMPORTED_EXIT_CODE, NOT_YET_EXIT_CODE
from mailboat.cli.output import Report, count_text
from mailboat.cli.session import Session

if TYPE_CHECKING:
    from mailboat.api.records import CommandView

_SENT: Final = "sent"
_REFUSED: Final = "refused"

AnswerOption = Annotated[
    float,
    typer.Option("--wait", metavar="SECONDS", min=0, help="Wait for the subscriber's answer; exits 3 on timeout."),
]


def show_commands(
    session: Session, answers: Sequence[CommandView], waited_seconds: float, *, empty: str = "nothing was asked"
) -> None:
    """Print the results of commands, or `empty` where there were none, and set the exit code.

    Raises: typer.Exit with 1 where one was refused, 3 where an answer did not arrive in time.
    """
    lines = [answer_text(answer) for answer in answers] or [empty]
    session.show(Report(document_of(answers), [answer.id for answer in answers], lambda: lines))
    if any(answer.state == _REFUSED for answer in answers):
        raise typer.Exit(NOT_IMPORTED_EXIT_CODE)
    if waited_seconds and any(answer.state == _SENT for answer in answers):
        raise typer.Exit(NOT_YET_EXIT_CODE)


def answer_text(one: CommandView) -> str:
    """Return the result of a command in one line."""
    if one.state == _SENT:
        return f"{one.subscriber}: sent, {one.message or 'no answer yet'}; the command is {one.id}"
    if one.state == _REFUSED:
        return f"{one.subscriber}: refused" + (f": {one.message}" if one.message else "")
    if one.verb in {"suspend", "resume"}:
        return f"{one.subscriber}: {one.message}"
    if one.verb == "redrive":
        return f"{one.subscriber}: redriven, offset {one.offset}" + (f": {one.message}" if one.message else "")
    if not one.removed:
        return f"{one.subscriber}: nothing dropped" + (f": {one.message}" if one.message else "")
    return f"{one.subscriber}: {count_text(one.removed, 'package')} dropped, up to offset {one.offset}"

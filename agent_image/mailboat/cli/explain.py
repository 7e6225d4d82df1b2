"""`mailboat explain`: what a named error or state means and what to do, from the docstrings of the classes."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated

import typer

from mailboat.cli.glossary import Explanation, explanations
from mailboat.cli.options import command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


@command
def explain(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Error or state, such as JournalTrimmed. Default: list all."),
    ] = None,
) -> None:
    """Explain a named error or state: meaning and next step."""
    known = explanations()
    if name is None:
        session.show(_listing(known))
        return
    names = {one.lower(): one for one in known}
    wanted = name.lower().removesuffix("error")
    found = names.get(wanted)
    if found is None:
        near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.6)
        step = f"mailboat explain {names[near[0]]}" if near else "mailboat explain   (lists all names)"
        raise UsageError(f"no error or state is named {name!r}", next_step=step)
    session.show(_page(known[found]))


def _listing(known: Mapping[str, Explanation]) -> Report:
    columns = (Column("NAME"), Column("KIND"), Column("EXIT", is_number=True), Column("MEANING", can_fold=True))
    return Report(
        [one.document() for one in known.values()],
        list(known),
        lambda: [
            Table(columns, [(one.name, one.kind, str(one.exit_code or ABSENT), one.summary) for one in known.values()])
        ],
    )


def _page(one: Explanation) -> Report:
    return Report(one.document(), [one.name], lambda: list(_page_lines(one)))


def _page_lines(one: Explanation) -> Iterator[str]:
    yield f"{one.name}   {one.kind}" + (f", exit code {one.exit_code}" if one.exit_code else "")
    yield ""
    yield from inspect.cleandoc(one.text).splitlines()

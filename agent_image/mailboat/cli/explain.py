"""`mailboat explain`: what a named error or state means and what to do, from the catalogue in the package.

`tools/errors_page.py` writes the catalogue from the docstrings of the classes; the dashboard reads it, too. The names
are the same in log lines, exit messages, problem documents, conditions and metrics.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Final

import typer

from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.errors import UsageError

_CATALOGUE: Final = "api/dashboard/explanations.json"
"""Within the package."""

_SIMILAR: Final = 0.75
"""Ratio of difflib: two wrong letters in eight still find a name, other words with the same ending do not."""

_SHORTEST_PART: Final = 4
"""Letters of a name's part that is completed, if one name only contains it."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """An error or a state.

    Attributes:
        name: As it appears everywhere.
        kind: How to react: `transient`, `usage`, `rejected`, `needs-operator`, `permanent`; or `state`.
        exit_code: With which a command ends; None for a state.
        text: Meaning, reason and next step.
    """

    name: str
    kind: str
    exit_code: int | None
    text: str

    @property
    def summary(self) -> str:
        """The first sentence of the text."""
        return " ".join(self.text.split("\n\n", maxsplit=1)[0].split()).split(". ")[0].rstrip(".") + "."

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "text": self.text,
        }


def explanations() -> Mapping[str, Explanation]:
    """All errors and states by name, sorted."""
    documents = json.loads((resources.files("mailboat") / _CATALOGUE).read_bytes())
    return {name: Explanation(name, **document) for name, document in documents.items()}


app = PagedTyper()


@app.command("explain")
@command
def explain(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Errors or states, such as JournalTrimmed. Default: list all."),
    ] = None,
) -> None:
    """Explain named errors or states: meaning and next step."""
    known = explanations()
    if not names:
        session.show(_listing(known))
        return
    found = [_explanation_of(name, known) for name in names]
    documents = [explanation.document() for explanation in found]
    session.show(
        Report(
            documents[0] if len(found) == 1 else documents,
            [explanation.name for explanation in found],
            lambda: list(_page_lines(found)),
        )
    )


def _explanation_of(name: str, known: Mapping[str, Explanation]) -> Explanation:
    names = {explanation.lower(): explanation for explanation in known}
    wanted = name.lower().removesuffix("error")
    if wanted in names:
        return known[names[wanted]]
    near = nearest_name(wanted, list(names))
    step = "mailboat explain   (lists all names)" if near is None else f"mailboat explain {names[near]}"
    raise UsageError(f"no error or state is named {name!r}", next_step=step)


def nearest_name(wanted: str, names: Sequence[str]) -> str | None:
    """The name that a typing error or part of a name means, in lower case; None if none is similar."""
    close = difflib.get_close_matches(wanted, names, n=1, cutoff=_SIMILAR)
    if close:
        return close[0]
    containing = [name for name in names if wanted in name] if len(wanted) >= _SHORTEST_PART else []
    return containing[0] if len(containing) == 1 else None


def _listing(known: Mapping[str, Explanation]) -> Report:
    columns = (Column("NAME"), Column("KIND"), Column("EXIT", is_number=True), Column("MEANING", can_fold=True))
    return Report(
        [explanation.document() for explanation in known.values()],
        list(known),
        lambda: [
            Table(
                columns,
                [
                    (explanation.name, explanation.kind, str(explanation.exit_code or ABSENT), explanation.summary)
                    for explanation in known.values()
                ],
            )
        ],
    )


def _page_lines(found: Sequence[Explanation]) -> Iterator[str]:
    for number, explanation in enumerate(found):
        if number:
            yield ""
        code = f", exit code {explanation.exit_code}" if explanation.exit_code else ""
        yield f"{explanation.name}   {explanation.kind}{code}"
        yield ""
        yield from explanation.text.splitlines()

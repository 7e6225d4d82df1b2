"""`mailboat explain`: what a named error or state means and what to do, from the docstrings of the classes.

`docs/errors.md` is generated from the same docstrings. The names are the same in log lines, exit messages, problem
documents, conditions and metrics. Importing all of Mailboat is what makes the list complete.
"""

from __future__ import annotations

import ast
import difflib
import enum
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, Any, Final

import typer

from mailboat.api.problems import import_all_modules
from mailboat.cli.options import command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table
from mailboat.control.subscriber_directory import Absence
from mailboat.errors import MailboatError, PermanentError, RetryableError, StopError, UntrustedInputError, UsageError
from mailboat.subscriber.figures import SubscriberPhase

_NOT_FOR_USERS: Final = ("mailboat.testing",)
_FAMILIES: Final = (MailboatError, PermanentError, StopError, UntrustedInputError)
"""What other errors derive from, and nothing raises itself."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """One name.

    Attributes:
        name: As it appears everywhere.
        kind: What it asks of the reader: `transient`, `usage`, `rejected`, `needs-operator`, `permanent`; or `state`.
        exit_code: With which a command ends; None for a state.
        summary: The first sentence.
        text: All of it.
    """

    name: str
    kind: str
    exit_code: int | None
    summary: str
    text: str

    def document(self) -> dict[str, Any]:
        """For JSON and YAML."""
        return asdict(self)


def explanations() -> Mapping[str, Explanation]:
    """All names, sorted."""
    import_all_modules(but=_NOT_FOR_USERS)
    found = [_explain_error(descendant) for descendant in _descendants(MailboatError) if descendant not in _FAMILIES]
    found += [*_explain_states(SubscriberPhase), *_explain_states(Absence)]
    return {one.name: one for one in sorted(found, key=lambda one: one.name)}


_EXIT_CODES: Final = {
    "transient": 75,
    "needs-operator": 6,
    "rejected": 4,
    "usage": 2,
    "permanent": 1,
    "state": None,
}
"""The exit code that most errors of a kind have; the page names the others."""


def errors_page() -> str:
    """`docs/errors.md`."""
    lines = [
        "# Errors and named states",
        "",
        "Generated from the docstrings of the classes by `make docs`; `mailboat explain NAME` prints the same.",
        "The kind says how to react; an error with another exit code names it:",
        "",
        "| kind | exit code | means |",
        "|---|---|---|",
        "| *transient* | 75 | retry |",
        "| *needs-operator* | 6 | going on could lose content: an operator decides |",
        "| *rejected* | 4 | the input broke a rule or a limit; nothing was written |",
        "| *usage* | 2 | invalid command line, configuration or request |",
        "| *permanent* | 1 | retrying will not help |",
        "| *state* | none | a state of a subscriber, not an error |",
    ]
    for explanation in explanations().values():
        code = "" if explanation.exit_code == _EXIT_CODES[explanation.kind] else f", exit code {explanation.exit_code}"
        lines += ["", f"## {explanation.name}", "", f"*{explanation.kind}{code}*", "", explanation.text]
    return "\n".join(lines) + "\n"


def _explain_states(kind: type[enum.StrEnum]) -> Iterator[Explanation]:
    """The members of an enumeration with the texts below them, which Python itself forgets."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    body = declared.body if isinstance(declared, ast.ClassDef) else []
    for member, after in pairwise(body):
        match member, after:
            case ast.Assign(value=ast.Constant(value=str(name))), ast.Expr(value=ast.Constant(value=str(text))):
                cleaned = inspect.cleandoc(text)
                yield Explanation(name, "state", None, _summary_of(cleaned), cleaned)


def _summary_of(text: str) -> str:
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).split(". ")[0].rstrip(".") + "."


def _explain_error(kind: type[MailboatError]) -> Explanation:
    text = inspect.cleandoc(kind.__doc__ or "")
    return Explanation(kind.__name__.removesuffix("Error"), _kind_of(kind), kind.exit_code, _summary_of(text), text)


def _kind_of(kind: type[MailboatError]) -> str:
    for ancestor, word in (
        (StopError, "needs-operator"),
        (RetryableError, "transient"),
        (UsageError, "usage"),
        (UntrustedInputError, "rejected"),
    ):
        if issubclass(kind, ancestor):
            return word
    return "permanent"


def _descendants(kind: type[MailboatError]) -> Iterator[type[MailboatError]]:
    """The class and all below it that users can meet: others, such as those of tests, are not ours."""
    if kind.__module__.startswith("mailboat.") and not kind.__module__.startswith(_NOT_FOR_USERS):
        yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)


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
    names = {explanation.lower(): explanation for explanation in known}
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


def _page(one: Explanation) -> Report:
    return Report(one.document(), [one.name], lambda: list(_page_lines(one)))


def _page_lines(one: Explanation) -> Iterator[str]:
    yield f"{one.name}   {one.kind}" + (f", exit code {one.exit_code}" if one.exit_code else "")
    yield ""
    yield from inspect.cleandoc(one.text).splitlines()

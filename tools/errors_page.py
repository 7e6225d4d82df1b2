"""`docs/errors.md`, and the catalogue of `mailboat explain` and the dashboard, from the docstrings of the classes.

The docstrings exist only where every module can be imported, with all extras. The catalogue is a file of the package,
so it is complete in an installation without them, and costs no import.
"""

from __future__ import annotations

import ast
import enum
import inspect
import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from mailboat.api.problems import import_all_modules
from mailboat.cli.explain import Explanation
from mailboat.control.subscriber_directory import Absence
from mailboat.errors import MailboatError, PermanentError, RetryableError, StopError, UntrustedInputError, UsageError
from mailboat.subscriber.figures import SubscriberPhase

_NOT_FOR_USERS: Final = ("mailboat.testing",)
_FAMILIES: Final = (MailboatError, PermanentError, StopError, UntrustedInputError)
"""What other errors derive from, and nothing raises itself."""

_EXIT_CODES: Final = {
    "transient": 75,
    "needs-operator": 6,
    "rejected": 4,
    "usage": 2,
    "permanent": 1,
    "state": None,
}
"""The exit code that most errors of a kind have; the page names the others."""


def documented_names() -> list[Explanation]:
    """All errors and states, sorted by name. Raises: ModuleNotFoundError: an extra is missing."""
    import_all_modules(but=_NOT_FOR_USERS, needs_extras=True)
    found = [_explain_error(descendant) for descendant in _descendants(MailboatError) if descendant not in _FAMILIES]
    found += [*_explain_states(SubscriberPhase), *_explain_states(Absence)]
    return sorted(found, key=lambda explanation: explanation.name)


def catalogue() -> str:
    """The JSON document of the package."""
    documents = {
        explanation.name: {
            "kind": explanation.kind,
            "exit_code": explanation.exit_code,
            "text": explanation.text,
        }
        for explanation in documented_names()
    }
    return json.dumps(documents, indent=0) + "\n"


def errors_page() -> str:
    """`docs/errors.md`."""
    lines = [
        "# Errors and named states",
        "",
        "Generated from the docstrings of the classes by `make docs`. To print one:",
        "",
        "```",
        "mailboat explain JournalTrimmed",
        "```",
        "",
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
    for explanation in documented_names():
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
                yield Explanation(name, "state", None, inspect.cleandoc(text))


def _explain_error(kind: type[MailboatError]) -> Explanation:
    text = inspect.cleandoc(kind.__doc__ or "")
    return Explanation(kind.__name__.removesuffix("Error"), _kind_of(kind), kind.exit_code, text)


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

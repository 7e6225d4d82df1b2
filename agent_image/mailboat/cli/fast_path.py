"""The short way to a subscriber: the usual command lines of `subscribe` are read here, without the framework.

A restart of a subscriber with nothing to do should cost little, and the framework takes a third of its CPU time. Other
options, help and bad values are left to the framework, which says what is wrong; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mailboat.cli.session import Defaults, SharedOptions, session_from
from mailboat.composition.environment import current_settings

COMMAND: Final = "subscribe"

_WITH_VALUE: Final = frozenset({"--home", "--into", "--follow", "--until"})
_BEFORE: Final = "--home"
"""The option that may also precede the command."""


def run_quickly(arguments: Sequence[str], defaults: Defaults) -> int | None:
    """Run a well-formed `subscribe` and return its exit code; None for others. Raises: as the command."""
    given = read_subscribe(arguments)
    if given is None:
        return None
    from mailboat.cli.subscriber_run import SubscriptionOptions, UntilOption, run_subscriber

    if "--verbose" in given:
        defaults.be_verbose()
    until = UntilOption(given.get("--until", "forever"))
    asked = SubscriptionOptions(given["name"], given.get("--into"), given.get("--follow", ()), until=until)
    session = session_from(current_settings(), defaults, SharedOptions(given.get("--home")))
    return run_subscriber(session, asked)


def read_subscribe(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The options of a well-formed `subscribe` by their names, `name` among them; None for anything else."""
    found: dict[str, Any] = {}
    is_behind = False
    words = iter(arguments)
    for word in words:
        if word == "--verbose":
            found[word] = True
        elif word in _WITH_VALUE and (is_behind or word == _BEFORE):
            value = next(words, "")
            if not value or value.startswith("-") or (word == "--until" and value not in {"caught-up", "forever"}):
                return None
            found[word] = (*found.get(word, ()), value) if word == "--follow" else value
        elif word == COMMAND and not is_behind:
            is_behind = True
        elif is_behind and word and not word.startswith("-") and "name" not in found:
            found["name"] = word
        else:
            return None
    if "--home" in found:
        found["--home"] = Path(found["--home"])
    return found if "name" in found else None

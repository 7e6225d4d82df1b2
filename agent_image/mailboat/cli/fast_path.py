"""The short way to a subscriber: well-formed command lines of `subscribe` are read here, without the framework.

A restart of a subscriber with nothing to do should cost little, and importing the framework costs as much CPU as the
import of a hundred packages. Whatever is not surely understood here (help, a misspelt option, a bad value) is left to
the framework, which says what is wrong; a test compares the two over all options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from mailboat.cli.output import Output
from mailboat.cli.session import Defaults, Session, SharedOptions, session_from
from mailboat.composition.environment import current_settings
from mailboat.config.document import Expose

COMMAND: Final = "subscribe"

Readers = Mapping[str, Callable[[str], Any]]


def run_quickly(arguments: Sequence[str]) -> int | None:
    """Run the command line if it is surely a well-formed `subscribe`; its exit code if so. Raises: as the command."""
    given = read_subscribe(arguments)
    if given is None:
        return None
    from mailboat.cli.subscriber_run import SubscriptionOptions, UntilOption, run_subscriber

    asked = SubscriptionOptions(
        given["name"],
        given.get("--into"),
        given.get("--follow", ()),
        given.get("--max-retries"),
        UntilOption(given.get("--until", "forever")),
        "--accept-gap" in given,
        given.get("--expose"),
        is_shared(given),
    )
    return run_subscriber(_session(given), asked)


def read_subscribe(arguments: Sequence[str]) -> dict[str, Any] | None:
    """The options of a well-formed `subscribe` by their names, `name` among them; None for anything else."""
    if COMMAND not in arguments:
        return None
    at = arguments.index(COMMAND)
    before = _read(arguments[:at], _BEFORE, frozenset({"--verbose"}))
    behind = _read(arguments[at + 1 :], _BEHIND, frozenset({"--verbose", "--accept-gap", *_SHARING}))
    if before is None or behind is None or "name" not in behind or "name" in before or behind.keys() >= _SHARING.keys():
        return None
    return {**before, **behind}


def is_shared(given: Mapping[str, Any]) -> bool | None:
    """Whether the subscriber shares its packages with others; None where the command line does not say it."""
    return next((value for flag, value in _SHARING.items() if flag in given), None)


def _read(arguments: Sequence[str], options: Readers, flags: frozenset[str]) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    remaining = iter(arguments)
    for argument in remaining:
        if argument in flags:
            found[argument] = True
        elif argument in options:
            if not _put(found, argument, next(remaining, ""), options):
                return None
        elif argument and not argument.startswith("-") and "name" not in found:
            found["name"] = argument
        else:
            return None
    return found


def _put(found: dict[str, Any], name: str, text: str, options: Readers) -> bool:
    """Take the value of an option; False when it is missing or not one that is surely good."""
    if not text or text.startswith("-"):
        return False
    try:
        value = options[name](text)
    except ValueError:
        return False
    name = "--output" if name == "-o" else name
    found[name] = (*found.get(name, ()), value) if name == "--follow" else value
    return True


def _until(text: str) -> str:
    if text not in {"caught-up", "forever"}:
        raise ValueError(text)
    return text


_SHARING: Final = MappingProxyType({"--shared": True, "--alone": False})
_BEFORE: Final[Readers] = MappingProxyType({"--home": Path})
_BEHIND: Final[Readers] = MappingProxyType(
    {
        "--home": Path,
        "--output": Output,
        "-o": Output,
        "--into": str,
        "--follow": str,
        "--max-retries": int,
        "--until": _until,
        "--expose": Expose,
    }
)


def _session(given: Mapping[str, Any]) -> Session:
    output = given.get("--output", Output.TABLE)
    return session_from(
        current_settings(), Defaults(), SharedOptions(given.get("--home"), output, "--verbose" in given)
    )

"""Which states are coloured, and how: green is well, yellow goes on without help, red needs a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mailboat.cli.tables import ABSENT

_GOOD: Final = "green"
_BUSY: Final = "yellow"
_BAD: Final = "bold red"

_STATES: Final[Mapping[str, str]] = {
    "current": _GOOD,
    "distributed": _GOOD,
    "idle": _GOOD,
    "yes": _GOOD,
    "importing": _BUSY,
    "queued": _BUSY,
    "retrying": _BUSY,
    "running": _BUSY,
    "starting": _BUSY,
    "suspended": _BUSY,
    "waiting": _BUSY,
    "waiting-for": _BUSY,
    "active": _BUSY,
    "publishing": _BUSY,
    "published": _BUSY,
    "incomplete": _BUSY,
    "unassigned": _BUSY,
    "succeeded": _GOOD,
    "blocked": _BAD,
    "given-up": _BAD,
    "silent": _BAD,
    "failed": _BAD,
    "no": _BAD,
    "stopped": "dim",  # asked to, or by an error, which is red next to it
}


def state_style(text: str) -> str:
    """The style of a state by its first word; unknown ones are plain."""
    return _STATES.get(text.split(" ", maxsplit=1)[0].lower(), "")


def error_style(text: str) -> str:
    """The style of a cell that names an error, if there is one."""
    return "" if text in {"", ABSENT} else "red"

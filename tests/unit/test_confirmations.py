"""The command line and the dashboard name the same consequences of an action, before it is done or in its help."""

from __future__ import annotations

import re
from pathlib import Path

import mailboat
import pytest
from mailboat.cli import errors, queues, snapshots, subscribers

STATIC = Path(mailboat.__file__).parent / "http" / "static"
SHOWN = {
    "clear": ("subscriber.js", 'label: "Clear queue', "action:"),
    "remove": ("subscriber.js", 'label: "Remove", kind', "action:"),
    "forget": ("subscriber.js", 'label: "Remove subscriber', "action:"),
    "suspend": ("subscriber.js", 'label: "Suspend imports', "action:"),
    "redrive": ("errors.js", "const WARNING", "const redrive"),
    "restore": ("storage.js", "function restoreButton", "return actionButton"),
}
"""The part of a file of the dashboard that asks."""
SAID = {
    "clear": queues.drop_question("all 3 packages", "author", "web", 3),
    "remove": queues.drop_question("1 package", "author", "web", 1),
    "forget": subscribers.forget.__doc__,
    "suspend": subscribers.suspend.__doc__,
    "redrive": errors.redrive.__doc__,
    "restore": snapshots.restore_question("blob:old", "sqlite:web.db"),
}
CONSEQUENCES = {
    "clear": ["Drop", "will not import"],
    "remove": ["Drop", "will not import"],
    "forget": ["stop waiting for it", "retention"],
    "suspend": ["current batch", "also through restarts", "Publishers do not wait for it"],
    "redrive": ["in the order of their offsets", "Content that was published later may be overwritten"],
    "restore": [
        "content, position and error queue of",
        "later packages are imported again",
        "also",
        "dropped",
        "hook after",
        "jobs.on adds no job twice",
        "commands",
        "refused",
        "subscribers staged behind it wait for packages that a newer snapshot skips",
        "publish them again",
    ],
}


def plain(text: str | None) -> str:
    return re.sub(r"\s+", " ", str(text).replace("`", "").replace("\\", "")).lower()


@pytest.mark.parametrize("action", CONSEQUENCES)
def test_dashboard_and_command_line_name_the_same_consequences(action: str) -> None:
    name, first, last = SHOWN[action]
    code = (STATIC / name).read_text()
    shown = code[code.index(first) :]
    shown = shown[: shown.index(last)]
    for consequence in CONSEQUENCES[action]:
        assert plain(consequence) in plain(shown), f"the dashboard does not say: {consequence}"
        assert plain(consequence) in plain(SAID[action]), f"the command line does not say: {consequence}"

"""Prompts and help of the command line and the dialogs of the dashboard have the same texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from mailboat.api.confirmations import CONFIRMATIONS, RESTORE, RESTORE_BACK, RESTORE_FORWARD, STAGED_WAIT
from mailboat.api.dashboard_files import dashboard_answer
from mailboat.cli.program import build_app

ROOT = Path(__file__).parents[2]
SCRIPTS = "".join(script.read_text() for script in sorted((ROOT / "agent_image/mailboat/api/dashboard").glob("*.js")))
COMMANDS = {
    "DROP": ["queues clear", "queues remove"],
    "FORGET": ["subscribers forget"],
    "SUSPEND": ["subscribers suspend"],
    "REDRIVE": ["errors redrive"],
    "RESTORE": ["content restore"],
    "SWEEP": ["blobs sweep"],
    "SUSPEND_JOBS": ["jobs suspend"],
    "CLEAR_JOBS": ["jobs clear"],
    "STOP_JOBS": ["jobs stop"],
    "REMOVE_JOBS": ["jobs remove"],
    "RETRY_JOBS": ["jobs retry"],
}


def folded(text: str | None) -> str:
    return " ".join(str(text).split())


@pytest.fixture(scope="module")
def program() -> Any:
    return typer.main.get_command(build_app())


@pytest.mark.parametrize(("name", "command"), [(name, command) for name, all_ in COMMANDS.items() for command in all_])
def test_help_of_a_command_has_the_consequences(program: Any, name: str, command: str) -> None:
    group, verb = command.split()
    assert folded(program.commands[group].commands[verb].help).endswith(CONFIRMATIONS[name].consequences)


def test_dashboard_gets_the_texts_of_the_command_line() -> None:
    body, headers, media_type = dashboard_answer("/dashboard/confirmations.js", "")
    served = json.loads(body.decode().removeprefix("export const CONFIRMATIONS = ").removesuffix(";\n"))
    assert served == {name: known._asdict() for name, known in CONFIRMATIONS.items()}
    assert media_type == "text/javascript"
    assert "script-src 'self'" in headers["Content-Security-Policy"]


def test_scripts_of_the_dashboard_name_each_text_and_repeat_none() -> None:
    assert set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', SCRIPTS)) >= set(CONFIRMATIONS)
    for known in CONFIRMATIONS.values():
        repeated = [text for text in re.split(r"[.:;] ?", known.consequences) if text in SCRIPTS and "{" not in text]
        assert not any(repeated), repeated


def test_prompt_is_question_and_consequences() -> None:
    asked = RESTORE.question(target="sqlite:web.db", snapshot="{blob}")
    assert asked.startswith("Replace content, position and error queue of sqlite:web.db by those of {blob}? Its")
    assert asked.endswith(STAGED_WAIT)


def test_restore_says_what_its_direction_means() -> None:
    page = folded((ROOT / "docs/how-to/back-up-and-restore.md").read_text())
    for known in (RESTORE_BACK, RESTORE_FORWARD):
        _, during, *others = known.consequences.split(". ")
        assert all(sentence in RESTORE.consequences for sentence in (during, *others))
        assert all(sentence in page for sentence in others)
    assert RESTORE_FORWARD.consequences.endswith(STAGED_WAIT)

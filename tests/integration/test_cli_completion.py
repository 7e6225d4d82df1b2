"""What a shell is offered while a command line is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mailboat.cli.completion import subscriber_names
from mailboat.composition.home import Home, RegisteredSubscriber
from mailboat.model.identifiers import AgentName


def completed(words: str, **environment: str) -> list[str]:
    """What bash would be offered."""
    variables = {
        "_MAILBOAT_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "mailboat.cli"],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_commands_and_subscribers_are_completed(boat: Any) -> None:
    Home(boat.home).remember_subscriber(RegisteredSubscriber(AgentName("edge-1"), "files:/srv"))
    assert completed("mailboat sta") == ["status"]
    assert completed("mailboat errors ls ed", MAILBOAT_HOME=str(boat.home)) == ["edge-1"]
    assert completed("mailboat errors ls ed", MAILBOAT_HOME="/nowhere") == []
    assert callable(subscriber_names)


COMPLETE = """
eval "$(mailboat completion bash)"
COMP_WORDS=(mailboat "$@") COMP_CWORD=$#
function=$(complete -p mailboat | grep -o -- '-F [^ ]*' | cut -c4-)
"$function" mailboat
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""The script is loaded as a user does, and the function that it registers is called as bash does."""


def test_bash_completes_by_the_script_that_is_printed(boat: Any, tmp_path: Path) -> None:
    Home(boat.home).remember_subscriber(RegisteredSubscriber(AgentName("edge-1"), "files:/srv"))
    program = tmp_path / "mailboat"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mailboat.cli "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    environment["MAILBOAT_HOME"] = str(boat.home)
    for words, expected in ((["sta"], "status"), (["errors", "ls", "ed"], "edge-1")):
        command = ["bash", "--norc", "-c", COMPLETE, "bash", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [expected], done.stderr


def test_queues_and_publishers_are_completed_from_the_home(boat: Any, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    boat.do("publish", tmp_path, "/a", "--publisher", "editor")
    boat.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    home = str(boat.home)
    assert completed("mailboat queues show w", MAILBOAT_HOME=home) == ["web"]
    assert completed(f"mailboat --home {home} queues ls --publisher e") == ["editor"]
    assert completed("mailboat queues show w", MAILBOAT_HOME="/nowhere") == []
    assert completed("mailboat --url http://127.0.0.1:9 errors ls w") == []

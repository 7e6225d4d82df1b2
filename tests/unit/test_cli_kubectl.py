"""`kubectl mailboat`: which Publisher and which Secret are meant, and what it says when it can't go on."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from mailboat.cli.help_page import COMMANDS
from mailboat.cli.kubectl import REMOTE_COMMANDS, ask, decide_publisher, run, token_secret
from mailboat.cli.kubectl_completion import Typed, candidates, decide_typed
from mailboat.errors import UsageError


def publisher(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def test_the_only_publisher_is_meant_without_being_named() -> None:
    assert decide_publisher([publisher("author")], None)["metadata"]["name"] == "author"


def test_of_several_publishers_the_named_one_is_meant() -> None:
    assert decide_publisher([publisher("a"), publisher("b")], "b")["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    ("names", "wanted", "message", "next_step"),
    [
        ([], None, "there is no Publisher", "--all-namespaces"),
        (["b", "a"], None, "several Publishers", "a, b"),
        (["a"], "c", "there is no Publisher c", "a"),
    ],
)
def test_a_publisher_that_can_not_be_told_is_asked_for(
    names: list[str], wanted: str | None, message: str, next_step: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        decide_publisher([publisher(name) for name in names], wanted)
    assert next_step in str(caught.value.next_step)


def test_the_token_is_in_the_secret_that_the_publisher_names_or_else_in_its_own() -> None:
    assert token_secret(publisher("author")) == "author-token"
    assert token_secret(publisher("author", http={"tokenSecretRef": {"name": "mine"}})) == "mine"


def test_the_commands_are_those_that_ask_an_agent() -> None:
    def asks(module: str) -> bool:
        return "@remote_command" in Path(str(importlib.import_module(f"mailboat.cli.{module}").__file__)).read_text()

    by_module = {name: entry.module for name, entry in COMMANDS.items() if asks(entry.module)}
    wanted = {*by_module} - {"bulk"}  # which reads sources where it runs
    assert {*REMOTE_COMMANDS} == wanted, "commands with @remote_command have `is_remote` in TOPICS of cli/help_page.py"


def test_the_help_tells_options_and_commands_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ask(["--help"])
    said = capsys.readouterr().out
    assert "kubectl mailboat [options] COMMAND" in said
    assert "\n  queues         Show pending packages per subscriber" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "a command is missing"), (["demo"], "'demo' is not a command of agents"), (["--what"], "--what")],
)
def test_what_is_no_command_of_an_agent_is_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_machine_without_kubectl_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask(["status"]) == 2
    assert "kubectl is not in PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], Typed([], [], None, "")),
        (["sta"], Typed([], [], None, "sta")),
        (["-n", "sh"], Typed([], (), "namespace", "sh")),
        (["--publisher=au"], Typed([], (), "publisher", "au")),
        (["-n", "shop", "--context=blue", "queues", ""], Typed(["-n", "shop", "--context=blue"], ["queues"], None, "")),
        (["queues", "ls", "--publisher=au"], Typed([], ["queues", "ls"], None, "--publisher=au")),
    ],
)
def test_completion_tells_options_from_the_command(words: list[str], expected: Typed) -> None:
    assert decide_typed(words) == expected


def test_streams_that_the_caller_closed_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "stdin", None)
    monkeypatch.setattr("mailboat.cli.kubectl.ask", lambda _: seen.append(sys.stdin))
    with pytest.raises(SystemExit):
        run()
    (stdin,) = seen
    assert not stdin.isatty()
    stdin.close()


def test_completion_offers_commands_and_options_without_a_cluster() -> None:
    assert candidates(["qu"]) == ([f"queues\t{REMOTE_COMMANDS['queues']}"], 4)
    assert candidates(["-n", "shop", "--co"]) == (["--context"], 4)
    assert len(candidates([""])[0]) == len(REMOTE_COMMANDS)
    assert candidates(["--kubeconfig", ""]) == ([], 0)

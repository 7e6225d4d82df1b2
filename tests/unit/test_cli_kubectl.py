"""`kubectl mailboat`: which Publisher and which Secret are meant, and what it says when it can't go on."""

from __future__ import annotations

import base64
import importlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from mailboat.cli.kubectl import REMOTE_COMMANDS, ask, decide_publisher, token_secret
from mailboat.cli.main import COMMANDS
from mailboat.errors import UsageError


def publisher(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def kubectl(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name at the head of PATH; it writes its arguments to `asked` beside it."""
    program = folder / "kubectl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_only_publisher_is_meant_without_being_named() -> None:
    assert decide_publisher([publisher("author")], None)["metadata"]["name"] == "author"


def test_of_several_publishers_the_named_one_is_meant() -> None:
    assert decide_publisher([publisher("a"), publisher("b")], "b")["metadata"]["name"] == "b"


@pytest.mark.parametrize(
    ("names", "wanted", "message", "next_step"),
    [
        ([], None, "there is no Publisher", "--all-namespaces"),
        (["b", "a"], None, "which Publisher", "a, b"),
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

    by_module = {name: module for name, module in COMMANDS.items() if asks(module)}
    assert {*REMOTE_COMMANDS} == {*by_module} - {"plan", "bulk"}  # which read sources where they run


def test_the_help_tells_options_and_commands_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ask(["--help"])
    said = capsys.readouterr().out
    assert "kubectl mailboat [options] COMMAND" in said
    assert "\n  queues         pending packages per subscriber" in said


def test_the_help_of_a_command_asks_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, "exit 1", monkeypatch)
    assert ask(["-n", "shop", "status", "--help"]) == 0
    assert "--watch" in capsys.readouterr().out
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "a command is missing"), (["demo"], "'demo' is no command that an agent answers"), (["--what"], "--what")],
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


def test_what_kubectl_can_not_do_is_said_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, 'echo "error: the server is away" >&2; exit 1', monkeypatch)
    assert ask(["-n", "shop", "--context", "blue", "status"]) == 1
    said = capsys.readouterr().err
    assert "KubectlFailed" in said
    assert "error: the server is away" in said
    assert (tmp_path / "asked").read_text() == (
        "--namespace=shop --context=blue get publishers.mailboat.dev --output=json\n"
    )


def cluster_script(secret: dict[str, str], forwarding: str) -> str:
    found = json.dumps({"items": [publisher("author")]})
    return f"""case "$*" in
*publishers*) echo '{found}' ;;
*secrets*) echo '{json.dumps({"data": secret})}' ;;
*port-forward*) {forwarding} ;;
esac"""


def test_a_port_that_can_not_be_forwarded_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    token = base64.b64encode(b"secret-of-this-test").decode()
    kubectl(tmp_path, cluster_script({"token": token}, 'echo "error: pod is not running" >&2; exit 1'), monkeypatch)
    assert ask(["status"]) == 1
    said = capsys.readouterr().err
    assert "can't forward a port of service/author: error: pod is not running" in said
    assert "secret-of-this-test" not in said + (tmp_path / "asked").read_text()


def test_a_secret_without_a_token_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl(tmp_path, cluster_script({}, "exit 1"), monkeypatch)
    assert ask(["status"]) == 2
    assert "the Secret author-token has no entry 'token'" in capsys.readouterr().err

"""The short way of `subscribe` understands what the framework understands, and leaves the rest to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from mailboat.cli import fast_path
from mailboat.cli.main import main
from mailboat.cli.output import Output
from mailboat.cli.program import build_app

COMMAND: Any = typer.main.get_command(build_app())
SUBSCRIBE = COMMAND.commands["subscribe"]
WORDS = st.sampled_from(
    [
        *("web", "a b", "", "-", "--", "files:x", "--into", "--into=x", "--follow", "--max-retries", "3", "-1", "x"),
        *("--until", "caught-up", "forever", "--accept-gap", "-o", "-ojson", "json", "--output", "--home", "--verbose"),
        *("--help", "-h", "--expose", "build", "package", "--shared", "--alone"),
    ]
)


def framework_reads(arguments: list[str]) -> dict[str, Any] | None:
    """What the framework makes of the words behind `subscribe`; None when it refuses them."""
    try:
        context = SUBSCRIBE.make_context("subscribe", list(arguments))
    except (typer.TyperException, typer.Exit):
        return None
    values = dict(context.params)
    values["follow"] = tuple(values["follow"] or ())
    return values


@given(st.lists(WORDS, max_size=8))
def test_what_is_understood_the_short_way_means_the_same_in_the_framework(words: list[str]) -> None:
    read = fast_path.read_subscribe(["subscribe", *words])
    if read is None:
        return
    expected = framework_reads(words)
    assert expected is not None
    assert expected == {
        "name": read["name"],
        "into": read.get("--into"),
        "follow": read.get("--follow", ()),
        "max_retries": None,
        "until": read.get("--until", "forever"),
        "accept_gap": False,
        "expose": None,
        "shared": None,
        "output": Output.TABLE,
        "home": read.get("--home"),
        "verbose": "--verbose" in read,
    }


def test_the_usual_options_take_the_short_way() -> None:
    words = ["--home", "h", "subscribe", "web", "--into", "files:x", "--follow", "a", "--follow", "b"]
    read = fast_path.read_subscribe([*words, "--until", "caught-up", "--verbose"])
    expected = {"--home": Path("h"), "name": "web", "--into": "files:x", "--follow": ("a", "b")}
    assert read == {**expected, "--until": "caught-up", "--verbose": True}


@pytest.mark.parametrize("words", [("subscribe", "web"), ("subscribe", "web", "--verbose")])
def test_the_short_way_prints_a_trace_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    shown = capsys.readouterr().err
    assert "error: HomeMissing: there is no Mailboat home at .mailboat\n" in shown
    assert ("Traceback" in shown) is ("--verbose" in words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["status"],
        ["publish", "subscribe"],
        ["subscribe"],
        ["subscribe", "web", "--help"],
        ["subscribe", "web", "--intoo", "files:x"],
        ["subscribe", "web", "--into"],
        ["subscribe", "web", "more"],
        ["subscribe", "web", "--max-retries", "few"],
        ["subscribe", "web", "--max-retries", "-1"],
        ["subscribe", "web", "-o", "json"],
        ["subscribe", "web", "--until", "later"],
        ["--into", "files:x", "subscribe", "web"],
        ["--version", "subscribe", "web"],
    ],
)
def test_everything_else_is_left_to_the_framework(words: list[str]) -> None:
    assert fast_path.read_subscribe(words) is None

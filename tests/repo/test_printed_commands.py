"""Every command that the product prints or explains is one that its own command line takes."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer
from mailboat.cli.program import build_app

ROOT = Path(__file__).parents[2]
MODULES = [
    path
    for folder in ("agent_image/mailboat", "operator/mailboat_operator")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"testing", "_generated"} & set(path.parts)
]
COMMAND = re.compile(r"(`?)(?<![\w-])(?:kubectl )?mailboat ((?!home\b)[a-z-][^\n`]*)")
END = re.compile(r"   \(| \(|, |; |\.$|\. |[)](?=$|,| )")
"""Where a sentence goes on behind a command that does not stand in backticks."""
VALUE = "1"
"""In the place of what is not known before the command is printed: a text, a path, a number."""


@cache
def application() -> Any:
    return typer.main.get_command(build_app())


def texts(module: Path) -> Iterator[tuple[int, str]]:
    """The texts of a module, with a value for each part that is filled in later."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            filled = (part.value if isinstance(part, ast.Constant) else VALUE for part in node.values)
            yield node.lineno, "".join(map(str, filled))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def printed_commands() -> Iterator[tuple[str, str, bool]]:
    """Where a command is printed, its words behind `mailboat`, and whether it is only mentioned."""
    for module in MODULES:
        for line, text in texts(module):
            for found in COMMAND.finditer(re.sub(r"\n +", " ", text) if "`" in text else text):
                is_mention = bool(found[1])
                words = found[2] if is_mention else END.split(found[2])[0]
                yield f"{module.relative_to(ROOT)}:{line}", words.strip(), is_mention


def refusal(words: list[str], *, is_mention: bool) -> str | None:
    """Why the command line does not take these words; a mention may leave out what the command needs."""
    if "--help" in words:
        return None
    inner, path = application(), "mailboat"
    while hasattr(inner, "commands"):
        while words and words[0].startswith("-"):
            words = words[1 if words[0] == "--verbose" else 2 :]
        if not words:
            return None if is_mention else f"{path} needs a command"
        if words[0] not in inner.commands:
            return f"{path} has no command {words[0]}"
        inner, path, words = inner.commands[words[0]], f"{path} {words[0]}", words[1:]
    try:
        inner.make_context(path, list(words))
    except typer.TyperException as error:
        told = error.format_message()
        return None if is_mention and told.startswith("Missing ") else told
    except typer.Exit:
        return None
    return None


def test_every_printed_command_is_one_that_the_command_line_takes() -> None:
    refused, found = dict[str, str](), set[tuple[str, bool]]()
    for place, command, is_mention in printed_commands():
        found.add((command, is_mention))
        words = re.sub(r"\[.*?\]|<.*?>|…", "", command) if is_mention else command
        reason = refusal(shlex.split(re.sub(r"\b[A-Z][A-Z-]+\b", VALUE, words)), is_mention=is_mention)
        if reason is not None:
            refused[f"{place}: {command}"] = reason
    assert refused == {}
    assert len(found) > 100

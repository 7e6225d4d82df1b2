"""Write the generated pages of `docs/`; with `--check`, only say which are not what the code gives.

Run through `make docs`. The pages are committed, so that they can be read without installing anything;
`tests/repo/test_generated.py` runs the check.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mailboat.cli.application import COMMANDS, build_app
from mailboat.cli.examples import EXAMPLES
from mailboat.cli.failures import EXIT_CODES
from mailboat.cli.glossary import errors_page
from mailboat.cli.help_page import argument_name, default_text, value_name
from mailboat.config.pages import configuration_page
from mailboat.http.application import api_description
from mailboat.telemetry.page import metrics_page
from mailboat_operator.api.page import resources_page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EVERYWHERE = {"home", "verbose", "help"}
"""Options that every command has."""


def pages() -> dict[str, str]:
    """Name of each generated page → its text."""
    return {
        "cli.md": command_line_page(),
        "configuration.md": configuration_page(),
        "custom-resources.md": resources_page(),
        "errors.md": errors_page(),
        "metrics.md": metrics_page(),
        "openapi.json": json.dumps(api_description(), indent=2, ensure_ascii=False) + "\n",
    }


def command_line_page() -> str:
    """`docs/cli.md`, from the commands themselves."""
    root: Any = typer.main.get_command(build_app())
    lines = [
        "# Command line",
        "",
        "Generated from the commands by `make docs`; `mailboat COMMAND --help` says the same.",
        "",
    ]
    lines += [f"{_paragraph(root.help)} Options of every command: `--home`, `--verbose`.", ""]
    for name in filter(root.commands.__contains__, COMMANDS):
        lines += list(_describe(root.commands[name], f"mailboat {name}", 2))
    lines += ["## Exit codes", "", "| code | means |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES]
    return "\n".join(lines) + "\n"


def _describe(command: Any, path: str, level: int) -> Iterator[str]:
    yield from ("#" * level + f" {path}", "", _paragraph(command.help), "")
    taken = [one for one in command.params if one.name not in EVERYWHERE and not getattr(one, "hidden", False)]
    if not hasattr(command, "commands"):
        is_option = [one.param_type_name == "option" for one in taken]
        words = [argument_name(one) for one in taken if one.param_type_name == "argument"]
        yield from ("```", " ".join([path, *words, *(["[OPTIONS]"] if any(is_option) else [])]), "```", "")
    context = command.make_context(path, [], resilient_parsing=True)
    if taken:
        yield from ("| argument or option | default | meaning |", "|---|---|---|")
        for one in sorted(taken, key=lambda one: one.param_type_name):
            default = f"`{default_text(one)}`" if default_text(one) else ""
            yield f"| {_names(one, context)} | {default} | {_cell(getattr(one, 'help', None))} |"
        yield ""
    examples = EXAMPLES.get(path.partition(" ")[2], ())
    if examples:
        yield from ("```", *examples, "```", "")
    for name, inner in getattr(command, "commands", {}).items():
        yield from _describe(inner, f"{path} {name}", level + 1)


def _names(one: Any, context: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{one.metavar or one.name.upper()}`"
    names = ", ".join([*one.opts, *one.secondary_opts])
    return f"`{names} {value_name(one, context)}".rstrip().replace("|", "\\|") + "`"


def _cell(text: str | None) -> str:
    return _paragraph(text).replace("|", "\\|")


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").replace("\b", "").split())


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    stale = [name for name, text in pages().items() if not _is_current(DOCS / name, text)]
    for name in stale:
        if "--check" in arguments:
            print(f"docs/{name} is not what the code gives: run `make docs`")
        else:
            (DOCS / name).write_text(pages()[name])
            print(f"docs/{name} written")
    return 1 if stale and "--check" in arguments else 0


def _is_current(page: Path, text: str) -> bool:
    return page.exists() and page.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Write the generated pages of `docs/`; with `--check`, only say which are not what the code gives.

Run through `make generate`, and through `make docs`, which installs Spark: the pages of errors need every module, and
are left out without it. The pages are committed, so that they can be read without installing anything;
`tests/repo/test_generated.py` runs the check.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
from chart_values import values_page
from errors_page import catalogue, errors_page
from mailboat.cli.error_report import EXIT_CODES
from mailboat.cli.help_page import COMMANDS, argument_name, default_text, value_name
from mailboat.cli.program import build_app
from mailboat.config.documentation import configuration_page
from mailboat.config.schema import SCHEMA_FILE, json_schema
from mailboat.http.application import api_description
from metrics_page import metrics_page
from resources_page import resources_page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXPLANATIONS = "../agent_image/mailboat/api/dashboard/explanations.json"
"""What `mailboat explain` and the dashboard show of an error, as seen from `docs`."""
EVERYWHERE = {"home", "verbose", "help", "output", "token_file", "url"}
"""Options that every command has, or all but a few."""
SEVERAL = 2
"""An argument or option that so many commands have, with the same meaning and default, is explained once."""


def pages() -> dict[str, str]:
    """Name of each generated page → its text; without those of errors where Spark is not installed."""
    found = {
        "chart-values.md": values_page(),
        "cli.md": command_line_page(),
        "configuration.md": configuration_page(),
        SCHEMA_FILE: json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n",
        "custom-resources.md": resources_page(),
        "metrics.md": metrics_page(),
        "openapi.json": json.dumps(api_description(), indent=2, ensure_ascii=False) + "\n",
    }
    if importlib.util.find_spec("pyspark") is None:
        print("pages of errors are left out: Spark is not installed (`make docs` installs it)", file=sys.stderr)
        return found
    return {**found, "errors.md": errors_page(), EXPLANATIONS: catalogue()}


def command_line_page() -> str:
    """`docs/cli.md`, from the commands themselves; an option of several commands is explained once."""
    root: Any = typer.main.get_command(build_app())
    commands = [found for name in COMMANDS if name in root.commands for found in _commands(root.commands[name], name)]
    common = _common_options(commands)
    lines = [
        "# Command line",
        "",
        "Generated from the commands by `make docs`. Each prints the same, with examples:",
        "",
        "```",
        "mailboat publish --help",
        "```",
        "",
        "## Common options",
        "",
        "Every command has `--home DIR` (default: `MAILBOAT_HOME`, else `.mailboat`), `--verbose`, which prints",
        "traces of errors, and `--help`. All but `completion` have `--output`, `-o`: table, json, yaml or name",
        "(default: `table`). All but those below have `--url URL`, which asks an agent (default: MAILBOAT_URL), and",
        "`--token-file FILE`, which has its token (default: the token MAILBOAT_TOKEN). Without `--url`:",
        "",
        f"{', '.join(f'`{path}`' for path, command in commands if _is_local(command))}.",
        "",
        "Arguments and options of several commands are explained only here; a name with commands in parentheses has",
        "this meaning in these:",
        "",
        *common.values(),
    ]
    for path, command in commands:
        lines += ["", *_describe(command, path, common)]
    lines += ["", "## Exit codes", ""]
    lines += [f"- {code}: {meaning}" for code, meaning in EXIT_CODES]
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it, with their paths."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{path} {name}")


def _is_local(command: Any) -> bool:
    """Whether a command works on a home or on files only."""
    return not hasattr(command, "commands") and "url" not in (parameter.name for parameter in command.params)


def _common_options(commands: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Arguments and options that mean the same for several commands: their line, and how the list shows it.

    A second meaning of a name is shown with the commands that it has it in.
    """
    used: dict[str, list[str]] = {}
    for path, command in commands:
        if not hasattr(command, "commands"):
            for parameter in (*_parameters(command, "argument"), *_parameters(command, "option")):
                used.setdefault(_line(parameter, command), []).append(path)
    several = sorted(
        ((line, paths) for line, paths in used.items() if len(paths) >= SEVERAL), key=lambda one: -len(one[1])
    )
    common: dict[str, str] = {}
    for line, paths in several:
        name, _, meaning = line.partition(":")
        first = name not in (seen.partition(":")[0] for seen in common)
        common[line] = line if first else f"{name} (`{', '.join(sorted(set(paths)))}`):{meaning}"
    return dict(sorted(common.items(), key=lambda one: one[1]))


def _parameters(command: Any, kind: str) -> list[Any]:
    is_hidden = {parameter.name: getattr(parameter, "hidden", False) for parameter in command.params}
    return [
        parameter
        for parameter in command.params
        if parameter.param_type_name == kind and parameter.name not in EVERYWHERE and not is_hidden[parameter.name]
    ]


def _describe(command: Any, path: str, common: Mapping[str, str]) -> Iterator[str]:
    is_group = hasattr(command, "commands")
    arguments, options = _parameters(command, "argument"), _parameters(command, "option")
    usage = " ".join(["mailboat", path, *([] if is_group else map(argument_name, arguments))])
    yield from (f"{'#' * (path.count(' ') + 2)} `{usage}`", "", _paragraph(command.help))
    if is_group:
        return
    lines = [_line(parameter, command) for parameter in (*arguments, *options)]
    own = [line for line in lines if line not in common]
    shared = [line.split(":")[0].removeprefix("- ") for line in lines if line in common]
    names = ", ".join(name.split(" ")[0].strip("`,") for name in shared if name.startswith("`-"))
    if own or names:
        yield from ("", *own, *[f"- [Common](#common-options): `{names}`"] * bool(names))


def _line(parameter: Any, command: Any) -> str:
    context = command.make_context(command.name, [], resilient_parsing=True)
    default = f" Default: `{default_text(parameter)}`." if default_text(parameter) else ""
    return f"- {_names(parameter, context)}: {_paragraph(getattr(parameter, 'help', None))}{default}"


def _names(one: Any, context: Any) -> str:
    if one.param_type_name == "argument":
        return f"`{one.metavar or one.name.upper()}`"
    names = ", ".join([*one.opts, *one.secondary_opts])
    return f"`{names} {value_name(one, context)}".rstrip() + "`"


def _paragraph(text: str | None) -> str:
    return " ".join((text or "").replace("\b", "").split())


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    stale = {name: text for name, text in pages().items() if not _is_current(DOCS / name, text)}
    for name, text in stale.items():
        if "--check" in arguments:
            print(f"docs/{name} is not what the code gives: run `make docs`")
        else:
            (DOCS / name).write_text(text)
            print(f"docs/{name} written")
    return 1 if stale and "--check" in arguments else 0


def _is_current(page: Path, text: str) -> bool:
    return page.exists() and page.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

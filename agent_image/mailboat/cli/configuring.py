"""`mailboat config`: check a configuration without starting anything, and its JSON Schema."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mailboat.cli.declaring import command
from mailboat.cli.rendering import Output, Report, count_text, show
from mailboat.cli.session import Session

if TYPE_CHECKING:
    from mailboat.agent.home import Home
    from mailboat.config.document import Config


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(name="config", help="Check configurations; their JSON Schema.", no_args_is_help=True)
    group.command("check")(check)
    group.command("schema")(schema)
    app.add_typer(group)


@command
def check(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="YAML or JSON; the home's own when left out.")
    ] = None,
) -> None:
    """Check a configuration, and print what holds with it: every key, secrets by where they are. Starts nothing."""
    from mailboat.agent.checking import check_config, shown_document
    from mailboat.http.access import check_access

    home, where = configuration(session, file)
    check_config(home, where, needs_agents=False)
    check_access(home.config.http, home.path)
    document = shown_document(home.config)
    if session.output is Output.TABLE:
        sys.stdout.write(f"# {where} can be run: {summary_of(home.config)}\n")
    output = Output.YAML if session.output is Output.TABLE else session.output
    show(Report(document, [where], list), output)


def configuration(session: Session, file: Path | None) -> tuple[Home, str]:
    """The home with the configuration of a file, or its own, and what to call the file.

    Raises: HomeMissingError, ConfigInvalidError.
    """
    from mailboat.agent.home import CONFIG_FILE, configured_home

    if file is None:
        return session.home(), str(session.home_path / CONFIG_FILE)
    return configured_home(file, session.home_path if session.is_home_given else None), str(file)


def summary_of(config: Config) -> str:
    """What a configuration would run, in one line."""
    agents = config.agents
    parts = [f"publisher {one.name}" for one in agents.publishers]
    parts += [count_text(len(agents.subscribers), "subscriber")] if agents.subscribers else []
    journal = "Kafka" if config.journal.kafka is not None else "embedded"
    return f"{', '.join(parts) or 'no agents'}; journal {journal}; API at {config.http.host}:{config.http.port}"


@command
def schema(session: Session) -> None:
    """Print the JSON Schema of the configuration: for editors and other checks."""
    from mailboat.config.schema import json_schema

    document = json_schema()
    output = Output.JSON if session.output is Output.TABLE else session.output
    show(Report(document, list(document["properties"]), lambda: [json.dumps(document)]), output)

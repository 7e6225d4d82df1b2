"""`mailboat config`: check a configuration without starting anything, and its JSON Schema."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mailboat.cli.help_page import command_group
from mailboat.cli.options import command
from mailboat.cli.output import Output, Report, count_text, show
from mailboat.cli.session import Session
from mailboat.composition.home import Home, configured_home, line_of
from mailboat.config.decoder import ConfigInvalidError, Mistake, invalid_config
from mailboat.config.document import Config
from mailboat.config.schema import json_schema
from mailboat.errors import UsageError
from mailboat.http.access import check_access
from mailboat.model.identifiers import parse_agent_name
from mailboat.operations.configuration_check import check_config, shown_document, warnings_of
from mailboat.printable import printable

app = command_group("config")


@app.command("check")
@command
def check(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="YAML or JSON. Default: the home's configuration.")
    ] = None,
) -> None:
    """Check a configuration, and print the effective one, with secrets as references. Starts nothing.

    A FILE is refused where `agent run` would refuse it.
    """
    home, where = checked_configuration(session, file, needs_agents=file is not None)
    for warning in warnings_of(home.config):
        session.note(f"warning: {warning}")
    document = shown_document(home.config)
    if session.output is Output.TABLE:
        agents, summary = home.config.agents, summary_of(home.config)
        can_run = bool(agents.publishers or agents.subscribers)
        verdict = f"can be run: {summary}" if can_run else f"is valid: {summary}; `mailboat agent run` needs agents"
        sys.stdout.write(f"# {printable(where)} {verdict}\n")
    output = Output.YAML if session.output is Output.TABLE else session.output
    show(Report(document, [where], list), output)


def configuration(session: Session, file: Path | None) -> Home:
    """The home, configured by a file or its own. Raises: HomeMissingError, ConfigInvalidError."""
    return (
        session.home() if file is None else configured_home(file, session.home_path if session.is_home_given else None)
    )


def checked_configuration(
    session: Session, file: Path | None, subscriber: str | None = None, *, needs_agents: bool = True
) -> tuple[Home, str]:
    """The home, configured by a file or its own, and the file's name, all checked.

    All that `agent run` refuses before it starts anything is refused here, so `config check` says the same.
    `subscriber` is another name for the only subscriber. Raises: HomeMissingError, ConfigInvalidError, UsageError.
    """
    home = configuration(session, file)
    if subscriber is not None:
        home = Home(home.path, _renamed(home.config, subscriber), home.config_file)
    where = str(home.config_file)
    check_config(home, where, needs_agents=needs_agents)
    try:
        check_access(home.config.http, home.path)
    except ConfigInvalidError as error:
        mistake = Mistake(str(error.where.get("key", "http.tokens")), error.message, error.next_step)
        raise invalid_config(where, [mistake], partial(line_of, home.config_file)) from error
    return home, where


def _renamed(config: Config, name: str) -> Config:
    """The configuration with another name of its only subscriber. Raises: UsageError when there is not just one."""
    subscribers = config.agents.subscribers
    if len(subscribers) != 1:
        raise UsageError(f"--subscriber names the only subscriber, but the configuration has {len(subscribers)}")
    agents = replace(config.agents, subscribers=(replace(subscribers[0], name=parse_agent_name(name)),))
    return replace(config, agents=agents)


def summary_of(config: Config) -> str:
    """What a configuration would run, in one line."""
    agents = config.agents
    parts = [f"publisher {publisher.name}" for publisher in agents.publishers]
    parts += [count_text(len(agents.subscribers), "subscriber")] if agents.subscribers else []
    journal = "Kafka" if config.journal.kafka is not None else "embedded"
    return f"{', '.join(parts) or 'no agents'}; journal {journal}; API at {config.http.host}:{config.http.port}"


@app.command("schema")
@command
def schema(session: Session) -> None:
    """Print the JSON Schema of the configuration: for editors and other checks."""
    document = json_schema()
    output = Output.JSON if session.output is Output.TABLE else session.output
    show(Report(document, list(document["properties"]), lambda: [json.dumps(document)]), output)

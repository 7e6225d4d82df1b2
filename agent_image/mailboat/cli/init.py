"""`mailboat init`."""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import command
from mailboat.cli.output import Report
from mailboat.cli.session import Session
from mailboat.composition.home import Home, create_home, home_command, home_without_journal
from mailboat.composition.places import check_folder_place
from mailboat.composition.workspace import initialise
from mailboat.config.document import Config
from mailboat.config.documentation import commented_yaml
from mailboat.config.storage import JournalConfig, KafkaConfig
from mailboat.errors import MailboatError, UsageError

app = PagedTyper()


def _config_on_kafka(servers: str) -> Config:
    brokers = tuple(broker.strip() for broker in servers.split(",") if broker.strip())
    return Config(journal=JournalConfig(kafka=KafkaConfig(brokers)))


def _initialised(home: Home, *, is_on_kafka: bool) -> str:
    """Make journal and blob folder of a new home. Returns: the journal's description."""
    try:
        with initialise(home) as workspace:
            return workspace.journal.description
    except MailboatError as error:
        if is_on_kafka:  # another `init` would find a home
            later = f"to go on, also with other brokers in {home.config_file}:"
            steps = error.next_step, later, home_command(home.path, "journal ensure")
            error.advise("\n".join(filter(None, steps)))
        raise


@app.command("init")
@command
def init(
    session: Session,
    only_print: Annotated[bool, typer.Option("--print", help="Print the configuration; create nothing.")] = False,
    new_journal: Annotated[
        bool,
        typer.Option(
            "--new-journal",
            help="Create a new journal in a home whose journal is lost; subscribers stop as JournalReplaced.",
        ),
    ] = False,
    kafka: Annotated[
        str | None, typer.Option("--kafka", metavar="HOST:PORT[,…]", help="Keep the journal on these Kafka brokers.")
    ] = None,
) -> None:
    """Create a home: journal (SQLite, or topics on Kafka), blob folder, configuration with comments."""
    if new_journal and kafka is not None:
        raise UsageError("--new-journal keeps the configuration of the home, and so its kind of journal: omit --kafka")
    config = Config() if kafka is None else _config_on_kafka(kafka)
    if only_print:
        typer.echo(commented_yaml(config), nl=False)
        return

    check_folder_place(session.home_path)
    home = home_without_journal(session.home_path) if new_journal else create_home(session.home_path, config)
    journal = _initialised(home, is_on_kafka=kafka is not None)
    s3 = home.config.blobs.s3
    # a bucket by its name alone: its credentials need not be here yet
    blobs = str(home.blobs_path) if s3 is None else f"s3://{s3.bucket}/{s3.prefix}".rstrip("/")
    document = {"home": str(home.path), "journal": journal, "blobs": blobs}
    if new_journal:
        session.note(
            "the journal is a new one: subscribers of the lost one stop as JournalReplaced, until each is given"
        )
        session.note("a new target; publish the whole content again for them (mailboat explain JournalReplaced)")
    session.show(
        Report(
            document,
            [str(home.path)],
            lambda: [
                f"home     {home.path}   configuration in {home.path / 'mailboat.yaml'}",
                f"journal  {journal}",
                f"blobs    {blobs}",
            ],
        )
    )

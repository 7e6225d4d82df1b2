"""`mailboat init`."""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat.cli.declaring import command
from mailboat.cli.rendering import Report
from mailboat.cli.session import Session
from mailboat.config import Config, commented_yaml


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init")(init)


@command
def init(
    session: Session,
    only_print: Annotated[bool, typer.Option("--print", help="Print the configuration; make nothing.")] = False,
) -> None:
    """Make a home: SQLite journal, blob folder, configuration with comments."""
    if only_print:
        typer.echo(commented_yaml(Config()), nl=False)
        return
    from mailboat.agent.composition import initialise
    from mailboat.agent.home import create_home

    home = create_home(session.home_path, Config())
    with initialise(home) as workspace:
        journal = workspace.journal.description
    document = {"home": str(home.path), "journal": journal, "blobs": str(home.blobs_path)}
    session.show(
        Report(
            document,
            [str(home.path)],
            lambda: [
                f"home     {home.path}   configuration in {home.path / 'mailboat.yaml'}",
                f"journal  {journal}",
                f"blobs    {home.blobs_path}",
            ],
        )
    )

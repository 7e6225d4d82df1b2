"""`mailboat subscribe`: runs a subscriber in this process until it is caught up, or until it is stopped.

Declares the options; `subscriber_run.py` does it, and `fast_path.py` leads there without the framework.
"""

from __future__ import annotations

from typing import Annotated

import typer

from mailboat.cli.completion import SubscriberArgument
from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import command
from mailboat.cli.session import Session
from mailboat.cli.subscriber_run import SubscriptionOptions, UntilOption, run_subscriber
from mailboat.config.document import Expose

app = PagedTyper()


@app.command("subscribe")
@command
def subscribe(
    session: Session,
    name: SubscriberArgument,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="TARGET", help="files:DIR, generations:DIR or sqlite:FILE. Remembered."),
    ] = None,
    follow: Annotated[
        list[str] | None,
        typer.Option(
            "--follow", metavar="PUBLISHER", help="Follow only this publisher; repeatable. Remembered. Default: all."
        ),
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option(
            "--max-retries",
            min=-1,
            help="Retries before a package is given up; -1: no limit. Remembered. Default: the configuration's.",
        ),
    ] = None,
    until: Annotated[UntilOption, typer.Option("--until", help="When to end.")] = UntilOption.FOREVER,
    expose: Annotated[
        Expose | None,
        typer.Option(
            "--expose",
            help="When readers see content: after each package or bulk build (generations:DIR only). Remembered.",
        ),
    ] = None,
    shared: Annotated[
        bool | None,
        typer.Option(
            "--shared/--alone",
            help="Whether several processes share this NAME and target. Remembered.",
        ),
    ] = None,
    accept_gap: Annotated[
        bool,
        typer.Option("--accept-gap", help="Go on although packages are missing from the journal; content may differ."),
    ] = False,
) -> None:
    """Import everything that is published, in order, into a target.

    With --until caught-up the exit code is 1 when packages were given up.
    """
    asked = SubscriptionOptions(name, into, tuple(follow or ()), max_retries, until, accept_gap, expose, shared)
    code = run_subscriber(session, asked)
    if code:
        raise typer.Exit(code)

"""`mailboat subscribers`: who is on the books."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mailboat.cli.completion import subscriber_names
from mailboat.cli.declaring import remote_command
from mailboat.cli.rendering import Report
from mailboat.cli.session import Session


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(name="subscribers", help="Who is on the books.", no_args_is_help=True)
    group.command("forget")(forget)
    app.add_typer(group)


@remote_command
def forget(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the subscriber.", autocompletion=subscriber_names)],
) -> None:
    """Forget a subscriber that will not come back: nobody waits for it any more. Its target stays as it is."""
    with session.control() as control:
        found = control.forget(name)
    target = f"; its target {found.target} is untouched" if found.target else ""
    session.show(Report(asdict(found), [found.name], lambda: [f"{found.name} is forgotten{target}"]))

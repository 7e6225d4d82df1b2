"""`mailboat status`: the journal, its publishers, and each subscriber's position; once, or refreshed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import remote_command
from mailboat.cli.output import Output
from mailboat.cli.session import Session
from mailboat.cli.status_board import Order, StatusSelection, status_report
from mailboat.clock import SystemClock

app = PagedTyper()


@app.command("status")
@remote_command
def status(
    session: Session,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C or q.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, max=86_400, help="Refresh interval for --watch.")
    ] = 1.0,
    sort: Annotated[Order, typer.Option("--sort", help="Order of the subscribers.")] = Order.NAME,
    wanted: Annotated[
        str, typer.Option("--filter", metavar="TEXT", help="Only subscribers with TEXT in name, state or error.")
    ] = "",
) -> None:
    """Show the journal, its publishers, and each subscriber's position and lag."""
    clock, selection = SystemClock(), StatusSelection(sort, wanted)
    with session.control() as control:
        if not watch:
            session.show(status_report(selection.applied(control.status()), clock.now(), sort))
            return
        from mailboat.cli.status_watch import TerminalWatch, polls, watch_for_programs, watch_in_lines  # with rich

        if session.output is not Output.TABLE:
            watch_for_programs(session, polls(control, clock, every), selection)
        elif sys.stdout.isatty():
            TerminalWatch(session, control, clock, every).run(selection)
        else:
            watch_in_lines(polls(control, clock, every), clock, selection)

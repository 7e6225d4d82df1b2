"""`mailboat status`: the journal, its publishers, and how far every subscriber is; once, or again and again."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import typer

from mailboat.api.control import Control
from mailboat.api.records import StatusView, document_of
from mailboat.cli.declaring import remote_command
from mailboat.cli.rendering import Block, Output, blocks_text, seconds_text
from mailboat.cli.session import Session
from mailboat.cli.status_board import changed_lines, fitted_blocks, status_report
from mailboat.clock import Clock, SystemClock
from mailboat.errors import RetryableError

_LINES_AROUND: Final = 2
"""What a terminal needs besides the table: a line for news, and the one that the cursor stands in."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("status")(status)


@remote_command
def status(
    session: Session,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, help="Refresh interval for --watch.")
    ] = 1.0,
) -> None:
    """Show the journal, its publishers, and each subscriber's position and lag."""
    clock = SystemClock()
    with session.control() as control:
        if not watch:
            session.show(status_report(control.status(), clock.now()))
        elif session.output is not Output.TABLE:
            _watch_for_programs(session, control, clock, every)
        elif sys.stdout.isatty():
            _watch_on_terminal(session, control, clock, every)
        else:
            _watch_in_lines(control, clock, every)


def _looks(control: Control, clock: Clock, every: float) -> Iterator[StatusView | RetryableError]:
    """One look after the other, for ever; one that fails for a while is no reason to end."""
    pause = threading.Event()
    while True:
        try:
            yield control.status()
        except RetryableError as error:
            yield error
        clock.wait(pause, every)


def _watch_for_programs(session: Session, control: Control, clock: Clock, every: float) -> None:
    """A JSON document a line, or whatever else was asked for, again and again."""
    for view in _looks(control, clock, every):
        if isinstance(view, RetryableError):
            session.note(str(view))
        elif session.output is Output.JSON:
            sys.stdout.write(json.dumps(document_of(view), ensure_ascii=False) + "\n")
            sys.stdout.flush()
        else:
            session.show(status_report(view, clock.now()))


def _watch_in_lines(control: Control, clock: Clock, every: float) -> None:
    """A line whenever a subscriber's figures have changed."""
    shown: dict[str, str] = {}
    for view in _looks(control, clock, every):
        lines = [str(view)] if isinstance(view, RetryableError) else changed_lines(view, shown)
        stamp = clock.now().astimezone().strftime("%H:%M:%S")
        sys.stdout.writelines(f"{stamp}  {line}\n" for line in lines)
        sys.stdout.flush()


def _watch_on_terminal(session: Session, control: Control, clock: Clock, every: float) -> None:
    """A table that changes in place; the last one stays when it ends."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    def height(blocks: Sequence[Block]) -> int:
        return blocks_text(blocks, sys.stdout).count("\n")

    console = Console(highlight=False)
    last: StatusView | None = None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for view in _looks(control, clock, every):
                room = console.height - _LINES_AROUND - 1
                stamp = clock.now().astimezone().strftime("%H:%M:%S")
                head = f"{stamp}   every {seconds_text(every)}   Ctrl-C ends"
                if isinstance(view, RetryableError):
                    blocks = [f"no answer: {view}"]
                    last_blocks = [] if last is None else fitted_blocks(last, clock.now(), room - 1, height)
                    text = blocks_text([head, *blocks, *last_blocks], sys.stdout)
                else:
                    last = view
                    text = blocks_text([head, *fitted_blocks(view, clock.now(), room, height)], sys.stdout)
                live.update(Text.from_ansi(text, no_wrap=True, overflow="ellipsis"), refresh=True)
    finally:
        if last is not None:
            session.show(status_report(last, clock.now()))

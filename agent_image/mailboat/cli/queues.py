"""`mailboat queues`: pending packages per subscriber; drops the ones that block."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from mailboat.api.confirmations import DROP
from mailboat.api.control import Control
from mailboat.api.records import QueueItemView, QueuePage, QueueView, document_of
from mailboat.cli.command_results import AnswerOption, show_commands
from mailboat.cli.completion import queue_names
from mailboat.cli.confirmation import SureOption, ask
from mailboat.cli.help_page import command_group
from mailboat.cli.options import PackagePublisherOption, remote_command
from mailboat.cli.output import Report, bytes_text, cause_text, count_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table, error_style, state_style
from mailboat.errors import UsageError
from mailboat.queues.queue_names import parse_entry_id

QueueArgument = Annotated[
    str,
    typer.Argument(metavar="QUEUE", help="A subscriber's name, or a queue's full name.", autocompletion=queue_names),
]
LIST_COLUMNS: Final = (
    Column("QUEUE"),
    Column("STATE", style=state_style),
    Column("PACKAGES", is_number=True),
    Column("OLDEST", can_cut=True),
    Column("ATTEMPTS", is_number=True),
    Column("TAKES"),
    Column("ERROR", can_fold=True, style=error_style),
)
ITEM_COLUMNS: Final = (
    Column("OFFSET", is_number=True),
    Column("QUEUED"),
    Column("ACTION"),
    Column("SIZE", is_number=True),
    Column("PATHS", can_cut=True),
    Column("STATE", style=state_style),
    Column("ATTEMPTS", is_number=True),
    Column("ERROR", can_fold=True, style=error_style),
)
_PAGE_ITEMS: Final = 500
_OFFSET: Final = re.compile(r"[0-9]{1,18}")
_PASSIVE: Final = "passive"
_VERBS: Final = {"clearable": "clear", "removable": "remove"}

_NOTHING = "nothing was dropped"

app = command_group("queues")


@app.command("ls")
@remote_command
def list_queues(session: Session, publisher: PackagePublisherOption = None) -> None:
    """List the queues of a publisher: one per subscriber, and its error queue if it has one."""
    name = session.shown_publisher(publisher)
    with session.control() as control:
        found = [queue for queue in control.queues(name) if queue.count or queue.state != _PASSIVE]
    session.show(
        Report(
            document_of(found),
            [queue.name for queue in found],
            lambda: [Table(LIST_COLUMNS, [_queue_row(queue) for queue in found], empty=f"{name} has no queues")],
        )
    )


def _queue_row(one: QueueView) -> list[str]:
    head = one.head
    return [
        queue_title(one),
        one.state,
        str(one.count) if one.exact else f"{_bound(one)} {one.count}",
        ABSENT if head is None else f"{head.offset} {head.action} {_paths_text(head)}".rstrip(),
        ABSENT if head is None or not head.attempts else str(head.attempts),
        ", ".join(_VERBS.get(each, each) for each in one.capabilities) or ABSENT,
        "" if head is None or head.error is None else cause_text(head.error),
    ]


def _bound(one: QueueView) -> str:
    """What the count is while it is not exact: of an error queue entries were dropped, of others the past is open."""
    return "≥" if one.state == _PASSIVE else "≤"


def queue_title(one: QueueView) -> str:
    """What people call a queue: its subscriber, and whether it holds what was given up."""
    return f"{one.subscriber} (given up)" if one.state == _PASSIVE else one.subscriber


def _paths_text(item: QueueItemView) -> str:
    return f"{item.path} … {item.path_count} paths" if item.path_count > 1 else item.path


@app.command("show")
@remote_command
def show(
    session: Session,
    queue: QueueArgument,
    start: Annotated[int, typer.Option("--from", metavar="OFFSET", min=0, help="First offset to show.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of packages.")] = 20,
    publisher: PackagePublisherOption = None,
) -> None:
    """Show the packages in a queue, oldest first."""
    name = session.shown_publisher(publisher)
    with session.control() as control:
        page, items = _read(control, name, queue, start, limit)
    document = {
        "queue": document_of(page.queue),
        "items": document_of(items),
        "next_offset": page.next_offset,
    }
    session.show(Report(document, [item.id for item in items], lambda: _page_blocks(page, items)))


def _read(
    control: Control, publisher: str, queue: str, start: int, limit: int
) -> tuple[QueuePage, list[QueueItemView]]:
    """The last page asked for, and the items of all pages."""
    items: list[QueueItemView] = []
    page = control.queue(publisher, queue, start, min(limit, _PAGE_ITEMS))
    items += page.items
    while page.next_offset is not None and len(items) < limit:
        page = control.queue(publisher, queue, page.next_offset, min(limit - len(items), _PAGE_ITEMS))
        items += page.items
    return page, items


def _page_blocks(page: QueuePage, items: Sequence[QueueItemView]) -> list[Any]:
    one = page.queue
    bound = "" if one.exact else f"{_bound(one)} "
    count = f"{bound}{count_text(one.count, 'package')}"
    blocks: list[Any] = [f"{queue_title(one)}  {one.state}  {count} of {one.publisher}"]
    blocks += [Table(ITEM_COLUMNS, [_item_row(item) for item in items])] if items else []
    if page.next_offset is not None:
        blocks.append(f"more from offset {page.next_offset}: --from {page.next_offset}")
    return blocks


def _item_row(item: QueueItemView) -> list[str]:
    return [
        str(item.offset),
        time_text(item.queued_at) or ABSENT,
        item.action,
        bytes_text(item.size_bytes),
        _paths_text(item),
        item.state,
        str(item.attempts or ABSENT),
        "" if item.error is None else cause_text(item.error),
    ]


@app.command("clear", asks=DROP)
@remote_command
def clear(
    session: Session,
    queue: QueueArgument,
    first: Annotated[
        int | None, typer.Option("--first", metavar="N", min=1, help="The first N packages. Default: all.")
    ] = None,
    yes: SureOption = False,
    wait: AnswerOption = 10.0,
    publisher: PackagePublisherOption = None,
) -> None:
    """Drop all packages in a queue of an editable subscriber."""
    name = session.shown_publisher(publisher)
    with session.control() as control:
        one = control.queue(name, queue, 0, 1).queue
        if not one.count:
            raise UsageError(f"the queue of {one.subscriber} is empty: there is nothing to drop")
        count = one.count if first is None else min(first, one.count)
        what = "the package" if one.count == 1 else f"all {count} packages"
        if count < one.count:
            what = "the first package" if count == 1 else f"the first {count} packages"
        question = DROP.question(packages=what, publisher=name, subscriber=one.subscriber)
        ask(question, _NOTHING, is_sure=yes)
        answer = control.clear(name, queue, first, wait)
    show_commands(session, [answer], wait)


@app.command("remove", asks=DROP)
@remote_command
def remove(
    session: Session,
    queue: QueueArgument,
    items: Annotated[
        list[str], typer.Argument(metavar="ITEM", help="Ids or offsets from `queues show`, starting with the oldest.")
    ],
    yes: SureOption = False,
    wait: AnswerOption = 10.0,
    publisher: PackagePublisherOption = None,
) -> None:
    """Drop packages from the head of a queue, up to the last one named."""
    name = session.shown_publisher(publisher)
    with session.control() as control:
        ids = [_item_id(control, name, queue, text) for text in items]
        offsets = {parse_entry_id(identifier).offset for identifier in ids}
        what = f"{'the package at' if len(offsets) == 1 else 'all packages up to'} offset {max(offsets)}"
        ask(DROP.question(packages=what, publisher=name, subscriber=queue), _NOTHING, is_sure=yes)
        answer = control.remove(name, queue, ids, wait)
    show_commands(session, [answer], wait)


def _item_id(control: Control, publisher: str, queue: str, text: str) -> str:
    """The id of an item that may be given by its offset. Raises: UsageError."""
    if _OFFSET.fullmatch(text) is None:
        return text
    found = control.queue(publisher, queue, int(text), 1).items
    if not found or found[0].offset != int(text):
        raise UsageError(
            f"the queue {queue} holds no package at offset {text}", next_step=f"mailboat queues show {queue}"
        )
    return found[0].id


@app.command("command")
@remote_command
def command(
    session: Session,
    command_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the command.")],
) -> None:
    """Show the result of a command that was sent to a subscriber."""
    with session.control() as control:
        answer = control.command(None, command_id)
    show_commands(session, [answer], 0.0)

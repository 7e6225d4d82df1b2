"""Queues, what is in them, and the commands that change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from mailboat.api.orders import MAX_OFFSET, MAX_PAGE, ClearOrder
from mailboat.api.records import CommandView, QueuePage, QueueView
from mailboat.config.document import Verb
from mailboat.control.page_tokens import Key
from mailboat.http.examples import COMMAND, QUEUE, QUEUE_PAGE
from mailboat.http.list_pages import WHOLE_LIST, MaxItems, PageToken, page_and_link
from mailboat.http.long_poll import Wait, settled
from mailboat.http.ports import (
    NEXT_PAGE,
    ApiPorts,
    CallerWait,
    CurrentCall,
    Ports,
    PublisherName,
    QueueNameText,
    operation,
    with_headers,
)
from mailboat.model.identifiers import natural_key
from mailboat.queues.queue_names import ERROR_SUFFIX
from mailboat.queues.queue_state import QueueState

_PREFIX: Final = "/api/v1/publishers/{publisher}"
router = APIRouter(prefix=_PREFIX, tags=["queues"])
commands = APIRouter(prefix=_PREFIX, tags=["commands"])
commands_to_subscribers = APIRouter(prefix="/api/v1", tags=["commands"])


FromOffset = Annotated[int, Query(description="First offset of the page.", ge=0, le=MAX_OFFSET)]
ItemIds = Annotated[
    list[str],
    Query(alias="id", description="An item, such as `package-0@97`; repeatable.", min_length=1, max_length=MAX_PAGE),
]
CommandId = Annotated[str, Path(description="The command's id.", max_length=200)]


@router.get(
    "/queues",
    **with_headers(operation(Verb.VIEW, "List queues of a publisher", example=[QUEUE], also=(404,)), NEXT_PAGE),
)
def list_queues(
    publisher: PublisherName,
    ports: Ports,
    request: Request,
    response: Response,
    page: PageToken = None,
    max_items: MaxItems = WHOLE_LIST,
) -> Sequence[QueueView]:
    """One for each subscriber that follows the publisher, and one for what it gave up, each with its head; by name."""
    found = ports.control.queues(publisher)
    return page_and_link(found, _place_of, page, max_items, (request, response))


def _place_of(queue: QueueView) -> Key:
    """By name, each error queue behind its subscriber's."""
    is_error_queue = queue.state == QueueState.PASSIVE
    name = queue.name.removesuffix(ERROR_SUFFIX) if is_error_queue else queue.name
    return natural_key(queue.subscriber), name, int(is_error_queue)


@router.get(
    "/queues/{name}",
    **with_headers(operation(Verb.VIEW, "List items of a queue", example=QUEUE_PAGE, also=(404,)), NEXT_PAGE),
)
def show_queue(
    publisher: PublisherName,
    name: QueueNameText,
    ports: Ports,
    response: Response,
    from_offset: FromOffset = 0,
    max_items: MaxItems = 100,
) -> QueuePage:
    """Pages begin at an offset, so they stay right while the queue moves; a `Link` header leads to the next one."""
    page = ports.control.queue(publisher, name, from_offset, max_items)
    if page.next_offset is not None:
        where = f"/api/v1/publishers/{quote(publisher, safe='')}/queues/{quote(name, safe='')}"
        response.headers["Link"] = f'<{where}?from_offset={page.next_offset}&max_items={max_items}>; rel="next"'
    return page


@router.post(
    "/queues/{name}/clear", **operation(Verb.CLEAR, "Clear a queue", example=COMMAND, also=(404, 409), status=202)
)
async def clear_queue(
    publisher: PublisherName,
    name: QueueNameText,
    ports: Ports,
    call: CurrentCall,
    request: Request,
    order: ClearOrder | None = None,
) -> CommandView:
    """The command is durable when answered; the subscriber obeys also while a package is stuck in its pauses."""
    asked = ClearOrder() if order is None else order
    call.concerns({"publisher": publisher, "queue": name, "max_items": asked.max_items})
    sent = await run_in_threadpool(ports.control.clear, publisher, name, asked.max_items)
    return await answered(ports, call, sent, Wait(asked.wait_seconds, request.is_disconnected))


@router.delete(
    "/queues/{name}/items", **operation(Verb.CLEAR, "Remove items", example=COMMAND, also=(404, 409), status=202)
)
async def remove_items(
    publisher: PublisherName,
    name: QueueNameText,
    ports: Ports,
    call: CurrentCall,
    ids: ItemIds,
    wait: CallerWait,
) -> CommandView:
    """A single id must be the head's; several ids remove everything up to the largest, as in Sling."""
    call.concerns({"publisher": publisher, "queue": name, "items": len(ids)})
    sent = await run_in_threadpool(ports.control.remove, publisher, name, ids)
    return await answered(ports, call, sent, wait)


@commands.get("/commands/{command_id}", **operation(Verb.VIEW, "Get a command", example=COMMAND, also=(404,)))
async def show_command(publisher: PublisherName, command_id: CommandId, ports: Ports, wait: CallerWait) -> CommandView:
    """A command is `sent` until its subscriber says `done` or `refused`."""
    return await settled(ports, lambda: ports.control.command(publisher, command_id), is_answered, wait)


@commands_to_subscribers.get(
    "/commands/{command_id}", **operation(Verb.VIEW, "Get a command", example=COMMAND, also=(404,))
)
async def show_subscriber_command(command_id: CommandId, ports: Ports, wait: CallerWait) -> CommandView:
    """A command for packages of any publisher, or of all: `suspend`, `resume`."""
    return await settled(ports, lambda: ports.control.command(None, command_id), is_answered, wait)


def is_answered(view: CommandView) -> bool:
    """Whether the subscriber has spoken."""
    return view.state != "sent"


async def answered(ports: ApiPorts, call: CurrentCall, sent: CommandView, wait: Wait) -> CommandView:
    """The command once its subscriber has answered it, or at the timeout."""
    call.concerns({"verb": sent.verb, "subscriber": sent.subscriber, "command": sent.id, "offset": sent.offset})
    if is_answered(sent) or wait.seconds <= 0.0:
        return sent
    return await settled(ports, lambda: ports.control.command(sent.publisher or None, sent.id), is_answered, wait)

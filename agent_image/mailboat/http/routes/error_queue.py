"""Packages that were given up, and driving them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from mailboat.api.orders import LONGEST_NAME, RedriveOrder
from mailboat.api.records import CommandView, GivenUpPage
from mailboat.config.document import Verb
from mailboat.http.examples import COMMAND, GIVEN_UP
from mailboat.http.list_pages import MaxItems, PageToken, link_next
from mailboat.http.long_poll import Wait, settled
from mailboat.http.ports import (
    NEXT_PAGE,
    CurrentCall,
    Ports,
    operation,
    with_headers,
)
from mailboat.http.routes.queues import is_answered

router = APIRouter(prefix="/api/v1/errors", tags=["errors"])


OfSubscriber = Annotated[
    str | None, Query(description="Only failed packages of this subscriber.", max_length=LONGEST_NAME)
]


@router.get(
    "",
    **with_headers(
        operation(Verb.VIEW, "List failed packages", example={"items": [GIVEN_UP], "next_page": None}, also=(404,)),
        NEXT_PAGE,
    ),
)
def list_errors(
    ports: Ports,
    request: Request,
    response: Response,
    subscriber: OfSubscriber = None,
    page: PageToken = None,
    max_items: MaxItems = 100,
) -> GivenUpPage:
    """The packages in the error queues, each with the reason, by subscriber and offset."""
    found = ports.control.errors(subscriber, page, max_items)
    link_next(request, response, found.next_page)
    return found


@router.post(
    "/redrive", **operation(Verb.CLEAR, "Redrive a failed package", example=[COMMAND], also=(404, 409), status=202)
)
async def redrive(order: RedriveOrder, ports: Ports, call: CurrentCall, request: Request) -> Sequence[CommandView]:
    """One command for each package and instance; each is `sent` until its subscriber says `done` or `refused`."""
    call.concerns({"subscriber": order.subscriber, "offsets": list(order.offsets[:10])})
    sent = await run_in_threadpool(ports.control.redrive, order.subscriber, order.offsets)
    call.concerns({"commands": len(sent)})
    if order.wait_seconds <= 0.0 or all(map(is_answered, sent)):
        return sent

    def look() -> Sequence[CommandView]:
        return [ports.control.command(command.publisher or None, command.id) for command in sent]

    wait = Wait(order.wait_seconds, request.is_disconnected)
    return await settled(ports, look, lambda seen: all(map(is_answered, seen)), wait)

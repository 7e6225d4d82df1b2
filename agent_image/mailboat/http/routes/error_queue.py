"""Packages that were given up, and driving them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict, Field, with_config
from starlette.concurrency import run_in_threadpool

from mailboat.api.operations import LONGEST_WAIT_SECONDS
from mailboat.api.records import CommandView, GivenUpPage
from mailboat.config.document import Verb
from mailboat.http.examples import COMMAND, GIVEN_UP
from mailboat.http.long_poll import settled
from mailboat.http.pages import MaxItems, PageToken, link_next
from mailboat.http.ports import (
    LONGEST_NAME,
    MAX_OFFSET,
    MAX_PAGE,
    NEXT_PAGE,
    CurrentCall,
    Ports,
    operation,
    with_headers,
)
from mailboat.http.routes.queues import is_answered

router = APIRouter(prefix="/api/v1/errors", tags=["errors"])


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class RedriveOrder:
    """What a re-drive asks for.

    Attributes:
        subscriber: Subscriber that gave the packages up.
        offsets: The packages' offsets.
        wait_seconds: How long to wait for the subscriber's answers.
    """

    subscriber: Annotated[str, Field(max_length=LONGEST_NAME)]
    offsets: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_OFFSET)], ...], Field(min_length=1, max_length=MAX_PAGE)]
    wait_seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT_SECONDS)] = 0.0


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
async def redrive(order: RedriveOrder, ports: Ports, call: CurrentCall) -> Sequence[CommandView]:
    """One command for each package; each is `sent` until its subscriber says `done` or `refused`."""
    call.concerns({"subscriber": order.subscriber, "offsets": list(order.offsets[:10])})
    sent = await run_in_threadpool(ports.control.redrive, order.subscriber, order.offsets)
    call.concerns({"commands": len(sent)})
    if order.wait_seconds <= 0.0 or all(map(is_answered, sent)):
        return sent

    def look() -> Sequence[CommandView]:
        return [ports.control.command(command.publisher or None, command.id) for command in sent]

    return await settled(ports, look, lambda seen: all(map(is_answered, seen)), order.wait_seconds)

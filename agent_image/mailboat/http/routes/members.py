"""Who is there: the journal, publishers, subscribers, and how far everybody is; and who is to be forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from mailboat.api.records import ForgottenView, PublisherView, StatusView, SubscriberStatusView
from mailboat.config.document import Verb
from mailboat.control.page_tokens import Key
from mailboat.errors import AgentMissingError
from mailboat.http.examples import FORGOTTEN, PUBLISHER, STATUS, SUBSCRIBER
from mailboat.http.pages import WHOLE_LIST, MaxItems, PageToken, page_and_link
from mailboat.http.ports import NEXT_PAGE, CurrentCall, Ports, SubscriberNameText, operation, with_headers
from mailboat.model.identifiers import natural_key

router = APIRouter(prefix="/api/v1", tags=["status"])


@router.get("/status", **operation(Verb.VIEW, "Everything at a glance", example=STATUS))
def show_status(ports: Ports) -> StatusView:
    """Journal, publishers, and how far every subscriber is."""
    return ports.control.status()


@router.get("/publishers", **operation(Verb.VIEW, "All publishers", example=[PUBLISHER]))
def list_publishers(ports: Ports) -> Sequence[PublisherView]:
    """The publishers of this process, each with the state of its queues."""
    return ports.control.status().publishers


@router.get("/subscribers", **with_headers(operation(Verb.VIEW, "All subscribers", example=[SUBSCRIBER]), NEXT_PAGE))
def list_subscribers(
    ports: Ports, request: Request, response: Response, page: PageToken = None, max_items: MaxItems = WHOLE_LIST
) -> Sequence[SubscriberStatusView]:
    """All subscribers that announced themselves, by name; no configuration names them."""
    found = ports.control.status().subscribers
    return page_and_link(found, _place_of, page, max_items, (request, response))


def _place_of(one: SubscriberStatusView) -> Key:
    return natural_key(one.name), one.name, one.sling_id or ""


@router.get("/subscribers/{subscriber}", **operation(Verb.VIEW, "One subscriber", example=SUBSCRIBER, also=(404,)))
def show_subscriber(subscriber: SubscriberNameText, ports: Ports) -> SubscriberStatusView:
    """How far it is, and what is wrong with it, if anything is."""
    for one in ports.control.status().subscribers:
        if one.name == subscriber:
            return one
    raise AgentMissingError(f"there is no subscriber {subscriber} here", subscriber=subscriber)


@router.delete(
    "/subscribers/{subscriber}", **operation(Verb.ADMIN, "Forget a subscriber", example=FORGOTTEN, also=(404,))
)
async def forget_subscriber(subscriber: SubscriberNameText, ports: Ports, call: CurrentCall) -> ForgottenView:
    """One that will not come back: nobody waits for it, and nothing is kept for it. Its content stays as it is.

    One that runs is refused (400): it would announce itself again.
    """
    call.what |= {"subscriber": subscriber}
    return await run_in_threadpool(ports.control.forget, subscriber)

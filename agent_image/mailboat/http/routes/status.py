"""The status: journal, publishers, and subscribers with positions, as a document and as a stream of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from mailboat.api.dashboard_files import accepts_gzip
from mailboat.api.orders import LONGEST_NAME, ResumeOrder, SubscriberSuspendOrder
from mailboat.api.process_views import HistoryView
from mailboat.api.records import CallerView, CommandView, ForgottenView, PublisherView, StatusView, SubscriberStatusView
from mailboat.api.stream_events import MEDIA_TYPE
from mailboat.config.document import Verb
from mailboat.control.page_tokens import Key
from mailboat.errors import AgentMissingError
from mailboat.http.access import LOCAL
from mailboat.http.event_stream import EventStreamResponse, EventStreams
from mailboat.http.examples import CALLER, FORGOTTEN, HISTORY, PUBLISHER, STATUS, SUBSCRIBER, SUSPENDED
from mailboat.http.list_pages import WHOLE_LIST, MaxItems, PageToken, page_and_link
from mailboat.http.long_poll import Wait
from mailboat.http.ports import (
    NEXT_PAGE,
    CurrentCall,
    Ports,
    QueueNameText,
    SubscriberNameText,
    operation,
    with_headers,
)
from mailboat.http.routes.queues import answered
from mailboat.model.identifiers import natural_key

router = APIRouter(prefix="/api/v1", tags=["status"])

_EXAMPLE: Final = (
    'id: 5e1f0c2a-17\nevent: subscriber\ndata: {"name": "edge-1", "state": "retrying", "next_offset": 41, "lag": 3}\n\n'
)
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", description="The id of the last event that the client has.", max_length=64),
]
InstanceId = Annotated[
    str | None,
    Query(description="The `sling_id` of an instance. Default: the first of that name.", max_length=LONGEST_NAME),
]
Follow = Annotated[bool, Query(description="Stay connected and send later events. false: end after the present ones.")]


_OPERATION: Final = operation(Verb.VIEW, "The event stream")
# the body is text; a client that splits it checks each event, an object of strings, against the same schema
_EVENTS: Final = {"type": ["string", "object"]}
_OPERATION["responses"][200]["content"] = {MEDIA_TYPE: {"schema": _EVENTS, "example": _EXAMPLE}}


@router.get("/status", **operation(Verb.VIEW, "Get the status of journal, publishers and subscribers", example=STATUS))
def show_status(ports: Ports) -> StatusView:
    """Journal, publishers, and each subscriber's position and lag."""
    return ports.control.status()


@router.get("/caller", **operation(Verb.VIEW, "The caller's rights", example=CALLER))
def show_caller(call: CurrentCall) -> CallerView:
    """The name of the token that the request carries, and its verbs."""
    caller = LOCAL if call.caller is None else call.caller
    return CallerView(caller.name, tuple(sorted(map(str, caller.verbs))))


@router.get("/publishers", **operation(Verb.VIEW, "List publishers", example=[PUBLISHER]))
def list_publishers(ports: Ports) -> Sequence[PublisherView]:
    """The publishers of this process, each with the state of its queues."""
    return ports.control.status().publishers


@router.get("/subscribers", **with_headers(operation(Verb.VIEW, "List subscribers", example=[SUBSCRIBER]), NEXT_PAGE))
def list_subscribers(
    ports: Ports, request: Request, response: Response, page: PageToken = None, max_items: MaxItems = WHOLE_LIST
) -> Sequence[SubscriberStatusView]:
    """All subscribers that announced themselves, by name; no configuration names them."""
    found = ports.control.status().subscribers
    return page_and_link(found, _place_of, page, max_items, (request, response))


def _place_of(one: SubscriberStatusView) -> Key:
    return natural_key(one.name), one.name, one.sling_id or ""


@router.get("/subscribers/{subscriber}", **operation(Verb.VIEW, "Get a subscriber", example=SUBSCRIBER, also=(404,)))
def show_subscriber(subscriber: SubscriberNameText, ports: Ports) -> SubscriberStatusView:
    """How far it is, and what is wrong with it, if anything is."""
    for view in ports.control.status().subscribers:
        if view.name == subscriber:
            return view
    raise AgentMissingError(f"there is no subscriber {subscriber} here", subscriber=subscriber)


@router.get("/history", **operation(Verb.VIEW, "Lag and throughput of all subscribers", example=HISTORY))
def show_history(ports: Ports) -> HistoryView:
    """Sums over all subscribers, sampled about every 10 seconds, for an hour at most and since the agent started."""
    return ports.history.total()


@router.get(
    "/subscribers/{subscriber}/history",
    **operation(Verb.VIEW, "Lag and throughput of a subscriber", example=HISTORY, also=(404,)),
)
def show_subscriber_history(subscriber: SubscriberNameText, ports: Ports, instance: InstanceId = None) -> HistoryView:
    """Sampled about every 10 seconds, for an hour at most and since the agent started."""
    return ports.history.of(subscriber, instance)


@router.post(
    "/subscribers/{subscriber}/suspend",
    **operation(Verb.CLEAR, "Suspend the imports of a subscriber", example=SUSPENDED, also=(404,), status=202),
)
async def suspend_subscriber(
    subscriber: QueueNameText,
    ports: Ports,
    call: CurrentCall,
    request: Request,
    order: SubscriberSuspendOrder | None = None,
) -> CommandView:
    """The subscriber imports nothing more once it has answered `done`; it keeps its position through restarts."""
    asked = SubscriberSuspendOrder() if order is None else order
    sent = await run_in_threadpool(ports.control.suspend, subscriber, asked.seconds)
    return await answered(ports, call, sent, Wait(asked.wait_seconds, request.is_disconnected))


@router.post(
    "/subscribers/{subscriber}/resume",
    **operation(Verb.CLEAR, "Resume the imports of a subscriber", example=SUSPENDED, also=(404,), status=202),
)
async def resume_subscriber(
    subscriber: QueueNameText, ports: Ports, call: CurrentCall, request: Request, order: ResumeOrder | None = None
) -> CommandView:
    """Where nothing is suspended nothing changes. A package whose pause the suspension ended is tried at once."""
    asked = ResumeOrder() if order is None else order
    sent = await run_in_threadpool(ports.control.resume, subscriber)
    return await answered(ports, call, sent, Wait(asked.wait_seconds, request.is_disconnected))


@router.delete(
    "/subscribers/{subscriber}", **operation(Verb.ADMIN, "Forget a subscriber", example=FORGOTTEN, also=(404,))
)
async def forget_subscriber(subscriber: QueueNameText, ports: Ports, call: CurrentCall) -> ForgottenView:
    """Deregister a subscriber permanently; retention and queues stop accounting for it. Its content stays.

    One that runs is refused (400): it would announce itself again.
    """
    call.concerns({"subscriber": subscriber})
    return await run_in_threadpool(ports.control.forget, subscriber)


@router.get("/events", response_class=Response, **_OPERATION)
async def follow_events(
    request: Request,
    call: CurrentCall,
    last_event_id: LastEventId = None,
    follow: Follow = True,  # noqa: FBT002  # a query parameter
) -> Response:
    """Server-sent events: `snapshot` first, then every change of the journal, publishers and subscribers.

    `snapshot` holds the whole status, again where a change has no event of its own. `journal`, `publisher` and
    `subscriber` hold the changed record, `subscriber-removed` a name, `distributed` a package that all subscribers have
    processed, `problem` the reason why the agent cannot read the journal (null: it can again). `end` is the last event
    of a connection; its `reason` is `too-slow`, `stopping`, `renew`, `complete`, or `failed` (the agent's log has the
    cause).

    Connect again with `Last-Event-ID` to resume. If the events after that id are gone, `snapshot` comes again, with
    `gap` true. Changes within half a second come as one event.
    """
    streams: EventStreams = request.state.streams
    is_packed = accepts_gzip(request.headers.get("accept-encoding", ""))
    return EventStreamResponse(streams, call.caller or LOCAL, last_event_id, follow=follow, is_packed=is_packed)

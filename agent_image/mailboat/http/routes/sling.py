"""Sling's HTTP surface, so that its clients and recipes work: publish by a form, list queues, delete items.

Paths, form fields, documents and statuses are those of Apache Sling Content Distribution: 202 accepted, 400 dropped,
503 when it failed, 404 where there is no such agent. Our additions: the token, and problem documents for
queues.
Source: sling-org-apache-sling-distribution-core, `DistributionAgentServlet`, `DistributionAgentQueueServlet`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.responses import PlainTextResponse, Response

from mailboat.api.orders import LONGEST_NAME, DistributionOrder
from mailboat.api.problems import problem_of
from mailboat.api.records import CommandView, PublisherView, QueueView
from mailboat.config.document import Verb
from mailboat.errors import (
    AccessDeniedError,
    AgentMissingError,
    MailboatError,
    QueueMissingError,
    RetryableError,
    StopError,
    UsageError,
)
from mailboat.http.answers import json_answer
from mailboat.http.ports import ApiPorts, CurrentCall, Ports, PublisherName, QueueNameText, operation
from mailboat.http.routes.distributions import checked_request
from mailboat.http.sling_documents import (
    MAX_LISTED_ITEMS,
    Document,
    accepted_document,
    agent_children,
    agent_document,
    agent_list,
    dropped_document,
    item_document,
    queue_document,
    queue_list,
    selected,
    status_document,
)
from mailboat.queues.queue_names import parse_entry_id

router = APIRouter(prefix="/libs/sling/distribution/services", tags=["sling"])

_AGENT_PATH: Final = "/agents/{agent}"
_PAGE: Final = 1000
_MAX_FIELDS: Final = 1100
_TOLD: Final = 100
"""Characters of a name that is shown."""

AgentListing = Annotated[
    str,
    Path(
        description="`agents.json`, or `agents.N.json` to show children N levels deep.",
        max_length=LONGEST_NAME,
        examples=["agents.1.json"],
    ),
]
AgentText = Annotated[
    str,
    Path(
        description="The publisher's name; with `.json`, or `.N.json` to show children N levels deep.",
        max_length=LONGEST_NAME,
        examples=["author.1.json"],
    ),
]
AgentSelection = Annotated[
    str,
    Path(
        description="`queues`, `status` or `log`; with `.json`, `.N.json` to show children N levels deep, or `.txt`.",
        max_length=LONGEST_NAME,
        examples=["queues.1.json"],
    ),
]
QueueSelection = Annotated[
    str,
    Path(
        description="The queue's name, or its subscriber's; with `.json`, or `.1.json` to show its items.",
        max_length=LONGEST_NAME,
        examples=["edge-1.1.json"],
    ),
]
ItemSelection = Annotated[
    str,
    Path(description="The item's id, with `.json`.", max_length=LONGEST_NAME, examples=["package-0@97.json"]),
]


def _form(fields: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """How a form is described."""
    schema = {"type": "object", "properties": fields, "required": required}
    return {"requestBody": {"required": True, "content": {"application/x-www-form-urlencoded": {"schema": schema}}}}


def _declared(
    verb: Verb, summary: str, form: dict[str, Any] | None = None, *, shapes: Iterable[int] = (200,), **settings: Any
) -> dict[str, Any]:
    found = operation(verb, summary, is_strict=False, **settings)  # Sling takes fields in the query, too
    found["openapi_extra"] = {**found["openapi_extra"], **(form or {})}
    for status in shapes:
        answers = found["responses"][status]
        answers["content"] = {**answers.get("content", {}), "application/json": {"schema": {"type": "object"}}}
    return {**found, "response_model": None}


_PUBLISH_FORM: Final = _form(
    {
        "action": {
            "type": "string",
            "enum": ["ADD", "DELETE", "INVALIDATE", "TEST"],
            "description": "Action on the paths.",
        },
        "path": {
            "type": "array",
            "items": {"type": "string"},
            "description": "A path, repeatable; at least one, except with TEST.",
            "examples": [["/content/news"]],
        },
        "deep": {
            "type": "string",
            "enum": ["true", "false"],
            "default": "false",
            "description": "Whether ADD means the subtrees of the paths, instead of the nodes alone.",
        },
    },
    ["action"],
)
_QUEUE_FORM: Final = _form(
    {
        "operation": {"type": "string", "enum": ["delete"], "description": "Must be `delete`."},
        "id": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Items; one alone must be the head, of several everything up to the last goes.",
            "examples": [["package-0@97"]],
        },
        "limit": {
            "type": "integer",
            "minimum": -1,
            "not": {"const": 0},
            "default": 1,
            "description": "Without `id`: how many to delete from the head on; -1 for all.",
        },
    },
    ["operation"],
)


@router.post(
    _AGENT_PATH,
    **_declared(
        Verb.DISTRIBUTE, "Publish, with a form", _PUBLISH_FORM, shapes=(202, 400, 404, 503), also=(404,), status=202
    ),
)
async def sling_distribute(agent: PublisherName, request: Request, ports: Ports, call: CurrentCall) -> Response:
    """Fields: `action`, `path` (as often as needed), and `deep=true` where subtrees are meant."""
    fields = await _fields(request)
    paths = _texts(fields, "path")
    call.concerns({"publisher": agent, "paths": len(paths)})
    try:
        _check_names(fields, single={"action", "deep"}, repeated={"path"})
        action = str(fields.get("action", "")).upper()
        order = DistributionOrder(action, paths, paths if _is_deep(fields) else ())
        call.concerns({"action": action})
        wanted = checked_request(order, call, request.headers.get("idempotency-key"))
        async with ports.publishing.turn(wanted.user_id, len(wanted.paths)):
            made = await run_in_threadpool(ports.control.distribute, agent, wanted)
    except AccessDeniedError:
        raise
    except MailboatError as error:
        return _refusal(error, call)
    call.concerns({"package": made.package_id, "offset": made.offset})
    message = f"[{made.package_id}] distribution request accepted at offset {made.offset}"
    return json_answer(accepted_document(message), HTTPStatus.ACCEPTED)


_AGENT: Final = _declared(Verb.VIEW, "Queues, state or log of an agent", also=(404,))
_AGENT["responses"][200]["content"]["text/plain"] = {"schema": {"type": "string"}}


@router.get("/{listing}", **_declared(Verb.VIEW, "All agents", also=(404,)))
def sling_agents(listing: AgentListing, ports: Ports) -> Response:
    """`agents.json` lists names; `agents.1.json` shows each, `.2` what is below, `.3` each queue, `.4` their items."""
    chosen = selected(listing)
    if chosen.name != "agents":
        raise AgentMissingError(f"there are agents here, and no {chosen.name}")
    agents = ports.control.status().publishers
    document, room = agent_list(agents), MAX_LISTED_ITEMS
    for agent in agents if chosen.depth > 0 else ():
        document[agent.name], listed = _agent(ports, agent, chosen.depth - 1, room)
        room -= listed
    return json_answer(document)


@router.get(_AGENT_PATH, **_declared(Verb.VIEW, "An agent", also=(404,)))
def sling_agent(agent: AgentText, ports: Ports) -> Response:
    """`NAME.json` is the agent alone; `.1` shows what is below it, `.2` each queue, `.3` their items, 5,000 at most."""
    chosen = selected(agent)
    return json_answer(_agent(ports, _publisher(ports, chosen.name), chosen.depth, MAX_LISTED_ITEMS)[0])


@router.get(_AGENT_PATH + "/{selection}", **_AGENT)
def sling_part(agent: PublisherName, selection: AgentSelection, ports: Ports) -> Response:
    """`queues.json` lists names, `queues.1.json` shows each queue, `queues.2.json` their items too, 5,000 at most.

    `status.json` is the agent's state, and `log.txt` the last lines about what was asked of it through this API.
    """
    chosen = selected(selection)
    match chosen.name:
        case "queues":
            return json_answer(_queues(ports, agent, chosen.depth, MAX_LISTED_ITEMS)[0])
        case "status":
            return json_answer(status_document(_publisher(ports, agent)))
        case "log":
            lines = ports.audit.lines(_publisher(ports, agent).name)
            return PlainTextResponse("".join(f"{line}\n" for line in lines))
    raise AgentMissingError(f"an agent shows queues, status and log, and no {chosen.name}", publisher=agent)


@router.get(_AGENT_PATH + "/queues/{selection}", **_declared(Verb.VIEW, "Get a queue in Sling's format", also=(404,)))
def sling_queue(agent: PublisherName, selection: QueueSelection, ports: Ports) -> Response:
    """Its state, how many items it has, and the id of its head. With `.1.json`, the items too, 5,000 at most."""
    chosen = selected(selection)
    queue = ports.control.queue(agent, chosen.name, max_items=1).queue
    return json_answer(_queue(ports, agent, queue, MAX_LISTED_ITEMS if chosen.depth > 0 else 0)[0])


@router.get(_AGENT_PATH + "/queues/{queue}/{selection}", **_declared(Verb.VIEW, "An item of a queue", also=(404,)))
def sling_item(agent: PublisherName, queue: QueueNameText, selection: ItemSelection, ports: Ports) -> Response:
    """A package in a queue, with all its paths; a listing shows the first path only."""
    try:
        entry = parse_entry_id(selected(selection).name)
    except UsageError as error:
        raise QueueMissingError(f"the queue {queue} has no item of that name", queue=queue) from error
    page = ports.control.queue(agent, queue, entry.offset, 1)
    if not page.items or page.items[0].offset != entry.offset:
        raise QueueMissingError(f"the queue {queue} holds no {entry}", queue=queue)
    item = page.items[0]
    paths = ports.archive.message(entry.offset).paths if item.path_count > 1 else None
    return json_answer(item_document(item, paths))


@router.post(
    _AGENT_PATH + "/queues/{selection}",
    **_declared(Verb.CLEAR, "Delete items of a queue", _QUEUE_FORM, also=(404, 409)),
)
async def sling_delete(
    agent: PublisherName, selection: QueueSelection, request: Request, ports: Ports, call: CurrentCall
) -> Response:
    """Fields: `operation=delete`, and `id` (as often as needed) or `limit`: 1 unless said otherwise, -1 for all."""
    fields = await _fields(request)
    queue = selected(selection).name
    call.concerns({"publisher": agent, "queue": queue})
    _check_names(fields, single={"operation", "limit"}, repeated={"id"})
    if fields.get("operation") != "delete":
        raise UsageError("operation must be delete: items can't be copied or moved between queues that are views")
    ids = _texts(fields, "id")
    if ids:
        sent = await run_in_threadpool(ports.control.remove, agent, queue, ids)
    else:
        sent = await run_in_threadpool(ports.control.clear, agent, queue, _limit(fields))
    call.concerns({"command": sent.id, "offset": sent.offset})
    return json_answer(_deleted(sent))


def _agent(ports: ApiPorts, agent: PublisherView, depth: int, max_items: int) -> tuple[Document, int]:
    """An agent with its children so many levels deep, with so many items at most, and how many there are."""
    document = agent_document(agent)
    if depth == 0:
        return document, 0
    queues, listed = _queues(ports, agent.name, depth - 1, max_items)
    return document | agent_children(agent, queues), listed


def _queues(ports: ApiPorts, agent: str, depth: int, max_items: int) -> tuple[Document, int]:
    """All queues of an agent, so many levels deep, with so many items at most; and how many there are."""
    queues = ports.control.queues(agent)
    document, room = queue_list(queues), max_items if depth > 1 else 0
    given = room
    for queue in queues if depth > 0 else ():
        document[queue.name], listed = _queue(ports, agent, queue, room)
        room -= listed
    return document, given - room


def _queue(ports: ApiPorts, agent: str, queue: QueueView, max_items: int) -> tuple[Document, int]:
    """A queue with so many of its items at most, and how many there are."""
    document = queue_document(queue)
    listed, next_offset = 0, 0
    while listed < max_items:
        page = ports.control.queue(agent, queue.name, next_offset, min(_PAGE, max_items - listed))
        document |= {item.id: item_document(item) for item in page.items}
        listed += len(page.items)
        if page.next_offset is None:
            break
        next_offset = page.next_offset
    return document, listed


def _publisher(ports: ApiPorts, agent: str) -> PublisherView:
    for publisher in ports.control.status().publishers:
        if publisher.name == agent:
            return publisher
    raise AgentMissingError(f"there is no publisher {agent} here", publisher=agent)


def _deleted(sent: CommandView) -> Document:
    if not sent.id:
        return {"success": True, "message": "the queue is empty: there was nothing to drop"}
    return {"success": True, "message": f"command {sent.id}: drop up to offset {sent.offset}", "command": sent.id}


def _refusal(error: MailboatError, call: CurrentCall) -> Response:
    """Sling's response to a request that failed; `Retry-After` is ours."""
    call.end_as(error.name)
    message = f"{error.name}: {error.message}"
    if isinstance(error, AgentMissingError):
        return json_answer({"message": "agent not found"}, HTTPStatus.NOT_FOUND)
    if isinstance(error, RetryableError | StopError):
        answer = json_answer({"message": message}, HTTPStatus.SERVICE_UNAVAILABLE)
        answer.headers.update(problem_of(error).headers)
        return answer
    return json_answer(dropped_document(message), HTTPStatus.BAD_REQUEST)


async def _fields(request: Request) -> FormData:
    """The form's fields, with those of the query: Sling accepts either."""
    form = await request.form(max_files=0, max_fields=_MAX_FIELDS)
    return FormData([*request.query_params.multi_items(), *form.multi_items()])


def _check_names(fields: FormData, single: set[str], repeated: set[str]) -> None:
    """Refuse fields that would be ignored, and second values of which one would count.

    `_charset_` and names such as `:cq_csrf_token` are addressed to Sling's engine; its servlets ignore them as well.

    Raises: UsageError.
    """
    named = [name for name in fields if name != "_charset_" and not name.startswith(":")]
    unknown = sorted(set(named) - single - repeated)
    if unknown:
        known = ", ".join(sorted({*single, *repeated}))
        raise UsageError(f"unknown form field {unknown[0][:_TOLD]!r}; known fields: {known}")
    for name in sorted(single):
        if len(fields.getlist(name)) > 1:
            raise UsageError(f"the form field {name} is given more than once")


def _is_deep(fields: FormData) -> bool:
    """Whether subtrees are meant. Raises: UsageError: Sling would take anything unknown for false."""
    text = str(fields.get("deep", "false")).lower()
    if text not in {"true", "false", ""}:
        raise UsageError("deep must be true or false")
    return text == "true"


def _texts(fields: FormData, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in fields.getlist(name) if isinstance(value, str)))


def _limit(fields: FormData) -> int | None:
    """How many items to drop. Raises: UsageError: Sling would use 1 for a malformed number."""
    text = str(fields.get("limit", "1"))
    if not re.fullmatch(r"-1|[0-9]{1,9}", text, re.ASCII) or text == "0":
        raise UsageError("limit must be a number of items, or -1 for all")
    return None if text == "-1" else int(text)

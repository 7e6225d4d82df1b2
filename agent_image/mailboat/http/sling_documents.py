"""Sling's documents of agents, queues and items, made of ours.

Source: sling-org-apache-sling-distribution-core, the resource provider of distribution services and its servlets;
Sling's JSON rendering, in which the number before `.json` says how deep children are shown. Called by
`routes/sling.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from mailboat.api.records import PublisherView, QueueItemView, QueueView

MAX_LISTED_ITEMS: Final = 5000
"""Number of items that Sling lists of one queue; here also of all queues in one answer."""

_TYPE: Final = "sling:resourceType"
_PREFIX: Final = "sling/distribution/service/agent"
_SUFFIX: Final = re.compile(r"(?P<name>.*?)(?:\.(?P<depth>[0-9]{1,3}|infinity))?\.(?:json|txt)", re.DOTALL)
_DEEPEST: Final = 4
"""From the list of agents to the items of their queues."""

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Selected:
    """The last part of a path: a name, and how deep its children are shown."""

    name: str
    depth: int = 0


def selected(text: str) -> Selected:
    """Split `name`, `name.json`, `name.2.json` or `name.infinity.json`; names may contain dots."""
    match = _SUFFIX.fullmatch(text)
    if match is None:
        return Selected(text)
    depth = match["depth"]
    return Selected(match["name"], _DEEPEST if depth == "infinity" else min(int(depth or 0), _DEEPEST))


def agent_list(agents: Iterable[PublisherView]) -> Document:
    """All agents, by name."""
    return {_TYPE: f"{_PREFIX}/list", "items": [agent.name for agent in agents]}


def agent_document(agent: PublisherView) -> Document:
    """An agent, without its children."""
    return {_TYPE: _PREFIX, "name": agent.name}


def agent_children(agent: PublisherView, queues: Document) -> Document:
    """What lies below an agent: its queues as they are given, its log, and its state."""
    return {"queues": queues, "log": {_TYPE: "sling/distribution/service/log"}, "status": status_document(agent)}


def status_document(agent: PublisherView) -> Document:
    """How an agent is."""
    return {"state": (agent.state or "idle").upper()}


def queue_list(queues: Iterable[QueueView]) -> Document:
    """All queues of an agent, by name."""
    return {_TYPE: f"{_PREFIX}/queue/list", "items": [queue.name for queue in queues]}


def queue_document(queue: QueueView) -> Document:
    """A queue: how it is, and the id of its head."""
    return {
        _TYPE: f"{_PREFIX}/queue",
        "state": queue.state.upper(),
        "empty": queue.count == 0,
        "itemsCount": queue.count,
        "capabilities": list(queue.capabilities),
        "items": [] if queue.head is None else [queue.head.id],
    }


def item_document(item: QueueItemView, paths: Iterable[str] | None = None) -> Document:
    """A package in a queue. A listing has the first path only, and says how many there are."""
    document: Document = {
        _TYPE: f"{_PREFIX}/queue/item",
        "id": item.id,
        "pkgId": item.package_id,
        "size": item.size_bytes,
        "paths": [item.path] if paths is None else list(paths),
        "pathsCount": item.path_count,
        "action": item.action,
        "userid": item.user_id,
        "attempts": item.attempts,
        "time": time_text(item.queued_at),
        "state": item.state.upper(),
    }
    if item.error is not None:
        document["errorMessage"] = f"{item.error.code}: {item.error.message}"
        document["errorTrace"] = item.error.trace or ""
    return document


def accepted_document(message: str) -> Document:
    """What a request that was published is answered with."""
    return {"success": True, "state": "ACCEPTED", "message": message}


def dropped_document(message: str) -> Document:
    """Response to an invalid request, or one that breaks a rule."""
    return {"success": False, "state": "DROPPED", "message": message}


def time_text(at: datetime) -> str:
    """A time as Sling renders dates in JSON, such as `Thu Jan 01 2026 00:00:00 GMT+0000`."""
    return f"{_DAYS[at.weekday()]} {_MONTHS[at.month - 1]} {at:%d %Y %H:%M:%S} GMT+0000"


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

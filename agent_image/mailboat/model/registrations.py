"""The subscribers that are registered for retention by consumption."""

from __future__ import annotations

from typing import NamedTuple

from mailboat.frozen import Frozen
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.positions import LogIdentity


class Registration(NamedTuple):
    """A subscriber for whom packages are kept.

    Attributes:
        sling_id: The instance that it runs in.
        name: The agent.
        next_offset: What it reads next.
        heard_ms: When the log took its last announcement, milliseconds since 1970 UTC.
    """

    sling_id: SlingId
    name: AgentName
    next_offset: Offset
    heard_ms: int


class RegistryMessage(Frozen):
    """The durable registrations, on the discovery topic under a key of their own (ours).

    Attributes:
        identity: The log of the package topic.
        as_of: All of the discovery topic before this offset was counted. Messages with the same one are parts of one
            registry, and a registry of a later one takes the place of those before.
        registrations: The durable ones, or a part of them.
    """

    identity: LogIdentity
    as_of: Offset
    registrations: tuple[Registration, ...] = ()

"""The former home of the audience, until nobody asks here any more."""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.agent.composition import Workspace
from mailboat.agent.control.audience import Member as SubscriberView
from mailboat.agent.control.audience import announced_member, audience_of
from mailboat.discovery.topology import AgentKey, KnownSubscriber
from mailboat.model.messages import DiscoveryMessage

__all__ = ["SubscriberView", "subscriber_views", "view_of"]


def subscriber_views(workspace: Workspace) -> Sequence[SubscriberView]:
    """Everybody who is known."""
    return audience_of(workspace).members()


def view_of(message: DiscoveryMessage, heard_ms: int) -> SubscriberView:
    """What an announcement says."""
    key = AgentKey(message.sub_sling_id, message.sub_agent_name)
    return announced_member(KnownSubscriber(key, message, heard_ms), heard_ms)

"""A Publisher: its journal, the Secrets that its agent needs, and its children."""

from __future__ import annotations

from mailboat_operator.api.publisher import Publisher
from mailboat_operator.observation.sight import Sight
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.publisher import plan_publisher, publisher_keys


async def look_at_publisher(sight: Sight, publisher: Publisher) -> Plan:
    """What to do for a Publisher."""
    said = publisher.spec.http.token_secret_ref
    around = await sight.surroundings(
        publisher.metadata.namespace,
        publisher.spec.journal_ref.name,
        publisher_keys(publisher),
        [] if said is None else [said.name],
    )
    return plan_publisher(publisher, around)

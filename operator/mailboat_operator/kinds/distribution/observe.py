"""A Distribution: its publisher's agent, asked once by the object's uid, then asked for the outcome.

A crash between the request and the word of it in the status does no harm: the same request is sent again, and the
publisher finds it under its id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mailboat.api.records import DistributionView
from mailboat.errors import AgentRefusedError, AgentUnreachableError, PermanentError
from mailboat.model.requests import DistributionRequest, parse_request

from mailboat_operator.cluster_reader import Sight
from mailboat_operator.kinds.distribution.plan import (
    PoolSize,
    obstacle_of,
    plan_distribution,
    plan_refused,
    plan_waiting,
)
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.finished import plan_finished

_GONE: Final = "DistributionMissing"
"""The journal does not hold the package any more, so its subscribers are unknown."""


async def look_at_distribution(sight: Sight, distribution: Distribution) -> Plan:
    """What to do for a Distribution."""
    metadata, now = distribution.metadata, sight.now
    if metadata.is_deleted:
        return Plan((), None)
    if distribution.status.finished_at is not None:
        return plan_finished(distribution, now)
    publisher = await sight.publisher(metadata.namespace, distribution.spec.publisher_ref.name)
    obstacle = obstacle_of(distribution, publisher)
    if obstacle is not None or publisher is None:
        return plan_waiting(distribution, obstacle or ("PublisherMissing", ""), now, None)
    return await _follow(sight, distribution, publisher)


async def _follow(sight: Sight, distribution: Distribution, publisher: Publisher) -> Plan:
    now = sight.now
    try:
        delivery = await _ask(sight, distribution, publisher)
    except AgentUnreachableError as error:
        reason = str(error.where.get("error", error.name))
        if reason == _GONE:
            return plan_refused(distribution, (reason, error.message), now)
        return plan_waiting(distribution, (reason, error.message), now, error.retry_after_seconds)
    except AgentRefusedError as error:
        return plan_refused(distribution, (str(error.where["error"]), error.message), now)
    return plan_distribution(distribution, delivery, await _pools(sight, publisher), now)


async def _ask(sight: Sight, distribution: Distribution, publisher: Publisher) -> DistributionView:
    address = await sight.address(publisher)
    if address is None:
        raise AgentUnreachableError("the Secret with the publisher's token is not there yet", error="SecretMissing")
    package_id = distribution.status.package_id
    if package_id is None:
        return await sight.agents.distribute(address, _request_of(distribution))
    return await sight.agents.delivery(address, package_id)


def _request_of(distribution: Distribution) -> DistributionRequest:
    """The request of a Distribution. Raises: AgentRefusedError for one that its publisher would refuse."""
    spec = distribution.spec
    deep_paths = [one.path for one in spec.paths if one.deep]
    try:
        return parse_request(
            spec.action.upper(), [one.path for one in spec.paths], deep_paths, distribution.metadata.uid
        )
    except PermanentError as error:
        raise AgentRefusedError(error.message, error=error.name) from error


async def _pools(sight: Sight, publisher: Publisher) -> Sequence[PoolSize]:
    """The pools that follow the publisher."""
    name = publisher.metadata.name
    return [
        PoolSize(one.metadata.name, one.spec.replicas)
        for one in await sight.pools(publisher.metadata.namespace)
        if one.spec.journal_ref == publisher.spec.journal_ref
        and (not one.spec.publishers or name in one.spec.publishers)
    ]

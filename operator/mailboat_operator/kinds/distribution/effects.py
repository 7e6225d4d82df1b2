"""The request of a Distribution to its Publisher's agent.

The object's uid is the request id: after a crash between the request and the status the same request is sent again, and
the publisher finds it under its id.
"""

from __future__ import annotations

from dataclasses import replace

from mailboat.errors import AgentRefusedError, AgentUnreachableError, PermanentError
from mailboat.model.requests import DistributionRequest, parse_request

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.distribution.observe import pools_of
from mailboat_operator.kinds.distribution.plan import DistributionObservation, plan_distribution
from mailboat_operator.kinds.distribution.spec import Distribution
from mailboat_operator.plan.actions import Plan, RequestPackage


async def request_package(
    reader: ClusterReader, distribution: Distribution, seen: DistributionObservation, plan: Plan
) -> Plan:
    """Send the request that the plan asks for; the plan that follows from the answer."""
    publisher = seen.publisher
    if publisher is None or not any(isinstance(action, RequestPackage) for action in plan.actions):
        return plan
    try:
        address = await reader.agent_of(publisher)
        delivery = await reader.agents.distribute(address, _request_of(distribution))
    except (AgentUnreachableError, AgentRefusedError) as error:
        return plan_distribution(distribution, replace(seen, error=error))
    pools = await pools_of(reader, publisher)
    return plan_distribution(distribution, replace(seen, delivery=delivery, pools=pools))


def _request_of(distribution: Distribution) -> DistributionRequest:
    """The request of a Distribution. Raises: AgentRefusedError for one that its publisher would refuse."""
    spec = distribution.spec
    deep_paths = [path.path for path in spec.paths if path.deep]
    try:
        return parse_request(
            spec.action.upper(), [path.path for path in spec.paths], deep_paths, distribution.metadata.uid
        )
    except PermanentError as error:
        raise AgentRefusedError(error.message, error=error.name) from error

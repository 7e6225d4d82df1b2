"""A PackageBuild: what it stands on, its application, and its packages in the log; or the runs of its timetable.

Progress is asked of the publisher's own agent, which reads the log: the driver tells nobody, and nothing is lost with
it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import Sight
from mailboat_operator.kinds.package_build.plan import plan_build
from mailboat_operator.kinds.package_build.prerequisites import APPLICATIONS, BuildObservation, build_keys
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.kinds.package_build.timetable import plan_timetable, run_of
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.finished import plan_finished

_LOG: Final = logging.getLogger("mailboat.operator")


async def look_at_build(sight: Sight, build: PackageBuild) -> Plan:
    """What to do for a PackageBuild."""
    if build.metadata.is_deleted:
        return Plan((), None)
    if build.spec.schedule is not None:
        return await _look_at_timetable(sight, build)
    if build.status.finished_at is not None:
        return plan_finished(build, sight.now)
    namespace = build.metadata.namespace
    publisher = await sight.publisher(namespace, build.spec.publisher_ref.name)
    is_served = await sight.cluster.has_kind(APPLICATIONS[build.spec.engine], namespace)
    journal_name = "" if publisher is None else publisher.spec.journal_ref.name
    around = await sight.surroundings(namespace, journal_name, build_keys(build, is_served=is_served))
    seen = BuildObservation(around, publisher, is_served, image=sight.systems.spark_image)
    return plan_build(build, seen if publisher is None else await _with_progress(sight, build, publisher, seen))


async def _with_progress(
    sight: Sight, build: PackageBuild, publisher: Publisher, seen: BuildObservation
) -> BuildObservation:
    """With what the publisher's agent reports of the build, and whether it answered at all."""
    if build.status.build_id is None or build.status.application is None:
        return seen
    try:
        address = await sight.address(publisher)
        if address is not None:
            return replace(seen, progress=await sight.agents.build(address, build.status.build_id))
    except (AgentUnreachableError, AgentRefusedError) as error:
        _LOG.info("%s: %s", build.metadata.name, error)
    return replace(seen, is_asked=False)


async def _look_at_timetable(sight: Sight, build: PackageBuild) -> Plan:
    runs = [run_of(build, one) for one in await sight.builds(build.metadata.namespace, build.metadata.uid)]
    return plan_timetable(build, [one for one in runs if one is not None], sight.now)

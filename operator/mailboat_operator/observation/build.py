"""A PackageBuild: what it stands on, its application, and its packages in the log; or the runs of its timetable.

Progress is asked of the publisher's own agent, which reads the log: the driver tells nobody, and nothing is lost with
it.
"""

from __future__ import annotations

import logging
from typing import Final

from mailboat.errors import AgentRefusedError, AgentUnansweringError

from mailboat_operator.api.build import PackageBuild
from mailboat_operator.api.publisher import Publisher
from mailboat_operator.observation.sight import Sight
from mailboat_operator.plan.actions import Plan
from mailboat_operator.plan.build import plan_build
from mailboat_operator.plan.build_ground import APPLICATIONS, BuildProgress, BuildSurroundings, build_keys
from mailboat_operator.plan.finishing import plan_finished
from mailboat_operator.plan.timetable import plan_timetable, run_of

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
    progress = None if publisher is None else await _progress(sight, build, publisher)
    return plan_build(build, BuildSurroundings(around, publisher, is_served, progress, sight.systems.spark_image))


async def _progress(sight: Sight, build: PackageBuild, publisher: Publisher) -> BuildProgress | None:
    """What the publisher's agent tells of the build; None where it tells nothing, or is not there."""
    if build.status.build_id is None or build.status.application is None:
        return None
    try:
        address = await sight.address(publisher)
        return None if address is None else await sight.agents.build(address, build.status.build_id)
    except (AgentUnansweringError, AgentRefusedError) as error:
        _LOG.info("%s: %s", build.metadata.name, error)
        return None


async def _look_at_timetable(sight: Sight, build: PackageBuild) -> Plan:
    runs = [run_of(build, one) for one in await sight.builds(build.metadata.namespace, build.metadata.uid)]
    return plan_timetable(build, [one for one in runs if one is not None], sight.now)

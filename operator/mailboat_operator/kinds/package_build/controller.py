"""A PackageBuild: what it stands on, its application, and its packages in the log; or the runs of its timetable.

Progress comes from the publisher's agent, which reads the log: the driver reports none, so none is lost with it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from mailboat.errors import AgentRefusedError, AgentUnreachableError

from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.package_build.prerequisites import APPLICATIONS, BuildObservation, build_keys
from mailboat_operator.kinds.package_build.spec import PackageBuild
from mailboat_operator.kinds.package_build.timetable import BuildRuns, run_of
from mailboat_operator.kinds.publisher.spec import Publisher

_LOG: Final = logging.getLogger("mailboat.operator")


async def observe_build(reader: ClusterReader, build: PackageBuild) -> BuildObservation | BuildRuns:
    """Read what a plan for it needs."""
    if build.metadata.is_deleted or (build.spec.schedule is None and build.status.finished_at is not None):
        return BuildRuns(reader.now)
    if build.spec.schedule is not None:
        runs = [run_of(build, child) for child in await reader.builds(build.metadata.namespace, build.metadata.uid)]
        return BuildRuns(reader.now, [run for run in runs if run is not None])
    namespace = build.metadata.namespace
    publisher = await reader.publisher(namespace, build.spec.publisher_ref.name)
    is_served = await reader.cluster.has_kind(APPLICATIONS[build.spec.engine], namespace)
    journal_name = "" if publisher is None else publisher.spec.journal_ref.name
    context = await reader.surroundings(namespace, journal_name, build_keys(build, is_served=is_served))
    seen = BuildObservation(context, publisher, is_served, image=reader.systems.spark_image)
    return seen if publisher is None else await _with_progress(reader, build, publisher, seen)


async def _with_progress(
    reader: ClusterReader, build: PackageBuild, publisher: Publisher, seen: BuildObservation
) -> BuildObservation:
    """With what the publisher's agent reports of the build, and whether it answered at all."""
    if build.status.build_id is None or build.status.application is None:
        return seen
    try:
        agent = await reader.agent_of(publisher)
        return replace(seen, progress=await reader.agents.build(agent, build.status.build_id))
    except (AgentUnreachableError, AgentRefusedError) as error:
        _LOG.info("%s: %s", build.metadata.name, error)
        return replace(seen, is_asked=False)

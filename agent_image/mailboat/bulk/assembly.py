"""What a home's configuration makes of a build: its recipe, and what its driver works with.

The composition of bulk builds, beside the agents' own: the command, the driver of a cluster and the sink of Spark all
build with the same. Nothing is opened here that the workspace does not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mailboat.agent.composition import Workspace
from mailboat.agent.locations import absolute_source
from mailboat.bulk.cutting import Budget
from mailboat.bulk.fencing import this_driver
from mailboat.bulk.listing import outermost
from mailboat.bulk.records import Recipe
from mailboat.bulk.reports import Progress, SilentProgress
from mailboat.bulk.running import BuildStages, DriverPorts
from mailboat.model.paths import NodePath


class BuildWish(NamedTuple):
    """What is to be built, as a user says it."""

    source: str
    roots: Sequence[NodePath]
    budget: Budget = Budget()


def recipe_for(workspace: Workspace, wish: BuildWish) -> Recipe:
    """The recipe of a build: the wish, and what the configuration says of packages. Raises: UsageError."""
    config = workspace.home.config
    return Recipe(
        absolute_source(wish.source),
        outermost(wish.roots),
        wish.budget,
        config.publisher.package_type,
        config.publisher.inline_binary_bytes,
        are_collisions_refused=config.limits.are_collisions_refused,
        log=str(workspace.journal.identity(workspace.package_topic)),
    )


def ports_for(
    workspace: Workspace, stages: BuildStages, publisher: str | None = None, progress: Progress | None = None
) -> DriverPorts:
    """What a driver works with. Raises: as the workspace."""
    return DriverPorts(
        stages,
        workspace.publisher(publisher).parts,
        workspace.blobs,
        workspace.codecs[workspace.home.config.publisher.package_type],
        this_driver(),
        workspace.clock,
        SilentProgress() if progress is None else progress,
    )

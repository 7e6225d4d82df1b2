"""What a home's configuration makes of a build: its recipe, and what its driver works with.

The composition of bulk builds, apart from the agents' own: the command, the driver of a cluster and the Spark sink all
build with the same. Nothing is opened here that the workspace does not close.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from mailboat.bulk.build_claims import this_driver
from mailboat.bulk.build_records import BuildRequest, Recipe
from mailboat.bulk.build_reports import Progress, SilentProgress
from mailboat.bulk.build_run import BuildStages, DriverPorts
from mailboat.bulk.publication import resume_seconds_of
from mailboat.bulk.source_branches import outermost
from mailboat.composition.source_openers import absolute_source, open_source
from mailboat.composition.workspace import Workspace
from mailboat.config.document import Transfer, transfer_of
from mailboat.content.port import Source
from mailboat.errors import UsageError
from mailboat.model.paths import NodePath
from mailboat.publisher.publisher import replaced_roots


def recipe_for(workspace: Workspace, wish: BuildRequest, publisher: str | None = None) -> Recipe:
    """The recipe of a build: the wish, and what the configuration says of packages and of the publisher.

    Raises:
        UsageError: Packages of this publisher do not travel through a blob store, there is no such publisher, or the
            source's filter has rules or modes, see `replaced_roots`.
        SourceMissingError: There is no such source.
    """
    config = workspace.home.config
    if transfer_of(config) is not Transfer.REFERENCE:
        raise UsageError(
            "packages of a bulk build travel through the blob store, and this publisher's do not",
            next_step="name a bucket that subscribers can read (blobs.s3), or set publisher.transfer to reference",
        )
    return Recipe(
        absolute_source(wish.source),
        outermost(_owned_roots(wish)),
        wish.budget,
        config.publisher.package_type_name,
        config.publisher.inline_binary_bytes,
        are_collisions_refused=config.limits.refuse_collisions,
        log=str(workspace.journal.identity(workspace.package_topic)),
        publisher=config.publisher.name if publisher is None else _known(workspace, publisher),
        file_identity=wish.file_identity,
    )


def _owned_roots(wish: BuildRequest) -> Sequence[NodePath]:
    with closing(open_source(wish.source, identity=wish.file_identity)) as source:
        return replaced_roots(source, wish.roots)


def source_of(recipe: Recipe) -> Source:
    """The source of a build, opened. Raises: as `open_source`."""
    return open_source(recipe.source, identity=recipe.file_identity)


def _known(workspace: Workspace, publisher: str) -> str:
    """A publisher's name as a person gives it: a mistyped one would publish everything again, as a new publisher.

    Raises:
        UsageError: The home and its configuration name no such publisher.
    """
    configured = (publisher.name for publisher in workspace.home.config.agents.publishers)
    known = sorted({*workspace.publisher_names(), *configured})
    if publisher not in known:
        raise UsageError(
            f"unknown publisher {publisher[:120]!r} (publishers: {', '.join(known)})",
            next_step="to publish as a new publisher, set publisher.name in the configuration",
        )
    return publisher


def ports_for(
    workspace: Workspace, stages: BuildStages, publisher: str | None = None, progress: Progress | None = None
) -> DriverPorts:
    """What a driver works with. Raises: as the workspace."""
    return DriverPorts(
        stages,
        workspace.publisher(publisher).parts,
        workspace.blobs,
        workspace.codecs[workspace.home.config.publisher.package_type_name],
        this_driver(),
        workspace.clock,
        SilentProgress() if progress is None else progress,
        resume_seconds=resume_seconds_of(workspace.home.config.blobs.grace_seconds),
    )

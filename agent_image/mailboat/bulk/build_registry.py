"""The known builds: a small document each, next to their manifests, which says what is built and how far."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from mailboat.blobs.port import NamedDocuments
from mailboat.bulk.build_manifest import Manifest, ManifestDamagedError
from mailboat.bulk.build_records import COUNTED, BuildProblem, Count, Recipe
from mailboat.bulk.cutter import Order
from mailboat.bulk.identity import is_derived
from mailboat.json_decoder import decoder_of
from mailboat.model.identifiers import BuildId, Offset, PackageId

_SUFFIX: Final = ".build"
_KEPT: Final = 5
"""Complete builds of one source by one publisher that are kept; the newest says what the next one need not publish."""


class BuildState(enum.StrEnum):
    """How far a build is."""

    BUILDING = "building"
    PUBLISHING = "publishing"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Build:
    """A build, as it is written down.

    Attributes:
        build_id: Its id.
        recipe: What is built, and how.
        created_ms: Wall time of the first attempt.
        revision: Of the source when it was cut last, 64 hex digits.
        state: See `BuildState`.
        borders: Of the buckets of its manifest.
        bins: How many packages the tree is cut into.
        present: Those of them that the log had from an earlier build.
        total: Packages that the build publishes.
        scan_from: Where the log ended as the source was listed: none of them has a lower offset.
        problems: What could not be listed or built.
        last_package_id: The last package published of the source, by this build or before it.
        last_offset: And its offset.
        completed_ms: When it was complete.
    """

    build_id: BuildId
    recipe: Recipe
    created_ms: Count
    revision: str = ""
    state: BuildState = BuildState.BUILDING
    borders: tuple[Order, ...] = ()
    bins: Count = 0
    present: Count = 0
    total: Count = 0
    scan_from: Annotated[Offset, COUNTED] | None = None
    problems: tuple[BuildProblem, ...] = ()
    last_package_id: PackageId | None = None
    last_offset: Annotated[Offset, COUNTED] | None = None
    completed_ms: Count | None = None

    @property
    def is_complete(self) -> bool:
        """Whether all of it is published."""
        return self.state is BuildState.COMPLETE


class BuildRegistry:
    """The builds of one blob store."""

    def __init__(self, documents: NamedDocuments) -> None:
        """Read nothing yet."""
        self.documents = documents

    def read(self, build_id: BuildId) -> Build | None:
        """A build. Raises: ManifestDamagedError."""
        stored = self.documents.read(f"{build_id}{_SUFFIX}")
        return None if stored is None else _decoded(stored, build_id)

    def write(self, build: Build) -> None:
        """Write a build down, in the place of what was known of it; durable on return."""
        self.documents.write(f"{build.build_id}{_SUFFIX}", msgspec.json.encode(build))

    def manifest(self, build: Build) -> Manifest:
        """Its manifest."""
        return Manifest(self.documents, build.build_id, build.borders)

    def ids(self) -> Sequence[BuildId]:
        """The ids of all of them, also of those of which nothing can be read."""
        names = [name for name in self.documents.names() if name.endswith(_SUFFIX)]
        return [BuildId(name.removesuffix(_SUFFIX)) for name in names]

    def builds(self) -> Sequence[Build]:
        """All that can be read, the oldest first: who builds something else is not held up by a damaged one."""
        found = list[Build]()
        for build_id in self.ids():
            with suppress(ManifestDamagedError):
                build = self.read(build_id)
                found += [] if build is None else [build]
        return sorted(found, key=lambda one: (one.created_ms, one.build_id))

    def latest(self, recipe: Recipe) -> Build | None:
        """The newest complete build of the same source and roots by the same publisher."""
        return next(reversed(self._complete(recipe)), None)

    def unfinished(self, recipe: Recipe, revision: str) -> Build | None:
        """A build of the same that was begun and not ended, the newest one that can go on.

        While it is built, what it has of an earlier revision serves any other. What it publishes is of one revision,
        and so is a build with a given id.
        """
        begun = (build for build in reversed(self.builds()) if build.recipe == recipe)
        return next((candidate for candidate in begun if _can_go_on(candidate, revision)), None)

    def forget(self, build_id: BuildId) -> None:
        """Remove a build and its manifest, whether or not they can be read; what it published stays."""
        Manifest(self.documents, build_id, ()).remove()
        for name in self.documents.names(f"{build_id}.claim-"):
            self.documents.remove(name)  # of a driver that died when all was done
        # last: after a crash in between the build is still listed, and can be forgotten again
        self.documents.remove(f"{build_id}{_SUFFIX}")

    def prune(self, recipe: Recipe) -> None:
        """Forget the oldest complete builds of the same beyond those that are kept."""
        for build in self._complete(recipe)[:-_KEPT]:
            self.forget(build.build_id)

    def _complete(self, recipe: Recipe) -> list[Build]:
        """The oldest first; of two that were complete in the same instant, the one that published last is newer."""
        complete = (build for build in self.builds() if build.state is BuildState.COMPLETE)
        same = (build for build in complete if build.recipe.subject == recipe.subject)
        return sorted(same, key=lambda one: (one.completed_ms or 0, one.last_offset or 0))


def _can_go_on(build: Build, revision: str) -> bool:
    match build.state:
        case BuildState.BUILDING:
            return build.revision == revision or is_derived(build.build_id)
        case BuildState.PUBLISHING:
            return build.revision == revision
        case BuildState.COMPLETE:
            return False


def _decoded(stored: bytes, build_id: BuildId) -> Build:
    try:
        build = decoder_of(Build).decode(stored)
        if build.build_id != build_id:
            raise ValueError(f"it is of the build {build.build_id!r:.60}")
    except (ValueError, RecursionError) as error:
        raise ManifestDamagedError(
            f"what is known of the build {build_id} can't be read: {error}",
            next_step=f"mailboat bulk forget {build_id}, then build again",
            build=build_id,
        ) from error
    return build

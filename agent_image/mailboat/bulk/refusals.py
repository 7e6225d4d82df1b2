"""Why a build ends without having published what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.bulk.build_registry import Build
from mailboat.bulk.records import Problem
from mailboat.errors import PermanentError, RetryableError, UsageError


class BuildIncompleteError(PermanentError):
    """Some packages of a build failed, so nothing was published; the other packages are built and kept.

    The report names each path and its reason. Repair them and run the same command again: it builds what is missing
    and publishes everything. If the source changed while it was read, just run the command again.
    """


class BuildConflictError(UsageError):
    """That build id belongs to a build of another source, other paths, another budget, log or publisher.

    Use another `--build-id`, or omit it: the id is then derived from what is built.
    """


class BuildOvertakenError(RetryableError):
    """Packages of the same paths were published during a build and during each of its further rounds.

    The build is complete, but content that was published in between may have been reverted to the source's state at the
    start of the round. When fewer publications run, run the same command again without `--build-id`.
    """


def incomplete(build: Build, failed: Sequence[Problem]) -> BuildIncompleteError:
    """The error for packages that could not be made."""
    first = failed[0]
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return BuildIncompleteError(
        f"{first.path} could not be built: {first.name}: {first.message}{more}; nothing was published",
        next_step="repair what is named, then run the same command again: it builds what is missing",
        build=build.build_id,
        path=first.path,
    )


def conflict(found: Build) -> BuildConflictError:
    """The error for a build's id that is taken."""
    recipe = found.recipe
    by = f" by the publisher {recipe.publisher}" if recipe.publisher else ""
    return BuildConflictError(
        f"the build {found.build_id} was begun{by} for {recipe.source} {' '.join(recipe.roots)[:200]}",
        next_step="give another --build-id, or none",
        build=found.build_id,
    )


def overtaken(build_id: str, rounds: int) -> BuildOvertakenError:
    """The error for a build that never was alone with its paths."""
    return BuildOvertakenError(
        f"the build {build_id} is complete, but packages of its paths were published during it and its {rounds}"
        " further rounds: some of them may be turned back",
        next_step="run the same command again, without --build-id, when fewer publications go on",
        build=build_id,
    )

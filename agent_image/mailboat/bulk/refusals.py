"""Why a build ends without having published what was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.bulk.library import Build
from mailboat.bulk.records import Problem
from mailboat.errors import PermanentError, RetryableError, UsageError


class BuildIncompleteError(PermanentError):
    """Some packages of a build could not be made, so nothing was published; the others are built and kept.

    The report names each path and its reason. Repair what is named and run the same command again: it builds what is
    missing and publishes all. A source that changed while it was read needs nothing but the second run.
    """


class BuildConflictError(UsageError):
    """A build of that id was begun for another source, other paths, another budget or log, or by another publisher.

    Give another `--build-id`, or none: then the id is made of what is built.
    """


class BuildOvertakenError(RetryableError):
    """Packages of the same paths were published beside a build, and beside each of its further rounds.

    The build is complete, but what was published singly may have been turned back to what the source held when the
    round began. Run the same command again when fewer publications go on, without a `--build-id`.
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
        f"the build {build_id} is complete, but packages of its paths were published beside it and its {rounds}"
        " further rounds: some of them may be turned back",
        next_step="run the same command again, without --build-id, when fewer publications go on",
        build=build_id,
    )

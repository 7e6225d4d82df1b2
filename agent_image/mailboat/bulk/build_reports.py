"""Progress of a build, and its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mailboat.bulk.build_records import BuildProblem, BuiltBin
from mailboat.bulk.build_registry import Build
from mailboat.model.identifiers import BuildId, Offset
from mailboat.publisher.appender import Placed


class Progress(Protocol):
    """Receives the progress of a build."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """A stage begins: `cut`, `build`, `publish`; of so many packages, if that is known."""

    def advance(self, packages: int) -> None:
        """So many more packages of the stage are done."""


class SilentProgress:
    """Ignores the progress."""

    def begin(self, stage: str, total: int | None = None) -> None:
        """See `Progress`."""

    def advance(self, packages: int) -> None:
        """See `Progress`."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build came to.

    Attributes:
        build_id: Its id.
        state: `building`, `publishing`, `complete`.
        packages: Packages that the tree is cut into, closing ones included.
        total: Those of them that this build has published.
        published: Those of them that were appended by this attempt.
        present: Packages that the log had from an earlier build.
        built: Packages that this attempt built.
        nodes: In the packages of this attempt.
        content_bytes: Bytes of their values and binaries.
        stored_bytes: Bytes that were given to the blob store for them.
        first_offset: Of what this attempt published.
        last_offset: And its end.
        stage_seconds: How long each stage took.
        problems: What this attempt left out.
    """

    build_id: BuildId
    state: str
    packages: int = 0
    total: int = 0
    published: int = 0
    present: int = 0
    built: int = 0
    nodes: int = 0
    content_bytes: int = 0
    stored_bytes: int = 0
    first_offset: Offset | None = None
    last_offset: Offset | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    problems: tuple[BuildProblem, ...] = ()


@dataclass(slots=True)
class BuildTally:
    """What this attempt came to."""

    built: int = 0
    nodes: int = 0
    content_bytes: int = 0
    stored_bytes: int = 0
    published: int = 0
    first_offset: Offset | None = None
    last_offset: Offset | None = None

    def count(self, one: BuiltBin) -> None:
        """A package was built."""
        self.built += 1
        self.nodes += len(one.nodes)
        self.content_bytes += one.content_bytes
        self.stored_bytes += one.stored_bytes

    def publish(self, placed: Placed) -> None:
        """A package stands in the log."""
        if placed.is_repeat:
            return
        self.published += 1
        self.first_offset = placed.offset if self.first_offset is None else self.first_offset
        self.last_offset = placed.offset

    def report(self, build: Build, seconds: dict[str, float], problems: Sequence[BuildProblem]) -> BuildReport:
        """What the attempt came to."""
        has_done = self.published or self.built
        return BuildReport(
            build.build_id,
            build.state.value,
            packages=build.bins,
            total=build.total,
            published=self.published,
            present=build.present if has_done else build.bins,
            built=self.built,
            nodes=self.nodes,
            content_bytes=self.content_bytes,
            stored_bytes=self.stored_bytes,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            stage_seconds=dict(seconds),
            problems=tuple(problems),
        )

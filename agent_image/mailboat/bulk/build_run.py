"""One attempt at a build, from the cut to the last package: what the driver does besides the distributed stages.

Every step can be taken again. The manifest holds what was built, the log what was published; the build's own document
says only how far it is. Packages are published when all of them are built: what fails before leaves nothing in the log.
Called by `mailboat bulk build`, with the stages on Spark.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain
from typing import Final, Protocol

from mailboat.blobs.port import BlobStore
from mailboat.bulk.bin_store import ArrangedBins, BinStore
from mailboat.bulk.build_claims import (
    BuildClaim,
    BuildDriver,
    BuildLostError,
    ClaimSubject,
    claimed_build,
    claimed_source,
)
from mailboat.bulk.build_manifest import Manifest, marked_present, package_key
from mailboat.bulk.build_records import BinResult, BuildProblem, BuiltBin, Recipe, problem_of
from mailboat.bulk.build_registry import Build, BuildRegistry, BuildState
from mailboat.bulk.build_reports import BuildReport, BuildTally, Progress, SilentProgress
from mailboat.bulk.cutter import Bin, BinKind
from mailboat.bulk.identity import derived_build_id, recipe_fingerprint
from mailboat.bulk.publication import RESUME_SECONDS, publish_build, rows_without_blobs
from mailboat.clock import Clock, milliseconds_now
from mailboat.content.listed_nodes import UnlistedEntry
from mailboat.errors import MailboatError, PermanentError, RetryableError, SourceChangedError, UsageError
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.model.identifiers import BuildId, Offset, PackageId
from mailboat.packages.port import PackageCodec, PackageContents
from mailboat.publisher.bulk_parts import BulkParts
from mailboat.publisher.published import UNKNOWN_DIGEST, SourceNode, StagedNode
from mailboat.publisher.source_changes import ChangeGroup


class BuildIncompleteError(PermanentError):
    """Some packages of a build failed, so nothing was published; the other packages are kept.

    The report names each path and reason. Repair them and run the same command again.
    """


class BuildConflictError(UsageError):
    """That build id belongs to a build of another source, other paths, another budget, log or publisher.

    Use another `--build-id`, or omit it: the id is then derived from what is built.
    """


class BuildOvertakenError(RetryableError):
    """Packages of the same paths were published during a build and during each of its further rounds.

    The build is complete, but may have reverted what was published in between. Repeat the command without `--build-id`
    when fewer publications run.
    """


def incomplete(build: Build, failed: Sequence[BuildProblem]) -> BuildIncompleteError:
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
        next_step="use another --build-id, or omit it",
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


def build_closing(group: ChangeGroup, codec: PackageCodec) -> BuiltBin:
    """The package that removes what a group of changes removes: it owns the paths and carries nothing."""
    into = io.BytesIO()
    summary = codec.write(PackageContents(group.filter, ()), into)
    return BuiltBin(
        BinKind.CLOSING,
        group.roots,
        hashlib.sha256(b"closing\0" + summary.package_digest).digest(),
        group.deep_roots,
        0,
        summary.length_bytes,
        summary.package_digest,
        summary.tree_digest,
        into.getvalue(),
    )


STORE_SECONDS: Final = 5.0
"""What was built is in the manifest at most so much later: a driver that dies loses only what is younger."""

# Each lists the whole source again: of a source that changes all the time, a build would never end.
FURTHER_ROUNDS: Final = 3
"""How often a build lists its source again because something of it was published, or changed, meanwhile."""

CHANGED: Final = SourceChangedError("").name


class BuildStages(Protocol):
    """Runs the distributed stages."""

    def cut(self, recipe: Recipe) -> Iterator[Bin | UnlistedEntry]:
        """Cut the source into bins, in no order; what can't be listed is reported. Raises: as `cut_whole`."""

    def build(self, recipe: Recipe, bins: Iterable[Bin]) -> Iterator[BinResult]:
        """Build and store the packages of some bins, in no order; they are read as they are built."""


@dataclass(frozen=True, slots=True)
class DriverPorts:
    """What a build works with; it closes none of it.

    Attributes:
        stages: The distributed stages.
        parts: Publishes packages.
        blobs: Where packages and manifests are.
        codec: Writes the closing packages.
        driver: Id of the process at work.
        clock: Time.
        progress: Receives the progress.
        failpoints: Where tests make it fail.
        resume_seconds: What was stored longer ago may be swept before it is published; see `resume_seconds_of`.
    """

    stages: BuildStages
    parts: BulkParts
    blobs: BlobStore
    codec: PackageCodec
    driver: BuildDriver
    clock: Clock
    progress: Progress = field(default_factory=SilentProgress)
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    resume_seconds: float = RESUME_SECONDS


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What is asked for.

    Attributes:
        recipe: What is built, and how.
        build_id: Its id; None derives one, so that the same command again is the same build.
        is_all: Publish also what the log has from an earlier build.
    """

    recipe: Recipe
    build_id: BuildId | None = None
    is_all: bool = False


class BuildRun:
    """One attempt. Use it once."""

    def __init__(self, order: BuildOrder, ports: DriverPorts) -> None:
        """Nothing happens yet."""
        self._order = order
        self._recipe = order.recipe
        self._is_all = order.is_all
        self._ports = ports
        self._library = BuildRegistry(ports.blobs.builds)
        self._seconds: dict[str, float] = {}
        self._tally = BuildTally()
        self._began_ms = milliseconds_now(self._ports.clock)
        self._cut_from: Offset | None = None
        self._contended: Build | None = None  # the last one during which something of its paths was published
        self._claims = list[BuildClaim]()
        self._opened = ExitStack()

    def run(self) -> BuildReport:
        """Build and publish, or go on with what an earlier attempt left.

        Raises:
            BuildConflictError: The id is that of another build.
            BuildBusyError, BuildLostError: Another driver has this build, or another one of this source.
            BuildIncompleteError: Something could not be built; nothing was published.
            BuildOvertakenError: Others published of the same paths all the time.
            SourceMissingError: A root is not in the source.
        """
        # The source too: of two builds of one source, each would take pages of the other for present.
        with self._opened, self._claimed(claimed_source(self._recipe)):
            report = self._first_round()
            for _ in range(FURTHER_ROUNDS):
                if self._contended is None:
                    return report
                report = self._further_round(self._contended)
            if self._contended is not None:
                raise overtaken(self._contended.build_id, FURTHER_ROUNDS)
            return report

    def _first_round(self) -> BuildReport:
        given = self._order.build_id
        if given is not None:
            with self._claimed(claimed_build(given)):
                self._ports.failpoints.reach(Failpoint.BULK_CLAIMED)
                known = self._known(given)
                if known is None or known.state is BuildState.BUILDING:
                    bins, problems = self._cut()
                    return self._build(self._begun(given, known, bins), bins, problems, self._remembered())
                # The same command after success is a repetition: nothing is listed again.
                if known.state is BuildState.COMPLETE and not known.problems:
                    return self._report(known, ())
                self._remembered()
                if known.state is BuildState.PUBLISHING and not self._is_overtaken(known):
                    return self._publish(known)
        bins, problems = self._cut()
        return self._build_derived(bins, problems, self._remembered())

    def _further_round(self, before: Build) -> BuildReport:
        """Bring what others published during a build, and the build reverted, to what the source has now."""
        # Not `--all` again: a further round publishes only what differs from the round before.
        self._contended, self._is_all = None, False
        bins, problems = self._cut()
        return self._build_derived(bins, problems, before)

    @contextmanager
    def _claimed(self, what: ClaimSubject) -> Iterator[None]:
        claim = BuildClaim(self._ports.blobs.builds, what, self._ports.driver, self._ports.clock)
        with claim.held():
            self._claims.append(claim)
            yield
            self._claims.remove(claim)

    def _check_claims(self) -> None:
        for claim in self._claims:
            claim.check()

    @contextmanager
    def _stage(self, name: str, total: int | None = None) -> Iterator[None]:
        self._ports.progress.begin(name, total)
        began = self._ports.clock.monotonic()
        yield
        # a sum: a further round runs each stage again
        self._seconds[name] = self._seconds.get(name, 0.0) + self._ports.clock.monotonic() - began

    def _known(self, build_id: BuildId) -> Build | None:
        found = self._library.read(build_id)
        if found is not None and recipe_fingerprint(found.recipe) != recipe_fingerprint(self._recipe):
            raise conflict(found)
        return found

    def _build_derived(self, bins: ArrangedBins, problems: Sequence[BuildProblem], latest: Build | None) -> BuildReport:
        """A build whose id is made of what is built."""
        if latest is not None and _is_same(latest, bins, problems) and not self._is_all:
            return self._report(latest, problems)
        build_id = self._id_of(bins, problems)
        with self._claimed(claimed_build(build_id)):
            self._ports.failpoints.reach(Failpoint.BULK_CLAIMED)
            found = self._known(build_id)
            if found is not None and found.state is BuildState.PUBLISHING and not self._is_overtaken(found):
                return self._publish(found)
            return self._build(self._begun(build_id, found, bins), bins, problems, latest)

    def _id_of(self, bins: ArrangedBins, problems: Sequence[BuildProblem]) -> BuildId:
        """That of a build of the same that can go on, else a new one."""
        open_one = self._library.unfinished(self._recipe, bins.revision.hex())
        if open_one is not None and (
            open_one.state is BuildState.BUILDING
            or (_is_same(open_one, bins, problems) and not self._is_overtaken(open_one))
        ):
            return open_one.build_id
        end = self._ports.parts.end_of(self._recipe.source)
        after = str(self._ports.parts.next_offset()) if end is None else end.package_id
        # With what was published last: going back to an earlier revision is a new build, not the old one resumed.
        return derived_build_id(self._recipe, bins.revision, after, problems)

    def _is_overtaken(self, build: Build) -> bool:
        """Whether something else was published of the source since: then what stands in the log of it is not done."""
        parts = self._ports.parts
        end = parts.end_of(self._recipe.source)
        if end is None:
            known = {build.build_id, *self._of_other_sources()}
            return parts.has_published_since(build.scan_from or Offset(0), self._recipe.roots, known)
        return end.package_id != build.last_package_id and parts.build_of(end) != build.build_id

    def _of_other_sources(self) -> set[BuildId]:
        return {build.build_id for build in self._library.builds() if build.recipe.source != self._recipe.source}

    def _cut(self) -> tuple[ArrangedBins, list[BuildProblem]]:
        # open until the run ends: bins are read from it while they are built
        store, problems = self._opened.enter_context(closing(BinStore())), list[BuildProblem]()
        # before the listing: what is published while the source is listed counts as published after it
        self._cut_from = self._ports.parts.next_offset()
        with self._stage("cut"):
            for unit in self._ports.stages.cut(self._recipe):
                if isinstance(unit, Bin):
                    store.put(unit)
                    self._ports.progress.advance(1)
                else:
                    problems.append(problem_of(unit.path, unit.error))
            # Sorted: executors answer in any order, and the id of the build is derived from these.
            return store.arranged(), sorted(problems)

    def _remembered(self) -> Build | None:
        """The newest complete build, if nothing else was published of the source since. A fresh state learns of it."""
        latest = self._library.latest(self._recipe)
        if latest is None or latest.last_package_id is None or latest.last_offset is None:
            return None
        parts, uri = self._ports.parts, self._recipe.source
        if not parts.is_known(uri):
            self._learn(latest, (latest.last_package_id, latest.last_offset))
        end = parts.end_of(uri)
        return latest if end is not None and end.package_id == latest.last_package_id else None

    def _learn(self, latest: Build, end: tuple[PackageId, Offset]) -> None:
        """Follow the source from its newest complete build on, and look in the log whether that is still right."""
        rows = self._library.manifest(latest).ordered()
        built = (StagedNode(node.path, node.digest) for row in rows for node in row.nodes)
        left_out = (StagedNode(problem.path, UNKNOWN_DIGEST) for problem in latest.problems)
        parts, since = self._ports.parts, Offset(end[1] + 1)
        is_doubted = parts.has_published_since(since, self._recipe.roots, self._of_other_sources())
        parts.remember(self._recipe.source, chain(built, left_out), end, is_doubted=is_doubted)

    def _begun(self, build_id: BuildId, known: Build | None, bins: ArrangedBins) -> Build:
        revision = bins.revision.hex()
        if known is not None:
            return replace(known, revision=revision, state=BuildState.BUILDING, completed_ms=None)
        return Build(build_id, self._recipe, milliseconds_now(self._ports.clock), revision)

    def _build(
        self, build: Build, bins: ArrangedBins, problems: Sequence[BuildProblem], latest: Build | None
    ) -> BuildReport:
        # those of the first attempt stay: its rows lie in the buckets that they make
        if not build.borders:
            build = replace(build, borders=bins.borders)
        build, failed = self._attempt(build, bins, problems, latest)
        for _ in range(FURTHER_ROUNDS):
            # A file saved during the build is cut again by the same command; other failures need a person.
            if not failed or any(problem.name != CHANGED for problem in failed):
                break
            bins, problems = self._cut()
            build, failed = self._attempt(replace(build, revision=bins.revision.hex()), bins, problems, latest)
        if failed:
            raise incomplete(build, failed)
        return self._publish(self._made_ready(build, self._library.manifest(build), bins))

    def _attempt(
        self, build: Build, bins: ArrangedBins, problems: Sequence[BuildProblem], latest: Build | None
    ) -> tuple[Build, list[BuildProblem]]:
        """Build what is missing of one listing; what could not be built is returned, and in the build's document."""
        build = replace(build, bins=len(bins), problems=tuple(problems))
        # Before anything is built: a later attempt finds the build by this document, and resumes it.
        self._library.write(build)
        self._ports.failpoints.reach(Failpoint.BULK_BUILD_STORED)
        manifest = self._library.manifest(build)
        wanted = frozenset(bins.signatures)
        earlier = None if self._is_all else latest
        have = wanted & _stored(manifest)
        # A sweep may have removed old blobs, or may do so before their packages are published: these are built again.
        if self._is_resumed(build):
            since = self._ports.clock.now() - timedelta(seconds=self._ports.resume_seconds)
            have -= {row.signature for row, _ in rows_without_blobs(manifest.rows(have), self._ports.blobs, since)}
        if earlier is not None:
            have |= self._take_present(earlier, manifest, wanted - have)
        failed = self._build_missing(manifest, bins, wanted - have, earlier)
        if failed:
            build = replace(build, problems=(*problems, *failed))
            self._library.write(build)
        return build, failed

    def _take_present(self, earlier: Build, manifest: Manifest, wanted: frozenset[bytes]) -> frozenset[bytes]:
        """Take over the rows of bins that the log has, as the newest complete build published them."""
        taken, published = set[bytes](), self._library.manifest(earlier)
        for row in published.rows(wanted & published.order()):
            # Closing packages remove what the source lacks now; those of an earlier build would remove something else.
            if row.kind is not BinKind.CLOSING:
                manifest.add(marked_present(row))
                taken.add(row.signature)
        manifest.flush()
        return frozenset(taken)

    def _build_missing(
        self, manifest: Manifest, bins: ArrangedBins, missing: frozenset[bytes], earlier: Build | None
    ) -> list[BuildProblem]:
        failed, published = list[BuildProblem](), frozenset[bytes]()
        if missing and earlier is not None:
            published = self._library.manifest(earlier).packages()
        stored_at = self._ports.clock.monotonic()
        with self._stage("build", len(missing)), self._rows_kept(manifest):
            for result in self._ports.stages.build(self._recipe, bins.bins(missing)):
                self._ports.progress.advance(1)
                if isinstance(result, BuildProblem):
                    failed.append(result)
                    continue
                # A fresh clone has other signatures (times, inodes) and the same packages.
                is_published = package_key(result.kind, result.roots, result.package_digest) in published
                manifest.add(marked_present(result) if is_published else result)
                self._tally.count(result)
                if self._ports.clock.monotonic() - stored_at >= STORE_SECONDS:
                    self._store_rows(manifest)
                    stored_at = self._ports.clock.monotonic()
            if missing:
                self._store_rows(manifest)
        return failed

    def _store_rows(self, manifest: Manifest) -> None:
        manifest.flush()
        # At each store: a driver that missed its lease must not go on, since another one may write this manifest.
        self._check_claims()
        self._ports.failpoints.reach(Failpoint.BULK_ROWS_STORED)

    @contextmanager
    def _rows_kept(self, manifest: Manifest) -> Iterator[None]:
        """Store the rows that came before an error: the next attempt need not build their packages again."""
        try:
            yield
        # nothing is stored: the manifest is another driver's now
        except BuildLostError:
            raise
        except MailboatError as error:
            with suppress(MailboatError):  # the error that ended the build is raised, for instance of a full disk
                manifest.flush()
            error.with_facts(build=manifest.build_id)
            raise

    def _made_ready(self, build: Build, manifest: Manifest, bins: ArrangedBins) -> Build:
        """All is built: the closing packages, the order, and that publication begins."""
        with self._stage("close"):
            last = sorted(self._closing(build, manifest, bins), key=lambda one: one.order)
        for unit in last:
            manifest.add(unit)
        # the order before the state: a build in state PUBLISHING always has an order to go on with
        manifest.store_order([*bins.signatures, *(unit.signature for unit in last)])
        self._ports.failpoints.reach(Failpoint.BULK_ORDER_STORED)
        present = sum(row.is_present for row in manifest.ordered())
        end = self._ports.parts.end_of(self._recipe.source)
        ready = replace(
            build,
            state=BuildState.PUBLISHING,
            bins=len(bins) + len(last),
            present=present,
            total=len(bins) + len(last) - present,
            scan_from=self._cut_from,
            last_package_id=None if end is None else end.package_id,
            last_offset=None if end is None else end.offset,
        )
        self._library.write(ready)
        self._ports.failpoints.reach(Failpoint.BULK_PUBLISHING_STORED)
        return ready

    def _closing(self, build: Build, manifest: Manifest, bins: ArrangedBins) -> Iterator[BuiltBin]:
        parts, uri = self._ports.parts, self._recipe.source
        if not parts.is_known(uri):
            return
        manifest.flush()
        rows = manifest.rows(frozenset(bins.signatures))
        nodes = (SourceNode(node.path, node.digest, 0, False) for row in rows for node in row.nodes)
        # What could not be listed was not removed: it stays at the subscribers.
        kept = [problem.path for problem in build.problems]
        for group in parts.removals(uri, self._recipe.roots, nodes, kept):
            yield build_closing(group, self._ports.codec)

    def _publish(self, build: Build) -> BuildReport:
        ports = self._ports
        manifest, is_doubted = self._library.manifest(build), self._is_resumed(build)
        with self._stage("publish", build.total):
            for placed in publish_build(build, manifest, ports.parts, ports.blobs, is_doubted=is_doubted):
                ports.failpoints.reach(Failpoint.BULK_PART_PUBLISHED)
                self._tally.publish(placed)
                ports.progress.advance(1)
                build = replace(build, last_package_id=placed.package_id, last_offset=placed.offset)
                # A driver that lost its claim stops here, before another append: its successor publishes the rest.
                self._check_claims()
        build = replace(build, state=BuildState.COMPLETE, completed_ms=milliseconds_now(self._ports.clock))
        self._library.write(build)
        ports.failpoints.reach(Failpoint.BULK_COMPLETE_STORED)
        # After the state COMPLETE: a crash in between keeps an old manifest until the next build.
        self._library.prune(self._recipe)
        self._contended = build if self._was_contended(build) else None
        return self._report(build, build.problems)

    def _was_contended(self, build: Build) -> bool:
        """Whether anything else of its paths was published since its source was listed."""
        parts, since = self._ports.parts, build.scan_from or Offset(0)
        if parts.next_offset() - since == build.total:
            # the log has nothing but this build from there on: it need not be read
            return False
        known = {build.build_id, *self._of_other_sources()}
        return parts.has_published_since(since, self._recipe.roots, known)

    def _is_resumed(self, build: Build) -> bool:
        """Whether something of a build may have been stored so long ago that a sweep has taken it since."""
        return (
            build.created_ms < self._began_ms
            or milliseconds_now(self._ports.clock) - build.created_ms > self._ports.resume_seconds * 1000
        )

    def _report(self, build: Build, problems: Sequence[BuildProblem]) -> BuildReport:
        return self._tally.report(build, self._seconds, problems)


def _stored(manifest: Manifest) -> frozenset[bytes]:
    """What earlier attempts built. What they found to be present may not be so any more."""
    return frozenset(signature for signature, is_present in manifest.signatures() if not is_present)


def _is_same(build: Build, bins: ArrangedBins, problems: Sequence[BuildProblem]) -> bool:
    """Whether a build is of the tree that was cut: what can't be listed has no part in the revision."""
    return build.revision == bins.revision.hex() and build.problems == tuple(problems)

"""The lane of bulk builds: how many parts are appended in one step, and how long others who publish wait for them."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.bulk.build_run import BuildOrder
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import AppendUncertainError
from mailboat.failpoints import Failpoint
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId, RequestId, TopicName
from mailboat.model.messages import BulkPart
from mailboat.model.nodes import Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import add_request
from mailboat.publisher.bulk_parts import STEP_CHANGES, Part
from mailboat.publisher.published import StagedNode
from mailboat.publisher.state import PublisherState
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from mailboat.wire.package_messages import decode_package
from support.bulk_scenario import STEP_PARTS, recipe_for, run
from support.engines import Engine, EngineParts, memory_engine, write_site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with some pages."""
    write_site(tmp_path / "site", {f"{letter}/{number}.html": letter * 600 for letter in "ab" for number in range(9)})
    return tmp_path / "site"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Journal and blobs in memory."""
    with memory_engine(tmp_path / "home") as opened:
        yield opened


def is_held(file: Path) -> bool:
    """Whether a process holds a lock on the file."""
    with file.open("a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


class OnePublication:
    """Another process's publication: it begins, appends while a step of the build does, and notes what it waited for.

    It begins when the build reaches `begins_at`, and wants to append when the build's next append has begun.
    """

    def __init__(self, engine: Engine, begins_at: Failpoint | None) -> None:
        self._engine = engine
        self._begins_at = begins_at
        self._has_begun, self._may_append = threading.Event(), threading.Event()
        self._append = engine.journal.append
        self._worker = threading.Thread(target=self._publish)
        self.waited = list[int]()
        engine.journal.append = self._append_beside  # type: ignore[method-assign]  # of this test's engine

    def reach(self, failpoint: Failpoint) -> None:
        """See `Failpoints`."""
        if failpoint == self._begins_at:
            self._begin()

    def end(self) -> None:
        """Wait until it is done."""
        self._worker.join(PATIENCE_SECONDS)

    def _begin(self) -> None:
        if not self._has_begun.is_set():
            self._worker.start()
            assert self._has_begun.wait(PATIENCE_SECONDS)

    def _publish(self) -> None:
        publisher = self._engine.publisher()
        with closing(PublisherState(self._engine.state.path)) as state, state.locks.publication_under_way():
            self._has_begun.set()
            assert self._may_append.wait(PATIENCE_SECONDS)
            end = publisher.parts.next_offset()
            with state.locks.exclusive():
                self.waited.append(publisher.parts.next_offset() - end)

    def _append_beside(self, topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        if not self._may_append.is_set():
            self._begin()
            self._may_append.set()
            waiting = self._engine.state.path.with_name(f"{self._engine.state.path.name}.append-waiting")
            wait_until(lambda: is_held(waiting))
        return self._append(topic, records)


@pytest.mark.costly("publishes more than two whole steps of a build")
@pytest.mark.parametrize(
    ("begins_at", "most"),
    [
        pytest.param(Failpoint.BULK_PART_STAGED, 1, id="begun before the step: one package"),
        pytest.param(None, STEP_PARTS, id="begun while a step is appended: that step"),
    ],
)
def test_a_single_publication_waits_for_one_package_or_for_the_step_that_was_begun(
    site: Path, tmp_path: Path, begins_at: Failpoint | None, most: int
) -> None:
    failpoints = _Late()
    with Engine(tmp_path / "home", EngineParts(failpoints=failpoints)) as engine:
        failpoints.publication = one = OnePublication(engine, begins_at)
        report = run(engine, BuildOrder(recipe_for(engine, site)))
        one.end()
        assert report.published > 2 * STEP_PARTS
        assert one.waited == [most]


class _Late:
    """Failpoints of a publication that is made after them."""

    publication: OnePublication | None = None

    def reach(self, failpoint: Failpoint) -> None:
        if self.publication is not None:
            self.publication.reach(failpoint)


class LookingSource(FolderSource):
    """Notes whether a build could know of the publication that reads it."""

    def __init__(self, site: Path, state: PublisherState) -> None:
        super().__init__(site)
        self._state = state
        self.seen = set[bool]()

    def walk(self, root: NodePath = ROOT, *, is_deep: bool = True) -> Iterator[Node]:
        self.seen.add(self._state.locks.probe_publication())
        return super().walk(root, is_deep=is_deep)


def test_builds_know_of_a_publication_from_its_beginning_to_its_end(engine: Engine, site: Path) -> None:
    with closing(PublisherState(engine.state.path)) as other:
        source = LookingSource(site, other)
        assert not other.locks.probe_publication()
        engine.publisher().publish(add_request([NodePath("/a")]), source)
        assert not other.locks.probe_publication()
        list(engine.publisher().publish_changed(source))
        assert not other.locks.probe_publication()
        assert source.seen == {True}


def part(number: int, *, payload_bytes: int = 10, changes: int = 1) -> Part:
    """A part of a build of a hundred."""
    root = NodePath(f"/page-{number}")
    return Part(
        BulkPart(BuildId("b"), number, 100),
        PackageId(f"dstrpck-1-{number:08}-0000-8000-8000-000000000000"),
        RequestId(f"bulk-b-{number}"),
        (root,),
        frozenset({root}),
        "tree",
        payload_bytes,
        bytes(32),
        bytes(32),
        b"x" * payload_bytes,
        changes=[StagedNode(NodePath(f"{root}/{each}"), bytes(32)) for each in range(changes)],
    )


def steps_of(engine: Engine, parts: Sequence[Part], **settings: object) -> list[int]:
    """How many messages each append has."""
    steps = list[int]()
    append = engine.journal.append

    def noting(topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        steps.append(len(records))
        return append(topic, records)

    engine.journal.append = noting  # type: ignore[method-assign]  # of this test's engine
    publisher = engine.publisher(engine.publishing_with(**settings))
    placed = list(publisher.parts.ship(((part, None) for part in parts), "folder:/site"))
    assert [item.offset for item in placed] == list(range(len(parts)))
    return steps


def test_many_small_parts_are_appended_in_one_step(engine: Engine) -> None:
    assert steps_of(engine, [part(number) for number in range(7)], append_records=5) == [5, 2]


def test_the_messages_of_a_step_are_no_longer_than_one_may_be(engine: Engine) -> None:
    limit = engine.publishing.max_message_bytes
    parts = [part(number, payload_bytes=limit // 3) for number in range(5)]
    assert steps_of(engine, [*parts, part(5, payload_bytes=limit // 2)]) == [2, 2, 2]


def test_a_step_changes_no_more_of_the_source_than_one_package_does(engine: Engine) -> None:
    parts = [part(0, changes=STEP_CHANGES // 2), part(1, changes=STEP_CHANGES // 2), part(2), part(3, changes=3_000)]
    assert steps_of(engine, [*parts, part(4)]) == [2, 1, 1, 1]


def test_while_a_publication_is_under_way_a_step_is_one_part(engine: Engine) -> None:
    with closing(PublisherState(engine.state.path)) as other, other.locks.publication_under_way():
        assert steps_of(engine, [part(number) for number in range(4)]) == [1, 1, 1, 1]


@pytest.mark.parametrize("taken", range(STEP_PARTS + 1))
def test_of_a_step_that_the_journal_took_a_part_of_the_rest_is_appended_by_the_next_attempt(
    engine: Engine, site: Path, taken: int
) -> None:
    append = engine.journal.append
    order = BuildOrder(recipe_for(engine, site), BuildId("release-7"))

    def taking_some(topic: TopicName, records: Sequence[NewRecord]) -> Sequence[Offset]:
        engine.journal.append = append  # type: ignore[method-assign]  # of this test's engine
        append(topic, records[:taken])
        raise AppendUncertainError("no answer", topic=topic)

    engine.journal.append = taking_some  # type: ignore[method-assign]  # of this test's engine
    if taken < STEP_PARTS:
        with pytest.raises(AppendUncertainError):
            run(engine, order)
    run(engine, order)
    found = [decode_package(record.value).bulk for record in engine.records()]
    assert [item.sequence for item in found if item is not None] == list(range(len(found)))
    assert len(found) > STEP_PARTS
    assert list(engine.publisher().publish_changed(FolderSource(site))) == []


def test_what_an_attempt_staged_and_did_not_publish_is_not_taken_for_published(engine: Engine, site: Path) -> None:
    source = FolderSource(site)
    run(engine, BuildOrder(recipe_for(engine, site)))
    end = engine.publisher().parts.end_of(source.uri)
    assert end is not None
    for path in ("/a/0.html", "/b/0.html"):
        engine.state.published.stage([(end.package_id, [StagedNode(NodePath(path), bytes(32))])], (end.source_id,))
    engine.state.take_over(end.package_id, end.offset)
    (receipt,) = engine.publisher().publish_changed(source)
    assert receipt.paths == ("/b/0.html",)


def test_parts_of_another_publishers_build_of_the_same_id_are_not_found(engine: Engine) -> None:
    other = engine.publisher(engine.publishing_with(name=AgentName("other")))
    list(other.parts.ship([(part(0), None)], "folder:/elsewhere"))
    assert other.parts.published_parts(BuildId("b"), Offset(0)).keys() == {0}
    assert engine.publisher().parts.published_parts(BuildId("b"), Offset(0)) == {}

"""What readers of a `generations:` target see of bulk builds, where builds are to be shown as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mailboat.cli.subscriber_run import progress_document, progress_text
from mailboat.config.document import Expose
from mailboat.content.port import Target
from mailboat.failpoints import Failpoint
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import CommandMessage
from mailboat.operations.target_snapshots import restore_snapshot, take_snapshot
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples
from support.engines import (
    AUTHOR,
    COMMANDS,
    EDGE,
    SLING_ID,
    Engine,
    EngineParts,
    StopWhen,
    memory_engine,
    watched_subscriber,
)
from support.exposure_scenario import Author, Step, build_of, digest_of_files, digest_seen

OTHER = AgentName("other")
WHOLE: Any = {"expose": Expose.BUILD, "expose_seconds": None}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with memory_engine(tmp_path) as engine:
        yield engine


def place_of(engine: Engine) -> Path:
    return engine.folder / "edge-generations"


def import_all(
    engine: Engine, expose: Expose = Expose.BUILD, max_records: int = 100, **values: object
) -> SubscriberStatistics:
    """A run of a subscriber from where its target stands, to the end of the log."""
    with closing(engine.target("generations")) as target:
        changes = {"expose": expose, "expose_seconds": None, "max_batch_records": max_records, **values}
        told = engine.with_settings(**changes)
        return engine.subscriber(target, told).run(Until.CAUGHT_UP)


def shown(engine: Engine) -> str:
    return digest_seen(place_of(engine))


def open_builds(target: Target) -> list[tuple[str, str, int, int]]:
    return [
        (open_build.publisher, open_build.build_id, open_build.done, open_build.total)
        for open_build in target.ledger.open_builds
    ]


def test_a_build_is_shown_when_its_last_package_is_imported(engine: Engine) -> None:
    author = Author(engine)
    author.publish([Step("a"), *build_of("b1", "a", "b", "c")[:2]])
    found = import_all(engine)
    assert shown(engine) == digest_of_files({"a": "text"})
    assert (found.next_offset, found.stored_offset, found.imported, found.held_back) == (3, 3, 3, 1)
    author.publish(build_of("b1", "a", "b", "c")[2:])
    found = import_all(engine)
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1", "c": "b1"})
    assert (found.imported, found.held_back, found.build) == (1, 0, None)
    assert len(engine.statuses()) == 4


def test_every_package_is_shown_at_once_where_nothing_else_was_asked_for(engine: Engine) -> None:
    Author(engine).publish(build_of("b1", "a", "b", "c")[:2])
    found = import_all(engine, Expose.PACKAGE)
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1"})
    assert (found.held_back, found.build) == (0, build_of("b1", "a", "b", "c")[1].part)


def test_what_came_before_a_build_in_the_same_batch_is_shown_before_it(engine: Engine) -> None:
    Author(engine).publish([Step("a"), Step("b"), *build_of("b1", "c", "d")[:1]])
    import_all(engine)
    assert shown(engine) == digest_of_files({"a": "text", "b": "text"})


def test_a_build_is_shown_before_the_next_one_in_the_same_batch(engine: Engine) -> None:
    author = Author(engine)
    author.publish([*build_of("b1", "a", "b"), *build_of("b2", "a", "b")[:1]])
    import_all(engine)
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1"})
    assert list(place_of(engine).glob("0*")) == [place_of(engine) / (place_of(engine) / "current").readlink()]


def test_a_single_publication_within_a_build_is_shown_with_it(engine: Engine) -> None:
    author = Author(engine)
    first, last = build_of("b1", "a", "b")
    author.publish([first, Step("news")])
    import_all(engine)
    assert shown(engine) == digest_of_files({})
    author.publish([last])
    import_all(engine)
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1", "news": "text"})


def test_a_build_of_one_package_waits_for_nothing(engine: Engine) -> None:
    Author(engine).publish(build_of("b1", "a"))
    assert import_all(engine).held_back == 0
    assert shown(engine) == digest_of_files({"a": "b1"})


@pytest.mark.parametrize("publisher", [AUTHOR, OTHER])
def test_two_builds_at_once_are_shown_when_both_are_whole(engine: Engine, publisher: AgentName) -> None:
    author = Author(engine)
    one, two = build_of("b1", "a", "b"), build_of("b2", "c", "d", publisher=publisher)
    author.publish([one[0], two[0], one[1]])
    assert import_all(engine).held_back == 1
    assert shown(engine) == digest_of_files({})
    author.publish(two[1:])
    import_all(engine)
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1", "c": "b2", "d": "b2"})


def test_the_same_id_of_two_publishers_is_two_builds(engine: Engine) -> None:
    author = Author(engine)
    author.publish([build_of("b1", "a", "b")[0], *build_of("b1", "c", "d", publisher=OTHER)])
    with closing(engine.target("generations")) as target:
        engine.subscriber(target, engine.with_settings(**WHOLE)).run(Until.CAUGHT_UP)
        assert open_builds(target) == [(AUTHOR, "b1", 1, 2)]
    assert shown(engine) == digest_of_files({})


def test_who_follows_another_publisher_does_not_wait_for_a_build(engine: Engine) -> None:
    Author(engine).publish([build_of("b1", "a", "b", publisher=OTHER)[0], Step("news")])
    assert import_all(engine, follow=frozenset({AUTHOR})).held_back == 0
    assert shown(engine) == digest_of_files({"news": "text"})


def test_who_comes_in_the_middle_of_a_build_waits_for_its_end(engine: Engine) -> None:
    author = Author(engine)
    author.publish(build_of("b1", "a", "b", "c"))
    with closing(engine.target("generations")) as target:
        target.ledger.reset_position(engine.position(1))
        observer = StopWhen(lambda statistics: statistics.next_offset == 2)
        engine.subscribing = engine.with_settings(**WHOLE, max_batch_records=1)
        watched_subscriber(engine, target, observer).run()
        assert open_builds(target) == [(AUTHOR, "b1", 2, 3)]
    assert shown(engine) == digest_of_files({})
    import_all(engine)
    assert shown(engine) == digest_of_files({"b": "b1", "c": "b1"})


def test_a_package_of_a_build_that_was_given_up_does_not_keep_it_back(engine: Engine) -> None:
    Author(engine).publish(build_of("b1", "a", None, "c"))
    assert import_all(engine).failed == 1
    assert shown(engine) == digest_of_files({"a": "b1", "c": "b1"})


def test_a_build_whose_last_package_was_given_up_is_shown(engine: Engine) -> None:
    Author(engine).publish(build_of("b1", "a", "b", None))
    assert import_all(engine).failed == 1
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1"})


def test_a_build_whose_end_was_cleared_is_shown(engine: Engine) -> None:
    Author(engine).publish([*build_of("b1", "a", "b", "c"), Step("news")])
    with closing(engine.target("generations")) as target:
        engine.subscriber(target, engine.with_settings(command_topic=COMMANDS)).prepare()
    engine.send(COMMANDS, CommandMessage(SLING_ID, EDGE, Offset(2), AUTHOR, "clear"))
    found = import_all(engine, command_topic=COMMANDS)
    assert (found.dropped, found.held_back) == (3, 0)
    assert shown(engine) == digest_of_files({"news": "text"})


def test_a_re_drive_waits_for_the_end_of_a_build(engine: Engine) -> None:
    author = Author(engine)
    author.publish([Step(None), *build_of("b1", "a", "b")[:1]])
    import_all(engine)
    with closing(engine.target("generations")) as target:
        target.ledger.request_redrive(Offset(0))
    found = import_all(engine)
    assert (found.still_given_up, found.redriven) == (0, 0)
    author.publish(build_of("b1", "a", "b")[1:])
    import_all(engine)
    assert import_all(engine).still_given_up == 1


def test_a_build_that_went_quiet_is_shown_as_far_as_it_came(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with memory_engine(tmp_path, EngineParts(clock, synchronous="OFF")) as engine:
        Author(engine).publish(build_of("b1", "a", "b", "c")[:2])
        clock.advance(59.0)
        assert import_all(engine, expose_seconds=60.0).held_back == 1
        assert shown(engine) == digest_of_files({})
        clock.advance(1.0)
        assert import_all(engine, expose_seconds=60.0).held_back == 0
        assert shown(engine) == digest_of_files({"a": "b1", "b": "b1"})
        assert "build b1 of author is at package 2 of 3, and no package of it came for 60 s" in caplog.text
        assert import_all(engine, expose_seconds=60.0).commits == 0


def test_a_build_that_goes_on_after_it_was_given_up_is_waited_for_again(tmp_path: Path) -> None:
    clock = ManualClock()
    with memory_engine(tmp_path, EngineParts(clock, synchronous="OFF")) as engine:
        author, steps = Author(engine), build_of("b1", "a", "b", "c", "d")
        author.publish(steps[:1])
        import_all(engine, expose_seconds=60.0)
        clock.advance(60.0)
        import_all(engine, expose_seconds=60.0)
        author.publish(steps[1:3])
        assert import_all(engine, expose_seconds=60.0).held_back == 1
        assert shown(engine) == digest_of_files({"a": "b1"})
        author.publish(steps[3:])
        import_all(engine, expose_seconds=60.0)
        assert shown(engine) == author.whole[-1]


def test_a_backlog_that_is_old_does_not_make_a_build_quiet(tmp_path: Path) -> None:
    clock = ManualClock()
    with memory_engine(tmp_path, EngineParts(clock, synchronous="OFF")) as engine:
        Author(engine).publish(build_of("b1", "a", "b", "c"))
        clock.advance(1_000.0)
        seen = set[str]()
        with closing(engine.target("generations")) as target:

            def is_done(statistics: SubscriberStatistics) -> bool:
                seen.add(shown(engine))
                return statistics.lag_offsets == 0

            observer = StopWhen(is_done)
            engine.subscribing = engine.with_settings(expose=Expose.BUILD, expose_seconds=60.0, max_batch_records=1)
            watched_subscriber(engine, target, observer).run()
        assert seen == {digest_of_files({}), digest_of_files({"a": "b1", "b": "b1", "c": "b1"})}


def test_builds_are_waited_for_no_more_when_the_setting_is_taken_back(engine: Engine) -> None:
    Author(engine).publish(build_of("b1", "a", "b", "c")[:2])
    import_all(engine)
    assert import_all(engine, Expose.PACKAGE).held_back == 0
    assert shown(engine) == digest_of_files({"a": "b1", "b": "b1"})


def test_a_snapshot_within_a_build_goes_on_from_what_is_shown(engine: Engine) -> None:
    author = Author(engine)
    author.publish([Step("a"), *build_of("b1", "b", None, "c")[:2]])
    import_all(engine)
    snapshot = engine.folder / "snap"
    take_snapshot(f"generations:{place_of(engine)}", snapshot, engine.parts.clock)
    place_of(engine).rename(engine.folder / "gone")
    restore_snapshot(snapshot, f"generations:{place_of(engine)}", None)
    with closing(engine.target("generations")) as target:
        assert target.ledger.position() == engine.position(1)
        assert target.ledger.given_up() == []
    author.publish(build_of("b1", "b", None, "c")[2:])
    assert import_all(engine).failed == 1
    assert shown(engine) == digest_of_files({"a": "text", "b": "b1", "c": "b1"})


class WorkerMonitor:
    """Looks at `current` whenever a step is reached, as a reader may at any moment."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.seen: list[str] = []

    def reach(self, failpoint: Failpoint) -> None:  # noqa: ARG002  # part of the port
        found = digest_seen(self._place)
        if not self.seen or self.seen[-1] != found:
            self.seen.append(found)


NAMES = st.sampled_from(["a", "b", "c", "d"])
TEXTS = st.sampled_from(["one", "two", None])


@st.composite
def logs(draw: st.DrawFn) -> list[Step]:
    """Builds and single publications, interleaved at will; builds may lack their end."""
    lanes = [
        [Step(step.name, draw(TEXTS), step.part, step.publisher) for step in build]
        for build in (
            build_of("b1", *draw(st.lists(NAMES, min_size=1, max_size=4))),
            build_of(
                "b2", *draw(st.lists(NAMES, min_size=1, max_size=3)), publisher=draw(st.sampled_from([AUTHOR, OTHER]))
            ),
            [],
        )
    ]
    lanes[2] = [Step(draw(NAMES), draw(TEXTS)) for _ in range(draw(st.integers(0, 4)))]
    steps = list[Step]()
    while any(lanes):
        lane = draw(st.sampled_from([lane for lane in lanes if lane]))
        steps.append(lane.pop(0))
    return steps[: draw(st.integers(1, len(steps)))]


@given(steps=logs(), max_records=st.integers(1, 6))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_readers_see_whole_builds_only_and_never_go_back(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], max_records: int
) -> None:
    folder = tmp_path_factory.mktemp("exposed")
    watching = WorkerMonitor(folder / "edge-generations")
    with memory_engine(folder, EngineParts(ManualClock(), watching, synchronous="OFF")) as engine:
        author = Author(engine)
        author.publish(steps)
        import_all(engine, max_records=max_records)
        with closing(engine.target("sqlite")) as reference:
            engine.subscriber(reference).run(Until.CAUGHT_UP)
        watching.reach(Failpoint.SUBSCRIBER_COMMITTED)
    at = 0
    for item in watching.seen:
        assert item in author.whole[at:], "readers saw what was never whole, or went back"
        at += author.whole[at:].index(item)
    assert watching.seen[-1] == author.whole[-1]


def test_the_figures_of_a_build_stand_in_the_progress_of_a_subscriber(engine: Engine) -> None:
    Author(engine).publish(build_of("release-42", *(f"{number}" for number in range(1_500)))[:1_200])
    found = import_all(engine)
    document = json.loads(json.dumps(progress_document("edge", found)))
    assert document["build"] == {"id": "release-42", "imported": 1_200, "total": 1_500}
    assert document["held_back"] == 1
    assert "release-42 1,200 of 1,500  readers wait for its end" in progress_text("edge", found)

"""Commands: what each comes to, what a clear covers, that each is done once and answered once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mailboat.clock import Deadline
from mailboat.content.port import OpenCommand, RestoreRecord, Target
from mailboat.journal.port import NewRecord, ReadLimits
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    Action,
    AfterCall,
    CommandMessage,
    CommandState,
    CommandVerb,
    PackageMessage,
    PackageStatus,
    RedriveMessage,
)
from mailboat.model.paths import NodePath
from mailboat.model.positions import LogIdentity, Position
from mailboat.model.requests import add_request
from mailboat.subscriber.commands import CommandFacts, CommandHandler, Reply, decide_command
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Subscriber, Until
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors, SubscriberPorts, SubscriberSettings
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.engines import AUTHOR, COMMANDS, EDGE, PACKAGES, SLING_ID, Engine, page_source

OTHER = AgentName("other")
STRANGER = SlingId("ffffffff-0000-4000-8000-000000000001")
FACTS = CommandFacts(True, None, Offset(5), Offset(10), {Offset(3)})


def clear(offset: int, command_id: str | None = "clear-1", publisher: AgentName | None = AUTHOR) -> CommandMessage:
    return CommandMessage(SLING_ID, EDGE, Offset(offset), publisher, command_id)


def redrive(offset: int, command_id: str | None = "redrive-1") -> RedriveMessage:
    return RedriveMessage(SLING_ID, EDGE, Offset(offset), AUTHOR, command_id)


# ---------------------------------------------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("command", "facts", "state", "reason"),
    [
        (clear(7), replace(FACTS, is_editable=False), CommandState.REFUSED, "not editable"),
        (clear(7), replace(FACTS, follow={OTHER}), CommandState.REFUSED, "does not follow author"),
        (clear(10), FACTS, CommandState.REFUSED, "beyond the log, which ends at 10"),
        (clear(2**62), FACTS, CommandState.REFUSED, "beyond the log"),
        (clear(4), FACTS, CommandState.DONE, "was done before"),
        (redrive(4), FACTS, CommandState.REFUSED, "no error-queue entry and no failed hook call at offset 4"),
    ],
)
def test_a_command_that_is_over_at_once_says_why(
    command: CommandMessage | RedriveMessage, facts: CommandFacts, state: CommandState, reason: str
) -> None:
    reply = decide_command(command, facts)
    assert isinstance(reply, Reply)
    assert (reply.state, reason in reply.message) == (state, True)


@pytest.mark.parametrize(
    "command", [clear(5), clear(9), clear(9, publisher=None), clear(9, publisher=OTHER), redrive(3)]
)
def test_a_command_that_has_something_to_do_is_open(command: CommandMessage | RedriveMessage) -> None:
    assert decide_command(command, FACTS) is None


# ------------------------------------------------------------------------------------------------------- with a log


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(tmp_path) as opened:
        opened.subscribing = opened.with_settings(
            command_topic=COMMANDS, max_retries=None, first_pause_seconds=3600.0, longest_pause_seconds=3600.0
        )
        yield opened


@pytest.fixture
def target(engine: Engine) -> Iterator[Target]:
    opened = engine.target("sqlite")
    yield opened
    opened.close()


def publish(engine: Engine, *paths: str, publisher: AgentName = AUTHOR) -> int:
    request = add_request(map(NodePath, paths))
    return engine.publisher(engine.publishing_with(name=publisher)).publish(request, page_source(*paths)).offset


def poison(engine: Engine, publisher: AgentName = AUTHOR) -> int:
    """A package whose blob no one has."""
    plain = PackageMessage(SLING_ID, PackageId("poison"), Action.ADD, "tree", publisher, paths=(NodePath("/bad"),))
    message = plain._replace(payload_ref=f"sha256:{'22' * 32}:9", package_length_bytes=9)
    engine.send(PACKAGES, message)
    return engine.journal.bounds(PACKAGES).next_offset - 1


def catch_up(engine: Engine, target: Target, settings: SubscriberSettings | None = None) -> Any:
    return engine.subscriber(target, settings).run(Until.CAUGHT_UP)


def prepared(engine: Engine, target: Target) -> None:
    engine.subscriber(target).prepare()


def paths_in(target: Target) -> set[str]:
    source = target.source()
    try:
        return {node.path for node in source.walk(NodePath("/"))}
    finally:
        source.close()


def statuses(engine: Engine) -> dict[int, PackageStatus]:
    told = engine.statuses()
    found: dict[int, PackageStatus] = {item.offset: item.status for item in told}
    assert len(found) == len(told), "a package was confirmed twice"
    return found


def has_results(engine: Engine, count: int) -> bool:
    return len(engine.results()) == count


class Running:
    """A subscriber in a thread of its own."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._thread = threading.Thread(target=subscriber.run)

    def __enter__(self) -> Subscriber:
        self._thread.start()
        return self.subscriber

    def __exit__(self, *_: object) -> None:
        self.subscriber.stop()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()


def test_a_clear_drops_the_packages_up_to_its_offset_and_says_how_many(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    for number in range(5):
        publish(engine, f"/page-{number}")
    engine.send(COMMANDS, clear(2))
    statistics = catch_up(engine, target)
    assert paths_in(target) == {"/page-3", "/page-4"}
    assert (statistics.dropped, statistics.imported) == (3, 2)
    removed, imported = PackageStatus.REMOVED, PackageStatus.IMPORTED
    assert statuses(engine) == {0: removed, 1: removed, 2: removed, 3: imported, 4: imported}
    (result,) = engine.results()
    assert (result.command_id, result.state, result.removed) == ("clear-1", CommandState.DONE, 3)
    assert result.message == "3 packages were dropped"


def test_a_clear_is_limited_to_the_publisher_whose_queue_it_clears(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    publish(engine, "/mine")
    publish(engine, "/theirs", publisher=OTHER)
    publish(engine, "/mine-too")
    engine.send(COMMANDS, clear(2))
    catch_up(engine, target)
    assert paths_in(target) == {"/theirs"}
    assert [result.removed for result in engine.results()] == [2]


def test_a_clear_of_the_original_names_no_publisher_means_all_and_gets_no_answer(
    engine: Engine, target: Target
) -> None:
    prepared(engine, target)
    publish(engine, "/mine")
    publish(engine, "/theirs", publisher=OTHER)
    engine.send(COMMANDS, clear(1, None, None))
    catch_up(engine, target)
    assert paths_in(target) == set()
    assert engine.results() == []
    assert not target.ledger.commands.open_commands()


def test_a_lower_clear_after_a_higher_one_takes_nothing_back(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    for number in range(3):
        publish(engine, f"/page-{number}")
    engine.send(COMMANDS, clear(1, "high"), clear(0, "low"))
    catch_up(engine, target)
    assert paths_in(target) == {"/page-2"}
    assert {result.command_id: result.removed for result in engine.results()} == {"high": 2, "low": 0}


def test_packages_that_are_read_later_than_the_clear_are_dropped_too(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    for number in range(7):
        publish(engine, f"/page-{number}")
    engine.send(COMMANDS, clear(5))
    few = engine.with_settings(max_batch_records=2)
    catch_up(engine, target, few)
    assert paths_in(target) == {"/page-6"}
    assert [result.removed for result in engine.results()] == [6]


def test_a_clear_beyond_the_log_is_refused_and_touches_nothing_that_comes(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    publish(engine, "/page-0")
    engine.send(COMMANDS, clear(1))
    catch_up(engine, target)
    publish(engine, "/page-1")
    catch_up(engine, target)
    assert paths_in(target) == {"/page-0", "/page-1"}
    (result,) = engine.results()
    assert (result.state, result.message) == (
        CommandState.REFUSED,
        "the offset 1 is beyond the log, which ends at 1",
    )


def test_one_that_is_not_editable_refuses_clears_and_takes_redrives(engine: Engine, target: Target) -> None:
    plain = engine.with_settings(is_editable=False, max_retries=0)
    engine.subscriber(target, plain).prepare()
    failed = poison(engine)
    catch_up(engine, target, plain)
    engine.send(COMMANDS, clear(0), redrive(failed))
    catch_up(engine, target, plain)
    results = {result.command_id: (result.state, result.message) for result in engine.results()}
    assert results["clear-1"] == (CommandState.REFUSED, "edge is not editable, so it takes no clear commands")
    assert results["redrive-1"][0] is CommandState.REFUSED
    assert "BlobMissing" in str(results["redrive-1"][1])


def test_a_redrive_imports_what_was_given_up_and_says_so(engine: Engine, target: Target) -> None:
    strict = engine.with_settings(max_retries=0)
    engine.subscriber(target, strict).prepare()
    failing = [True]

    class Hook:
        def process(self, package: ProcessedPackage) -> None:  # noqa: ARG002  # part of the port
            if failing[0]:
                raise ValueError("not now")

    def hooked(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(before=Hook()))

    offset = publish(engine, "/page")
    engine.subscriber(target, strict, hooked).run(Until.CAUGHT_UP)
    assert statuses(engine) == {offset: PackageStatus.REMOVED_FAILED}
    failing[0] = False
    engine.send(COMMANDS, redrive(offset), redrive(17, "redrive-2"))
    engine.subscriber(target, strict, hooked).run(Until.CAUGHT_UP)
    assert paths_in(target) == {"/page"}
    assert {result.command_id: (result.state, result.removed, result.message) for result in engine.results()} == {
        "redrive-1": (CommandState.DONE, 1, "the package was imported"),
        "redrive-2": (CommandState.REFUSED, 0, "no error-queue entry and no failed hook call at offset 17"),
    }


def test_a_redrive_is_not_dropped_by_a_clear_that_is_still_open(engine: Engine, target: Target) -> None:
    strict = engine.with_settings(max_retries=0)
    engine.subscriber(target, strict).prepare()
    failed = poison(engine)
    catch_up(engine, target, strict)
    publish(engine, "/next")
    publish(engine, "/page", publisher=OTHER)
    engine.send(COMMANDS, clear(2), redrive(failed))
    catch_up(engine, target, strict)
    assert [item.offset for item in target.ledger.given_up()] == [failed]


def test_a_redrive_is_not_interrupted_by_a_clear_that_is_heard_meanwhile(engine: Engine, target: Target) -> None:
    """The hook holds up the package that is re-driven until the clear was heard."""
    failed, done = publish(engine, "/page"), publish(engine, "/next")
    is_asked_for, held_up = threading.Event(), threading.Event()
    attempts: list[int] = []

    class Hook:
        def process(self, package: ProcessedPackage) -> None:
            if package.offset == failed:
                if not is_asked_for.is_set():
                    raise ValueError("not now")
                attempts.append(package.offset)
                signal.woken.clear()
                held_up.set()
                wait_until(signal.woken.is_set)

    def hooked(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(before=Hook()))

    subscriber = engine.subscriber(target, engine.with_settings(max_retries=0), hooked)
    signal = subscriber._signal  # the listener's thread wakes it
    with Running(subscriber):
        wait_until(lambda: len(engine.statuses()) == 2)
        is_asked_for.set()
        engine.send(COMMANDS, redrive(failed))
        wait_until(held_up.is_set)
        engine.send(COMMANDS, clear(done))
        wait_until(lambda: has_results(engine, 2))
    assert attempts == [failed]
    assert paths_in(target) == {"/page", "/next"}
    assert {result.command_id: (result.state, result.removed) for result in engine.results()} == {
        "redrive-1": (CommandState.DONE, 1),
        "clear-1": (CommandState.DONE, 0),
    }


def test_a_redrive_that_a_stop_interrupts_is_not_answered_before_it_is_done(engine: Engine, target: Target) -> None:
    failed = publish(engine, "/page")
    stops: list[Callable[[], None]] = []

    class Hook:
        def process(self, package: ProcessedPackage) -> None:  # noqa: ARG002  # part of the port
            if not stops:
                raise ValueError("not now")
            stops[0]()

    def hooked(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(before=Hook()))

    strict = engine.with_settings(max_retries=0)
    engine.subscriber(target, strict, hooked).run(Until.CAUGHT_UP)
    engine.send(COMMANDS, redrive(failed))
    stopped = engine.subscriber(target, strict, hooked)
    stops.append(partial(stopped.stop, Deadline(engine.parts.clock, 0.0)))
    stopped.run()
    assert engine.results() == []
    assert [item.cause.code for item in target.ledger.given_up()] == ["ProcessorFailed"]
    catch_up(engine, target, strict)
    assert [result.state for result in engine.results()] == [CommandState.DONE]
    assert paths_in(target) == {"/page"}


def test_a_repeated_command_is_done_once_and_answered_alike(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    for number in range(3):
        publish(engine, f"/page-{number}")
    engine.send(COMMANDS, clear(1), clear(1), clear(99, "wrong"), clear(99, "wrong"))
    catch_up(engine, target)
    publish(engine, "/page-3")
    engine.send(COMMANDS, clear(1), clear(3))  # the second has the same id, so it is the same command
    catch_up(engine, target)
    assert paths_in(target) == {"/page-2", "/page-3"}
    assert len({result for result in engine.results() if result.command_id == "clear-1"}) == 1
    assert len({result for result in engine.results() if result.command_id == "wrong"}) == 1


def test_commands_that_are_for_others_or_make_no_sense_are_passed_over(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    publish(engine, "/page")
    engine.send(
        COMMANDS,
        replace(clear(0), sub_sling_id=STRANGER),
        replace(clear(0), sub_agent_name=AgentName("edge-2")),
        replace(redrive(0), sub_sling_id=STRANGER),
        replace(redrive(0), sub_agent_name=AgentName("another-edge")),
    )
    garbage = [NewRecord(b"edge \xff\xff", (("type", b"4"), ("version", b"1"))), NewRecord(b"", ())]
    engine.journal.append(COMMANDS, garbage)
    catch_up(engine, target)
    assert paths_in(target) == {"/page"}
    assert engine.results() == []


def test_commands_that_were_sent_before_a_target_was_made_are_not_meant_for_it(engine: Engine, target: Target) -> None:
    publish(engine, "/page")
    engine.send(COMMANDS, clear(0))
    catch_up(engine, target)
    assert paths_in(target) == {"/page"}
    assert engine.results() == []


def test_a_command_topic_that_was_made_again_is_read_from_its_start(engine: Engine, target: Target) -> None:
    gone = Position(LogIdentity("another", "topic"), Offset(900))
    target.ledger.commands.take([], [], gone)
    publish(engine, "/page")
    engine.send(COMMANDS, clear(0))
    catch_up(engine, target)
    assert paths_in(target) == set()
    position = target.ledger.commands.position()
    assert position is not None
    assert position.identity == engine.journal.identity(COMMANDS)


def test_a_clear_behind_more_commands_than_fit_into_memory_covers_the_first_package(
    engine: Engine, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.subscriber.commands.MOST_UNTAKEN", 2)
    monkeypatch.setattr("mailboat.subscriber.commands._READ", ReadLimits(max_records=2))
    prepared(engine, target)
    publish(engine, "/page")
    engine.send(COMMANDS, *(redrive(9, f"redrive-{number}") for number in range(7)), clear(0))
    catch_up(engine, target)
    assert paths_in(target) == set()
    assert [result.command_id for result in engine.results()] == [
        *(f"redrive-{number}" for number in range(7)),
        "clear-1",
    ]


def test_commands_that_retention_removed_are_passed_over(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    publish(engine, "/page-0")
    publish(engine, "/page-1")
    engine.send(COMMANDS, clear(1, "gone"), clear(0, "there"))
    engine.journal.truncate(COMMANDS, Offset(1))
    catch_up(engine, target)
    assert paths_in(target) == {"/page-1"}
    assert [result.command_id for result in engine.results()] == ["there"]


@pytest.mark.parametrize("verb", [CommandVerb.CLEAR, CommandVerb.REDRIVE])
def test_a_replay_after_a_lost_tail_refuses_the_commands_that_are_open(
    engine: Engine, target: Target, verb: CommandVerb
) -> None:
    prepared(engine, target)
    publish(engine, "/page-0")
    publish(engine, "/page-1")
    catch_up(engine, target)
    target.ledger.reset_position(Position(engine.journal.identity(PACKAGES), Offset(9)))
    opened = OpenCommand(0, verb, Offset(8), AUTHOR, "command-1")
    target.ledger.commands.take([opened], [], Position(engine.journal.identity(COMMANDS), Offset(0)))
    catch_up(engine, target, engine.with_settings(is_gap_accepted=True))
    (result,) = engine.results()
    assert result.state is CommandState.REFUSED
    assert "lost its end" in str(result.message)
    assert paths_in(target) == {"/page-0", "/page-1"}


def test_commands_that_a_restore_overtook_are_refused_once(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    publish(engine, "/page-0")
    publish(engine, "/page-1")
    opened = [
        OpenCommand(0, CommandVerb.CLEAR, Offset(9), AUTHOR, "clear-1"),
        OpenCommand(0, CommandVerb.CLEAR, Offset(9), None, None),
        OpenCommand(0, CommandVerb.REDRIVE, Offset(0), AUTHOR, "redrive-1"),
    ]
    target.ledger.commands.take(opened, [], Position(engine.journal.identity(COMMANDS), Offset(0)))
    with target.batch(restored=RestoreRecord("blob:old", 1, Offset(0), 0)) as batch:
        batch.commit(Position(engine.journal.identity(PACKAGES), Offset(0)))
    for _ in range(2):
        catch_up(engine, target)
        results = [
            (result.command_id, result.state, "restored before" in str(result.message)) for result in engine.results()
        ]
        assert results == [("clear-1", CommandState.REFUSED, True), ("redrive-1", CommandState.REFUSED, True)]
    assert paths_in(target) == {"/page-0", "/page-1"}


# ------------------------------------------------------------------------------------------------- while it is stuck


def test_a_clear_ends_the_pause_of_the_package_that_it_drops(engine: Engine, target: Target) -> None:
    failed = poison(engine)
    publish(engine, "/behind")
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)
        engine.send(COMMANDS, clear(failed))
        wait_until(lambda: len(engine.results()) == 1)
        wait_until(lambda: len(statuses(engine)) == 2)
    assert statuses(engine) == {failed: PackageStatus.REMOVED, failed + 1: PackageStatus.IMPORTED}
    assert paths_in(target) == {"/behind"}
    assert target.ledger.attempt() is None


def test_a_clear_ends_the_pause_that_an_earlier_run_began(engine: Engine, target: Target) -> None:
    failed = poison(engine)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)
        engine.send(COMMANDS, clear(failed))
        wait_until(lambda: len(engine.results()) == 1)
    assert statuses(engine) == {failed: PackageStatus.REMOVED}


def test_other_commands_are_answered_during_a_pause_and_do_not_use_up_attempts(engine: Engine, target: Target) -> None:
    poison(engine)
    with Running(engine.subscriber(target)) as subscriber:
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)
        for number in range(3):
            engine.send(COMMANDS, clear(99, f"wrong-{number}"))
            wait_until(partial(has_results, engine, number + 1))
        assert subscriber.statistics().attempts == 1
        assert subscriber.statistics().phase is SubscriberPhase.RETRYING
    assert {result.state for result in engine.results()} == {CommandState.REFUSED}


def test_a_clear_ends_the_import_that_is_under_way(engine: Engine, target: Target) -> None:
    """The hook holds up the first package until the clear was heard; then its records are not read to the end."""
    hooked, offset = threading.Event(), publish(engine, "/page")

    class Hook:
        def process(self, package: ProcessedPackage) -> None:  # noqa: ARG002  # part of the port
            hooked.set()
            wait_until(heard.is_set)

    heard = threading.Event()

    def change(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(before=Hook()))

    subscriber = engine.subscriber(target, None, change)
    with Running(subscriber):
        wait_until(hooked.is_set)
        engine.send(COMMANDS, clear(offset))
        # only the listener's thread knows that the clear has arrived
        wait_until(lambda: subscriber._signal.woken.is_set() and subscriber._commands.has_new_clear(offset, AUTHOR))
        heard.set()
        wait_until(lambda: len(engine.results()) == 1)
    assert statuses(engine) == {offset: PackageStatus.REMOVED}
    assert paths_in(target) == set()


def test_a_redrive_calls_the_hook_of_an_imported_package_again_at_run_time(engine: Engine, target: Target) -> None:
    """Its attempts were used up; no restart is needed, and the answer says what was done."""
    called: list[int] = []

    class FailsFirst:
        def process(self, package: ProcessedPackage) -> None:
            called.append(package.offset)
            if len(called) == 1:
                raise ValueError("the receiver is away")

    def with_hook(ports: SubscriberPorts) -> SubscriberPorts:
        return replace(ports, processors=Processors(after=FailsFirst()))

    settings = engine.with_settings(command_topic=COMMANDS, max_retries=0)
    publish(engine, "/page")
    with Running(engine.subscriber(target, settings, with_hook)):
        wait_until(lambda: target.ledger.hook_calls.counts() == (0, 1))
        engine.send(COMMANDS, redrive(0), redrive(0, "again-at-once"), redrive(1, "no-such-call"))
        wait_until(lambda: called == [0, 0])
        wait_until(lambda: has_results(engine, 3))
    assert target.ledger.hook_calls.counts() == (0, 0)
    answers = {result.command_id: (result.state, result.message) for result in engine.results()}
    assert answers["redrive-1"] == (CommandState.DONE, "the hook `after` is called again")
    assert answers["no-such-call"][0] is CommandState.REFUSED


def test_a_redrive_of_a_hook_call_is_refused_where_no_hook_is_configured(engine: Engine, target: Target) -> None:
    publish(engine, "/page")
    prepared(engine, target)
    catch_up(engine, target)
    target.ledger.hook_calls.store(AfterCall(Offset(0), 1, None, is_set_aside=True))
    engine.send(COMMANDS, redrive(0))
    catch_up(engine, target)
    assert [result.state for result in engine.results()] == [CommandState.REFUSED]
    assert target.ledger.hook_calls.counts() == (0, 1)


def test_a_stop_is_heard_during_a_pause(engine: Engine, target: Target) -> None:
    poison(engine)
    with Running(engine.subscriber(target)) as subscriber:  # which is stopped at the end; the pause takes an hour
        wait_until(lambda: subscriber.statistics().phase is SubscriberPhase.RETRYING)


def test_open_commands_are_bounded_and_what_is_beyond_is_refused(
    engine: Engine, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailboat.subscriber.commands.MOST_OPEN", 3)
    prepared(engine, target)
    offset = poison(engine)
    desk = CommandHandler(
        engine.subscribing,
        SubscriberPorts(engine.journal, engine.blobs, engine.parts.codecs, engine.parts.clock, target=target),
        lambda: None,
    )
    engine.send(COMMANDS, *(clear(offset, f"clear-{number}") for number in range(5)))
    desk.listen()
    assert desk.take(Position(engine.journal.identity(PACKAGES), Offset(offset)), lambda _: False)
    desk.close()
    assert [open_command.command_id for open_command in target.ledger.commands.open_commands()] == [
        "clear-0",
        "clear-1",
        "clear-2",
    ]
    answer = target.ledger.commands.answer_to("clear-4")
    assert answer is not None
    assert (answer.state, "open already" in answer.message) == (CommandState.REFUSED, True)


def test_a_clear_that_wants_no_answer_is_not_kept_beside_one_that_does_it_all(engine: Engine, target: Target) -> None:
    prepared(engine, target)
    offset = poison(engine)
    desk = CommandHandler(
        engine.subscribing,
        SubscriberPorts(engine.journal, engine.blobs, engine.parts.codecs, engine.parts.clock, target=target),
        lambda: None,
    )
    engine.send(COMMANDS, *(clear(offset, None) for _ in range(5)), clear(offset, None, OTHER))
    desk.listen()
    assert desk.take(Position(engine.journal.identity(PACKAGES), Offset(offset)), lambda _: False)
    desk.close()
    assert [open_command.pub_agent_name for open_command in target.ledger.commands.open_commands()] == [AUTHOR, OTHER]

"""What every target keeps of commands: taken once, answered once, beside the content."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.content.locations import open_target, opened_ledger
from mailboat.content.port import OpenBuild, OpenCommand, RestoreRecord, Target
from mailboat.errors import TargetCorruptError
from mailboat.model.identifiers import AgentName, BuildId, Offset, SlingId
from mailboat.model.messages import CommandResult, CommandState, CommandVerb, ReportStart, Suspension
from mailboat.testing.memory_content import MemoryTarget
from mailboat.testing.target_contract import a_status, an_entry, at, content_of, deep
from mailboat.testing.target_model import as_change
from mailboat.testing.trees import a_file, sample_tree
from support.target_scenario import target_in

AUTHOR = AgentName("author")
EDGE = AgentName("edge")
LASTING = ("sqlite", "files", "generations")


def opened(kind: str, folder: Path) -> Target:
    return MemoryTarget() if kind == "memory" else open_target(target_in(folder, kind))


@pytest.fixture(params=[*LASTING, "memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    with closing(opened(request.param, tmp_path)) as target:
        yield target


def a_clear(offset: int, command_id: str | None = "first") -> OpenCommand:
    return OpenCommand(0, CommandVerb.CLEAR, Offset(offset), AUTHOR, command_id)


def an_answer(command_id: str, removed: int = 0) -> CommandResult:
    return CommandResult(
        command_id, SlingId("s" * 36), EDGE, CommandVerb.CLEAR, Offset(7), CommandState.DONE, AUTHOR, removed
    )


@pytest.mark.parametrize("kind", LASTING)
def test_suspension_is_stored_with_the_position_of_the_commands(kind: str, tmp_path: Path) -> None:
    with closing(opened(kind, tmp_path)) as target:
        assert target.ledger.commands.suspension() is None
        target.ledger.commands.take([], [], at(3), Suspension(5, 9))
    with closing(opened(kind, tmp_path)) as target:
        assert target.ledger.commands.suspension() == Suspension(5, 9)
        target.ledger.commands.take([], [], at(4))
        assert target.ledger.commands.suspension() is None


@pytest.mark.parametrize("kind", LASTING)
def test_commands_are_taken_with_the_position_behind_them(kind: str, tmp_path: Path) -> None:
    with closing(opened(kind, tmp_path)) as target:
        assert target.ledger.commands.position() is None
        target.ledger.commands.take([a_clear(7), a_clear(9, "second")], [], at(3))
    with closing(opened(kind, tmp_path)) as target:
        assert target.ledger.commands.position() == at(3)
        found = target.ledger.commands.open_commands()
        assert [replace(item, sequence=0) for item in found] == [a_clear(7), a_clear(9, "second")]
        assert len({item.sequence for item in found}) == 2
        target.ledger.commands.take([], [], at(4))
        assert target.ledger.commands.position() == at(4)
        assert target.ledger.commands.open_commands() == found


def test_what_a_command_has_done_is_kept_with_the_content_and_its_answer_is_sent(target: Target) -> None:
    target.ledger.commands.take([a_clear(7)], [], at(3))
    (command,) = target.ledger.commands.open_commands()
    with target.batch() as batch:
        batch.note_command(replace(command, removed=2))
    assert target.ledger.commands.open_commands() == [command]
    with target.batch() as batch:
        batch.note_command(replace(command, removed=2))
        batch.commit(at(5))
    (command,) = target.ledger.commands.open_commands()
    assert command.removed == 2
    assert target.ledger.commands.answer_to("first") is None
    with target.batch() as batch:
        batch.add_status(a_status(6))
        batch.note_command(replace(command, removed=3), an_answer("first", 3))
        batch.commit(at(8))
    assert not target.ledger.commands.open_commands()
    assert target.ledger.commands.answer_to("first") == an_answer("first", 3)
    sent = {pending_status.message for pending_status in target.ledger.pending_statuses(10)}
    assert sent == {a_status(6), an_answer("first", 3)}


def test_an_answer_can_be_given_at_once_and_again(target: Target) -> None:
    target.ledger.commands.take([], [an_answer("first")], at(3))
    target.ledger.commands.take([], [an_answer("first")], at(4))
    assert target.ledger.commands.answer_to("first") == an_answer("first")
    assert [pending_status.message for pending_status in target.ledger.pending_statuses(10)] == [an_answer("first")] * 2
    assert not target.ledger.commands.open_commands()


def test_a_command_without_a_name_is_forgotten_when_it_is_over(target: Target) -> None:
    target.ledger.commands.take([a_clear(7, None), a_clear(8, None)], [], at(3))
    first, second = target.ledger.commands.open_commands()
    target.ledger.commands.settle(first, an_answer(""))
    with target.batch() as batch:
        batch.note_command(second, an_answer(""))
        batch.commit(at(9))
    assert not target.ledger.commands.open_commands()
    assert not target.ledger.pending_statuses(10)


def test_a_command_can_be_over_without_a_batch(target: Target) -> None:
    target.ledger.commands.take([a_clear(7)], [], at(3))
    target.ledger.commands.settle(target.ledger.commands.open_commands()[0], an_answer("first"))
    assert not target.ledger.commands.open_commands()
    assert target.ledger.commands.answer_to("first") == an_answer("first")


def test_a_redrive_marks_the_entry_that_it_names(target: Target) -> None:
    with target.batch() as batch:
        batch.give_up(an_entry(2))
        batch.commit(at(5))
    redrive = OpenCommand(0, CommandVerb.REDRIVE, Offset(2), None, "again")
    target.ledger.commands.take([redrive], [], at(1))
    assert target.ledger.redrives() == [an_entry(2)]
    assert [replace(open_command, sequence=0) for open_command in target.ledger.commands.open_commands()] == [redrive]


@pytest.mark.parametrize("kind", LASTING)
def test_answers_are_remembered_within_bounds(kind: str, tmp_path: Path) -> None:
    answers = [an_answer(f"command-{number}") for number in range(1100)]
    with closing(opened(kind, tmp_path)) as target:
        target.ledger.commands.take([a_clear(7, "open")], answers, at(3))
        assert target.ledger.commands.answer_to("command-0") is None
        assert target.ledger.commands.answer_to("command-1099") == answers[-1]
        assert len(target.ledger.commands.open_commands()) == 1


def test_a_target_of_the_version_before_gets_room_for_commands(tmp_path: Path) -> None:
    place = target_in(tmp_path, "sqlite")
    with closing(open_target(place)) as target, target.batch() as batch:
        batch.add_status(a_status(1))
        batch.commit(at(2))
    with closing(sqlite3.connect(tmp_path / "target.db", isolation_level=None)) as connection:
        for statement in (
            "DROP TABLE command",
            "DROP TABLE restored",
            "DROP TABLE command_position",
            "DROP TABLE open_build",
            "DROP TABLE pending_job",
            "DROP TABLE pool_done",
            "ALTER TABLE state DROP COLUMN reports",
            "ALTER TABLE state DROP COLUMN pool",
            "ALTER TABLE pending_status DROP COLUMN kind",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)
    with closing(open_target(place)) as target:
        assert [pending_status.message for pending_status in target.ledger.pending_statuses(10)] == [a_status(1)]
        target.ledger.commands.take([a_clear(7)], [an_answer("second")], at(3))
        assert [pending_status.message for pending_status in target.ledger.pending_statuses(10)] == [
            a_status(1),
            an_answer("second"),
        ]
    with opened_ledger(place) as ledger:
        assert len(ledger.commands.open_commands()) == 1


def test_a_command_that_can_not_be_understood_is_told(tmp_path: Path) -> None:
    with closing(open_target(target_in(tmp_path, "sqlite"))) as target:
        target.ledger.commands.take([a_clear(7)], [], at(3))
        with closing(sqlite3.connect(tmp_path / "target.db", isolation_level=None)) as connection:
            connection.execute("UPDATE command SET verb = 'paint'")
        with pytest.raises(TargetCorruptError, match="'paint'"):
            target.ledger.commands.open_commands()


def test_commands_that_could_not_be_taken_leave_nothing(tmp_path: Path) -> None:
    with closing(open_target(target_in(tmp_path, "sqlite"))) as target:
        with closing(sqlite3.connect(tmp_path / "target.db", isolation_level=None)) as connection:
            connection.execute("DROP TABLE command_position")
        with pytest.raises(TargetCorruptError):
            target.ledger.commands.take([a_clear(7)], [an_answer("second")], at(3))
        assert not target.ledger.commands.open_commands()
        assert not target.ledger.pending_statuses(10)


def test_a_target_of_version_10_gets_room_for_restores(tmp_path: Path) -> None:
    place = target_in(tmp_path, "sqlite")
    with closing(open_target(place)) as target:
        target.ledger.commands.take([a_clear(7)], [], at(3))
    with closing(sqlite3.connect(tmp_path / "target.db", isolation_level=None)) as connection:
        for statement in (
            "DROP TABLE restored",
            "ALTER TABLE command DROP COLUMN is_void",
            "PRAGMA user_version = 10",
        ):
            connection.execute(statement)
    with closing(open_target(place)) as target:
        assert [open_command.is_void for open_command in target.ledger.commands.open_commands()] == [False]
        assert target.ledger.restored is None


def test_a_batch_that_replaces_all_content_forgets_packages_and_keeps_the_rest(target: Target) -> None:
    target.ledger.claim(AgentName("edge"))
    target.ledger.reset_position(at(0), report_starts={None: ReportStart(Offset(0), is_first=True)})
    suspension, told, record = Suspension(5), a_status(4), RestoreRecord("blob:old", 6, Offset(4), 1)
    target.ledger.commands.take([a_clear(9), a_clear(9, None)], [], at(1), suspension)
    with target.batch() as batch:
        batch.apply(as_change(sample_tree(), deep("/")), Offset(7))
        for offset in (2, 5):
            batch.give_up(an_entry(offset))
        batch.pass_over(["other"])
        batch.expect_after([Offset(3), Offset(7)])
        batch.note_builds([OpenBuild(AgentName("author"), BuildId("build-1"), 1, 2, 0)])
        batch.add_status(told)
        batch.commit(at(8))
    with target.batch(restored=record) as batch:
        batch.apply(as_change([a_file("/kept", b"old")], deep("/")), Offset(4))
        batch.give_up(an_entry(1))
        batch.commit(at(4))
    ledger = target.ledger
    assert (ledger.position(), ledger.subscriber()) == (at(4), "edge")
    assert content_of(target) == [a_file("/kept", b"old")]
    assert (ledger.given_up(), ledger.passed_over, ledger.report_starts) == ([an_entry(1)], frozenset(), {})
    assert (*ledger.open_builds, *ledger.redrives()) == ()
    (void,) = ledger.commands.open_commands()
    assert (void.command_id, void.is_void, ledger.restored) == ("first", True, record)
    assert [call.offset for call in ledger.hook_calls.calls(9)] == [3]
    assert (ledger.commands.suspension(), ledger.commands.position()) == (suspension, at(1))
    assert [pending.message for pending in ledger.pending_statuses(9)] == [told]
    ledger.commands.settle(void, an_answer("first"))
    assert not ledger.commands.open_commands()
    assert [pending.message for pending in ledger.pending_statuses(9)] == [told, an_answer("first")]

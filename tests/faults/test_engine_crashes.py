"""SIGKILL at every named failpoint of publisher, subscriber and targets: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from mailboat.content.sources.folder import FolderSource
from mailboat.failpoints import Failpoint
from mailboat.jobs.topic import open_job_topic
from mailboat.model.messages import CommandState, PackageMessage, PackageStatus, SuspendMessage
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.subscriber import Until
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.package_messages import decode_package
from support import crash_scenario
from support.engines import COMMANDS, EDGE, SLING_ID, TARGET_KINDS, Engine, digest_of, page_source
from support.forks import preload, run_child

PUBLISHER = [failpoint for failpoint in Failpoint if failpoint.startswith("publisher-")]
SUBSCRIBER = [failpoint for failpoint in Failpoint if failpoint.startswith("subscriber-")]
IN_PLACE = [Failpoint.TARGET_REDO_STORED, Failpoint.TARGET_FILE_REPLACED, Failpoint.TARGET_REDO_DONE]
BUILDS = [Failpoint.TARGET_HELD_BACK]  # see test_exposure_crashes.py
GENERATIONS = [Failpoint.TARGET_GENERATION_BUILT, Failpoint.TARGET_GENERATION_FLIPPED]

SUBSCRIBER_CASES = [
    *((failpoint, kind) for failpoint in SUBSCRIBER for kind in TARGET_KINDS),
    *((failpoint, "files") for failpoint in IN_PLACE),
    *((failpoint, "generations") for failpoint in GENERATIONS),
]
preload("support.crash_scenario", "support.target_scenario")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home into which everything was published without any crash; copied by the tests."""
    folder = tmp_path_factory.mktemp("published")
    crash_scenario.prepare(folder)
    crash_scenario.publish(str(folder))
    return folder


@pytest.fixture(scope="module")
def digests(published: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The content's digest at every position, from a reference that imports one package at a time."""
    folder = copy_of(published, tmp_path_factory.mktemp("reference"))
    found = {}
    with Engine(folder / "home") as engine:
        target = engine.target("sqlite", "reference")
        importer = engine.importer(target)
        found[0] = digest_of(target.source())
        for record in engine.records():
            with target.batch() as batch:
                is_left_out = record.offset == crash_scenario.CLEARED
                if b"00" * 32 not in record.value and not is_left_out:  # the poison's reference
                    assert importer.import_records(batch, [record]).error is None
                batch.commit(engine.position(record.offset + 1))
            found[record.offset + 1] = digest_of(target.source())
        target.close()
    return found


def copy_of(published: Path, into: Path) -> Path:
    return Path(shutil.copytree(published, into / "copy"))


def messages(engine: Engine) -> dict[int, PackageMessage]:
    """The packages in the log by offset, without the pieces that some of them are in."""
    return {
        record.offset: decode_package(record.value) for record in engine.records() if record.headers == PACKAGE_HEADERS
    }


def purged_offsets(engine: Engine) -> list[int]:
    """The packages for which the fold of the job topic has a job."""
    with closing(open_job_topic(engine.journal)) as topic:
        while not topic.follow():
            pass
        jobs = [topic.job(job) for job in topic.fold.table.all()]
        return [json.loads(job.payload)["offset"] for job in jobs if job is not None]


def test_every_failpoint_has_a_crash_test() -> None:
    others = {
        failpoint
        for failpoint in Failpoint
        if failpoint.startswith(("events-", "delivery-", "bulk-", "jobs-", "pool-"))
    }  # see their own tests
    covered = {*PUBLISHER, *BUILDS, *others, *(failpoint for failpoint, _ in SUBSCRIBER_CASES)}
    assert covered == set(Failpoint)


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("failpoint", PUBLISHER)
def test_a_publisher_killed_at_any_step_publishes_each_request_once(
    tmp_path: Path, failpoint: Failpoint, count: int
) -> None:
    crash_scenario.prepare(tmp_path)
    assert run_child(crash_scenario.publish, str(tmp_path), failpoint, count) == -signal.SIGKILL
    assert run_child(crash_scenario.publish, str(tmp_path)) == 0
    assert run_child(crash_scenario.publish, str(tmp_path)) == 0
    with Engine(tmp_path / "home") as engine:
        published = Counter(message.request_id for message in messages(engine).values())
        assert set(published.values()) == {1}
        assert {"first", "heavy", "ping", "news", "delete", "all", "poison", "in-pieces"} <= set(published)
        target = engine.target("sqlite")
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert digest_of(target.source()) == digest_of(FolderSource(tmp_path / "site"))
        target.close()


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("failpoint", "kind"), SUBSCRIBER_CASES)
def test_j21_a_subscriber_killed_at_any_step_imports_and_adds_jobs_once(
    published: Path, digests: dict[int, str], tmp_path: Path, failpoint: Failpoint, kind: str, count: int
) -> None:
    folder = copy_of(published, tmp_path)
    assert run_child(crash_scenario.subscribe, str(folder), kind, failpoint, count) == -signal.SIGKILL
    with Engine(folder / "home") as engine:
        target = engine.target(kind)
        position = target.ledger.position()
        assert digest_of(target.source()) == digests[0 if position is None else position.next_offset]
        target.close()
    assert run_child(crash_scenario.subscribe, str(folder), kind) == 0
    with Engine(folder / "home") as engine:
        target = engine.target(kind)
        packages = messages(engine)
        poison = next(offset for offset, one in packages.items() if one.request_id == crash_scenario.POISON)
        confirmed = {offset for offset, one in packages.items() if one.request_id != "ping"}
        assert Counter(status.offset for status in engine.statuses()) == dict.fromkeys(confirmed, 1)
        failed = [status.offset for status in engine.statuses() if status.status is PackageStatus.REMOVED_FAILED]
        assert failed == [poison] == [item.offset for item in target.ledger.given_up()]
        removed = [status.offset for status in engine.statuses() if status.status is PackageStatus.REMOVED]
        assert removed == [crash_scenario.CLEARED]
        answers = {result.command_id: (result.state, result.removed) for result in engine.results()}
        assert answers == {"clear": (CommandState.DONE, 1), "redrive": (CommandState.REFUSED, 0)}
        assert len(engine.results()) == len(answers), "a command was answered twice"
        assert not target.ledger.commands.open_commands()
        assert target.ledger.pending_statuses(10) == []
        assert Counter(purged_offsets(engine)) == dict.fromkeys(confirmed - {poison, crash_scenario.CLEARED}, 1)
        assert target.ledger.jobs.pending(10) == []
        position = target.ledger.position()
        assert position is not None
        assert position.next_offset == len(engine.records())
        assert digest_of(target.source()) == digest_of(FolderSource(folder / "site"))
        target.close()


TAKING = [Failpoint.SUBSCRIBER_COMMANDS_TAKEN, Failpoint.SUBSCRIBER_STATUS_SENT, Failpoint.SUBSCRIBER_STATUS_MARKED]


def imported_to(folder: Path) -> int:
    with Engine(folder) as engine:
        target = engine.target("sqlite")
        position = target.ledger.position()
        target.close()
        return 0 if position is None else position.next_offset


@pytest.mark.parametrize("failpoint", TAKING)
def test_a_suspension_holds_through_a_kill_at_any_step(tmp_path: Path, failpoint: Failpoint) -> None:
    with Engine(tmp_path) as engine:
        target = engine.target("sqlite")
        engine.subscriber(target, engine.with_settings(command_topic=COMMANDS)).prepare()
        target.close()
        engine.send(COMMANDS, SuspendMessage(SLING_ID, EDGE, True, None, "suspend-1"))
        engine.publisher().publish(add_request([NodePath("/page")]), page_source("/page"))
    for command, expected in (("suspend-1", 0), ("resume-1", 1)):
        if command == "resume-1":
            with Engine(tmp_path) as engine:
                engine.send(COMMANDS, SuspendMessage(SLING_ID, EDGE, False, None, command))
        assert run_child(crash_scenario.import_unless_suspended, str(tmp_path), failpoint) == -signal.SIGKILL
        assert imported_to(tmp_path) == 0
        assert run_child(crash_scenario.import_unless_suspended, str(tmp_path)) == 0
        assert imported_to(tmp_path) == expected
        with Engine(tmp_path) as engine:
            answers = {(each.command_id, each.state) for each in engine.results()}
        assert (command, CommandState.DONE) in answers

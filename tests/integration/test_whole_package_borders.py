"""Heads are put at borders of whole packages: by age, by size, by hand, and by agents where brokers would cut."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.errors import JournalUnavailableError
from mailboat.journal.port import NewRecord, records_of
from mailboat.maintenance import schedule
from mailboat.maintenance.retention import is_head_moved, retention_keeper, retention_worker
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import PackageMessage, TopicRole
from mailboat.model.pieces import PieceMessage, PieceRun, parse_run
from mailboat.retention.head_plan import Reason
from mailboat.retention.marks import whole_package_border
from mailboat.retention.task import RetentionFigures
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import wait_until
from mailboat.wire.headers import PACKAGE_HEADERS, PIECE_HEADERS
from mailboat.wire.messages import decode_message
from mailboat.wire.package_messages import encode_package
from mailboat.wire.piece_messages import encode_piece
from support.kafka_broker import KafkaBroker

DAY = 86_400.0


def configure(boat: Any, **sections: Any) -> None:
    file = boat.home / "mailboat.yaml"
    document = yaml.safe_load(file.read_text()) or {}
    for name, keys in sections.items():
        document[name] = (document.get(name) or {}) | keys
    file.write_text(yaml.safe_dump(document))


def fill(boat: Any, tmp_path: Path) -> tuple[int, int, int]:
    """A small package, one in pieces, a small one; where each begins."""
    configure(boat, publisher={"transfer": "chunks", "piece_bytes": 65_536, "inline_package_bytes": 65_536})
    site = tmp_path / "site"
    site.mkdir()
    (site / "a.txt").write_text("a")
    (site / "large.bin").write_bytes(random.Random(4).randbytes(500_000))
    offsets = [boat.json("publish", site, f"/{name}")["packages"][0]["offset"] for name in ("a.txt", "large.bin")]
    last = boat.json("publish", site, "/a.txt")["packages"][0]["offset"]
    assert offsets[0] == 0
    assert last == offsets[1] + 1 >= 8
    return 0, 1, last


@pytest.fixture
def chunked(boat: Any, tmp_path: Path) -> tuple[Any, int]:
    """A home on the embedded journal, and where its last package stands."""
    return boat, fill(boat, tmp_path)[2]


@pytest.fixture
def on_kafka(new_boat: Any, kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[tuple[Workspace, int]]:
    """A workspace on a real broker, whose clock a test moves, and where its last package stands."""
    new_boat.do("init", "--kafka", kafka_broker.bootstrap_servers)
    configure(new_boat, journal={"topic_prefix": f"b-{uuid.uuid4().hex[:8]}-"})
    configure(new_boat, publisher={"transfer": "chunks"}, retention={"package_seconds": DAY})
    new_boat.do("journal", "ensure")
    last = fill(new_boat, tmp_path)[2]
    with Workspace(Home(new_boat.home), ManualClock(SystemClock().now())) as workspace:
        yield workspace, last


def is_imported_whole(boat: Any, tmp_path: Path) -> bool:
    into = tmp_path / uuid.uuid4().hex
    name = f"s-{into.name[:8]}"
    boat.do("subscribe", name, "--into", f"files:{into}", "--until", "caught-up", "--accept-gap")
    return (into / "large.bin").is_file()


@pytest.mark.parametrize("before", [2, 5, "its message"])
def test_a_head_that_is_put_by_hand_cuts_through_no_package(
    chunked: tuple[Any, int], tmp_path: Path, before: int | str
) -> None:
    boat, last = chunked
    offset = last - 1 if isinstance(before, str) else before
    ran = boat.do("journal", "truncate", "--before", offset, "--yes", "-o", "json")
    assert (ran.document["earliest_offset"], ran.document["removed"]) == (1, 1)
    assert f"{offset} is in the midst of a package in pieces, which begins at 1" in ran.err
    assert is_imported_whole(boat, tmp_path)


@pytest.mark.parametrize("before", ["the package", "the end of it"])
def test_a_head_that_is_put_at_a_border_stays_there(chunked: tuple[Any, int], before: str) -> None:
    boat, last = chunked
    offset = 1 if before == "the package" else last
    ran = boat.do("journal", "truncate", "--before", offset, "--yes", "-o", "json")
    assert (ran.document["earliest_offset"], ran.err) == (offset, "")


def test_size_takes_no_part_of_a_package(chunked: tuple[Any, int], tmp_path: Path) -> None:
    boat, last = chunked
    configure(boat, retention={"package_bytes": 200_000})
    assert boat.json("journal", "truncate", "--expired")["removed"] == 1
    assert is_imported_whole(boat, tmp_path)
    configure(boat, retention={"package_bytes": 100})
    assert boat.json("journal", "truncate", "--expired")["removed"] == last - 1


def test_age_takes_no_part_of_a_package(chunked: tuple[Any, int]) -> None:
    """The pieces are too old; their message, which came half an hour later, is not."""
    boat, last = chunked
    with Workspace(Home(boat.home)) as workspace:
        records = list(records_of(workspace.journal, workspace.package_topic))
        workspace.journal.truncate(workspace.package_topic, Offset(last + 1))
        values = [NewRecord(record.value, record.headers) for record in records]
        moved = moved_run(records[-2].value, last + 1)
    clock = ManualClock(SystemClock().now())
    with Workspace(Home(boat.home), clock) as workspace:
        workspace.journal.append(workspace.package_topic, values[:-2])
        clock.advance(1800)
        workspace.journal.append(workspace.package_topic, [NewRecord(moved, values[-2].headers), values[-1]])
        clock.advance(7 * DAY - 600)
        assert schedule.remove_expired(workspace) == 1  # the small one before it
        clock.advance(7 * DAY)
        assert schedule.remove_expired(workspace) == last


def moved_run(value: bytes, by: int) -> bytes:
    """The message of a package in pieces, for the same pieces so many offsets on."""
    message = decode_message(PACKAGE_HEADERS, value)
    assert isinstance(message, PackageMessage)
    run = parse_run(message.payload_ref or "", Offset(1000))
    moved = PieceRun(Offset(run.first_offset + by), Offset(run.last_offset + by), run.count, run.length_bytes)
    return encode_package(message._replace(payload_ref=str(moved)))


def test_pieces_that_are_being_appended_stay_and_those_of_the_dead_go(boat: Any) -> None:
    clock = ManualClock(SystemClock().now())
    with Workspace(Home(boat.home), clock) as workspace:
        topic, journal = workspace.package_topic, workspace.journal
        pieces = [PieceMessage(SlingId("a" * 36), AgentName("a"), PackageId("p"), at, b"x") for at in range(3)]
        journal.append(topic, [NewRecord(encode_piece(piece), PIECE_HEADERS) for piece in pieces])
        assert whole_package_border(journal, topic, Offset(2), clock) == 0
        clock.advance(3601)
        assert whole_package_border(journal, topic, Offset(2), clock) == 2


def test_a_process_overtaken_by_another_removal_moves_nothing(boat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Workspace(Home(boat.home)) as workspace:
        topic, journal = workspace.package_topic, workspace.journal
        journal.append(topic, [NewRecord(b"x")] * 4)
        bounds = journal.bounds(topic)
        journal.truncate(topic, Offset(2))
        monkeypatch.setattr(type(journal), "bounds", lambda *_: bounds)
        assert whole_package_border(journal, topic, Offset(3), workspace.clock) == 0


# ------------------------------------------------------------------------------------------------------------- brokers


def test_on_kafka_an_agent_moves_the_head_before_the_brokers_would_cut(on_kafka: tuple[Workspace, int]) -> None:
    workspace, last = on_kafka
    assert is_head_moved(workspace)
    with closing(records_of(workspace.journal, workspace.package_topic)) as found:
        times = [record.appended_ms for record in found]
    clock = workspace.clock
    assert isinstance(clock, ManualClock)
    with closing(retention_keeper(workspace, is_by_consumption=False)) as keeper:
        assert keeper.turn().plan.reason is Reason.NOBODY
        clock.advance(times[last - 2] / 1000 + DAY + 0.0005 - clock.now().timestamp())
        assert keeper.turn().plan.head in {0, 1}
        clock.advance(60)
        turn = keeper.turn()
        assert (turn.plan.head, turn.plan.reason) == (last + 1, Reason.EXPIRED)
        assert keeper.figures.removed == last + 1
        assert keeper.figures.freed_bytes > 500_000


def test_on_kafka_the_brokers_keep_an_hour_more_where_packages_travel_in_pieces(
    on_kafka: tuple[Workspace, int],
) -> None:
    workspace, _ = on_kafka
    assert workspace.topic_settings(TopicRole.PACKAGE).retention_seconds == DAY + 3600
    assert workspace.topic_settings(TopicRole.STATUS).retention_seconds == 7 * DAY
    settings = workspace.topic_settings(TopicRole.PACKAGE)
    assert workspace.journal.upkeep.differences(workspace.package_topic, settings) == []


def test_an_agent_on_kafka_does_it_by_itself_and_counts_what_fails(
    on_kafka: tuple[Workspace, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, last = on_kafka
    assert isinstance(workspace.clock, ManualClock)
    workspace.clock.advance(DAY + 3600)
    figures = RetentionFigures()
    worker = retention_worker(workspace, figures)
    worker.start()
    wait_until(lambda: figures.turns == 1, "a turn")
    assert workspace.journal.bounds(workspace.package_topic).earliest_offset == last + 1

    def fail(*_: object) -> None:
        raise JournalUnavailableError("away")

    monkeypatch.setattr(type(workspace.journal), "identity", fail)
    assert workspace.clock.await_waiters(2)  # the worker, and the listener to the brokers
    workspace.clock.advance(61)
    wait_until(lambda: worker.failures == 1, "the failure to be counted")
    assert worker.stop(10)

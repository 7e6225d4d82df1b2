"""What our Spark formats and stages decide without a session: options, conditions, groups of work, columns."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.bulk.spark import spark_session
from mailboat.bulk.spark.arrow_columns import BATCH_BYTES, BATCH_ROWS, batch_of, batches, chosen, default_ddl
from mailboat.bulk.spark.format_options import BatchFormat, check_options, number_of, positive_of, texts_of
from mailboat.bulk.spark.history import (
    PACKAGE_COLUMNS,
    STATUS_COLUMNS,
    PackageHistory,
    Row,
    StatusHistory,
    TopicReader,
    time_of,
)
from mailboat.bulk.spark.log_partitions import place_of, stretches
from mailboat.bulk.spark.node_table import MAX_DATA_BYTES, NODE_COLUMNS, MailboatFormat
from mailboat.bulk.spark.queue_table import QueueTable
from mailboat.bulk.spark.spark_errors import SparkMissingError, SparkUnavailableError
from mailboat.bulk.spark.spark_session import (
    SessionSettings,
    check_version,
    checked_master,
    open_session,
    reason_of,
)
from mailboat.bulk.spark.stages import StageFigures, even_groups, runs_of
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import LimitExceededError, UsageError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, Record
from mailboat.model.identifiers import BuildId, Offset, PackageId, SlingId, TopicName
from mailboat.model.messages import Action, BulkPart, PackageMessage, TopicRole
from mailboat.model.nodes import Binary, file_node
from mailboat.model.paths import NodePath
from mailboat.testing.clocks import ManualClock
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.types import StructType


def test_options_are_read_with_their_names_in_the_messages() -> None:
    assert (number_of({}, "from", 3), number_of({"from": "4"}, "from", 3)) == (3, 4)
    assert (texts_of({}, "roots"), texts_of({"roots": '["/a"]'}, "roots")) == (None, ["/a"])
    for read in (
        lambda: number_of({"from": "-1"}, "from", 0),
        lambda: positive_of({"from": "0"}, "from", 1),
        lambda: texts_of({"from": "[1]"}, "from"),
        lambda: texts_of({"from": "["}, "from"),
    ):
        with pytest.raises(UsageError, match="from"):
            read()


def test_unknown_options_are_refused_with_the_nearest_known_one() -> None:
    check_options({"path": "x", "ROOTS": "[]"}, frozenset({"roots", "tasks"}))
    with pytest.raises(UsageError, match=r"unknown option 'root'; did you mean 'roots'\? \(options: roots, tasks\)"):
        check_options({"root": "[]"}, frozenset({"roots", "tasks"}))


@pytest.mark.parametrize("kind", [MailboatFormat, PackageHistory, StatusHistory, QueueTable])
def test_streams_are_refused_in_one_sentence(kind: type[BatchFormat]) -> None:
    made = kind({"path": "boat"})
    with pytest.raises(UsageError, match=f"^Usage: {kind.name()} cannot be read as a stream"):
        made.streamReader(StructType())
    with pytest.raises(UsageError, match="cannot be written as a stream"):
        made.streamWriter(StructType(), overwrite=False)


def test_the_place_of_a_log_is_its_home_and_what_is_read_of_it() -> None:
    place = place_of({"path": "boat", "config": "c.yaml", "offsetsPerTask": "5", "from": "2", "before": "9"})
    assert (place.home, place.config, place.stretch_offsets, place.offsets) == ("boat", "c.yaml", 5, range(2, 9))
    with pytest.raises(UsageError, match="name the home"):
        place_of({})


def test_stretches_cover_what_a_topic_holds_and_is_asked_for() -> None:
    topic, journal = TopicName("package"), MemoryJournal(ManualClock())
    journal.ensure_topic(topic, TopicSettings())
    journal.append(topic, [NewRecord(b"x")] * 10)
    journal.truncate(topic, Offset(3))
    found = stretches(journal, topic, range(9), 4)
    assert [(item.low, item.high) for item in found] == [(3, 7), (7, 9)]
    assert [(stretch.low, stretch.high) for stretch in stretches(journal, topic, range(20, 30), 4)] == [(20, 20)]


@given(st.lists(st.integers(0, 1_000_000), min_size=1, max_size=60), st.integers(1, 12))
def test_groups_of_work_are_even_and_hold_each_item_once(weights: list[int], wanted: int) -> None:
    groups = even_groups(weights, wanted)
    assert sorted(index for group in groups for index in group) == list(range(len(weights)))
    totals = [sum(weights[index] for index in group) for group in groups]
    assert totals == sorted(totals, reverse=True)
    assert len(groups) <= wanted
    assert max(totals) <= sum(weights) / min(wanted, len(weights)) + max(weights)


@given(st.integers(0, 40), st.integers(1, 12))
def test_runs_are_neighbours_and_never_none(count: int, wanted: int) -> None:
    runs = runs_of(list(range(count)), wanted)
    assert [item for run in runs for item in run] == list(range(count))
    assert 1 <= len(runs) <= wanted
    assert max(map(len, runs)) - min(map(len, runs)) <= 1


def test_skew_is_how_much_the_slowest_task_differs_from_most() -> None:
    assert StageFigures("build", 10.0, 4, 6.0, 2.0).skew == 3.0
    assert StageFigures("build", 0.0, 0, 0.0, 0.0).skew == 1.0


def test_batches_end_by_rows_and_by_bytes() -> None:
    columns = chosen(NODE_COLUMNS, [])
    assert [batch.num_rows for batch in batches(columns, iter(()), lambda _: 0)] == []
    lengths = [len(held) for held in _held(BATCH_ROWS + 1, 0)]
    assert lengths == [BATCH_ROWS, 1]
    assert [len(held) for held in _held(3, BATCH_BYTES)] == [1, 1, 1]


def _held(count: int, size: int) -> list[list[Any]]:
    found = batches({"offset": PACKAGE_COLUMNS["offset"]}, (_row(number) for number in range(count)), lambda _: size)
    return [batch.column(0).to_pylist() for batch in found]


def _row(offset: int) -> Row:
    return Row(Record(Offset(offset), b""), None, "unreadable")


def test_a_record_that_cannot_be_decoded_is_a_row_with_its_error() -> None:
    for columns in (PACKAGE_COLUMNS, STATUS_COLUMNS):
        said = {name: column.value(_row(3)) for name, column in columns.items()}
        assert (said.pop("offset"), said.pop("error"), said.pop("appended_at")) == (3, "unreadable", time_of(0))
        assert set(said.values()) == {None}
        assert "offset BIGINT" in default_ddl(columns)


def test_the_place_of_a_package_in_a_build_may_be_any_number_of_a_message() -> None:
    part = BulkPart(BuildId("b"), 2**63 - 2, 2**63 - 1)
    message = PackageMessage(SlingId("s" * 36), PackageId("p"), Action.ADD, "tree", bulk=part)
    columns = chosen(PACKAGE_COLUMNS, ["sequence", "total"])
    (found,) = batch_of(columns, [Row(Record(Offset(0), b""), message, None)]).to_pylist()
    assert found == {"sequence": part.sequence, "total": part.total}


def test_readers_travel_to_executors() -> None:
    reader = TopicReader(place_of({"path": "boat"}), TopicRole.STATUS, ["offset"])
    assert isinstance(pickle.loads(pickle.dumps(reader)), TopicReader)
    assert MailboatFormat.name() == "mailboat"


def test_settings_of_the_caller_come_before_all_and_ours_after_all() -> None:
    own = SessionSettings("local[2]", properties={"spark.ui.enabled": "true", "spark.driver.memory": "3g"})
    assert {"spark.ui.enabled": "true", "spark.driver.memory": "3g", "spark.master": "local[2]"}.items() <= (
        own.fixed().items()
    )
    assert (own.defaults()["spark.driver.host"], own.defaults()["spark.ui.enabled"]) == ("127.0.0.1", "false")
    assert "spark.driver.host" not in SessionSettings("spark://there:7077").defaults()
    submitted = SessionSettings(None)
    assert submitted.fixed() == {}
    assert "spark.driver.host" not in submitted.defaults()
    assert "log4j2" in SessionSettings().fixed()["spark.driver.defaultJavaOptions"]
    assert "spark.driver.defaultJavaOptions" not in SessionSettings(is_quiet=False).fixed()


@pytest.mark.parametrize("version", ["3.5.1", "4.0.1", "4.0.0.dev1"])
def test_a_pyspark_that_is_too_old_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(SparkMissingError, match=f"PySpark {version} is too old: 4.1 or newer is needed"):
        check_version(version)


@pytest.mark.parametrize("version", ["4.1.0", "4.3.0", "5.0"])
def test_newer_pysparks_are_taken(version: str) -> None:
    check_version(version)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4]", "local[2, 3]", "spark://h:7077", "k8s://h", "yarn"]
)
def test_masters_are_those_of_spark(master: str) -> None:
    assert checked_master(master) == master


@pytest.mark.parametrize("master", ["", "foo", "local[", "spark://", "spark://host", "http://host:7077"])
def test_what_is_no_master_is_refused_before_java_starts(master: str) -> None:
    with pytest.raises(UsageError, match="is not a Spark master"):
        checked_master(master)


AWAY = """An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:
	at org.apache.spark.SparkContext.assertNotStopped(SparkContext.scala:128)
"""


class FailingBuilder:
    """A builder of sessions that can't."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def appName(self, _name: str) -> FailingBuilder:  # noqa: N802  # PySpark's name
        return self

    master = appName

    def config(self, **_settings: Any) -> FailingBuilder:
        return self

    def getOrCreate(self) -> None:  # noqa: N802  # PySpark's name
        raise self._error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (Py4JError(AWAY), SparkUnavailableError, "at spark://h:1: IllegalStateException: Cannot call methods on a"),
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            SparkMissingError,
            "Java machine did not start",
        ),
        (ZeroDivisionError("ours"), ZeroDivisionError, "ours"),
    ],
)
def test_why_a_session_does_not_start_is_told(
    error: Exception, kind: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Session:
        builder = FailingBuilder(error)

        @staticmethod
        def getActiveSession() -> None:  # noqa: N802  # PySpark's name
            return None

    ended = list[bool]()
    monkeypatch.setattr(spark_session, "SparkSession", Session)
    monkeypatch.setattr(spark_session, "_configuration", lambda _: None)
    monkeypatch.setattr(spark_session, "_end_machine", lambda: ended.append(True))
    with pytest.raises(kind, match=re.escape(said)), open_session(SessionSettings("spark://h:1")):
        pass
    assert bool(ended) is (kind is not ZeroDivisionError)


def test_the_reason_of_an_error_without_an_exception_is_all_of_it() -> None:
    assert reason_of(Py4JError(" gone ")) == "gone"


def test_the_bytes_of_a_file_beyond_the_limit_are_refused_by_size_with_its_path() -> None:
    node = file_node(NodePath("/film.mov"), Binary(digest=bytes(32), length_bytes=MAX_DATA_BYTES + 1))
    with pytest.raises(LimitExceededError, match=r"/film.mov has 1073741825 bytes"):
        NODE_COLUMNS["data"].value(node)

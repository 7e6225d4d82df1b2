"""What our Spark formats and stages decide without a session: options, conditions, groups of work, columns."""

from __future__ import annotations

import builtins
import io
import pickle
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.bulk.cutting import BinKind
from mailboat.bulk.records import BuiltBin, BuiltNode, StoredBinary
from mailboat.bulk.spark import session as spark_session
from mailboat.bulk.spark.columns import BATCH_BYTES, BATCH_ROWS, batches, chosen, default_ddl
from mailboat.bulk.spark.history import PACKAGE_COLUMNS, STATUS_COLUMNS, Row, TopicReader, time_of
from mailboat.bulk.spark.log_reading import place_of, stretches
from mailboat.bulk.spark.options import number_of, positive_of, texts_of, truth_of
from mailboat.bulk.spark.pushdown import MAX_OFFSET, asked_alone, asked_below, wanted_range, wanted_texts, within
from mailboat.bulk.spark.session import (
    SessionSettings,
    SparkMissingError,
    SparkUnavailableError,
    checked_master,
    open_session,
    reason_of,
)
from mailboat.bulk.spark.source import NODE_COLUMNS, MailboatFormat, PushingNodeReader, SourceQuery
from mailboat.bulk.spark.stages import StageFigures, even_groups, runs_of
from mailboat.errors import UsageError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord, Record, TopicSettings
from mailboat.model.identifiers import Offset, TopicName
from mailboat.model.messages import TopicRole
from mailboat.model.paths import NodePath
from mailboat.testing.clocks import ManualClock
from mailboat.testing.engines import write_site
from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

OFFSET, PATH, TYPE = ("offset",), ("path",), ("type",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], range(MAX_OFFSET)),
        ([EqualTo(OFFSET, 7)], range(7, 8)),
        ([GreaterThan(OFFSET, 7), LessThan(OFFSET, 9)], range(8, 9)),
        ([GreaterThanOrEqual(OFFSET, 7), LessThanOrEqual(OFFSET, 9)], range(7, 10)),
        ([GreaterThan(OFFSET, 9), LessThan(OFFSET, 7)], range(10, 10)),
        ([GreaterThan(("total",), 9), Not(EqualTo(OFFSET, 3)), IsNotNull(OFFSET)], range(MAX_OFFSET)),
    ],
)
def test_conditions_on_a_number_become_a_range(filters: list[Filter], expected: range) -> None:
    assert wanted_range(filters, "offset") == expected


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_what_two_ranges_share_is_in_both(one: int, end: int, other: int, stop: int, number: int) -> None:
    first, second = range(one, end), range(other, stop)
    assert (number in within(first, second)) == (number in first and number in second)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], None),
        ([EqualTo(TYPE, "nt:file")], {"nt:file"}),
        ([In(TYPE, ("a", "b")), In(TYPE, ("b", "c"))], {"b"}),
        ([EqualTo(PATH, "/a"), Not(EqualTo(TYPE, "x")), StringStartsWith(TYPE, "n")], None),
    ],
)
def test_conditions_on_a_text_become_a_set(filters: list[Filter], expected: set[str] | None) -> None:
    assert wanted_texts(filters, "type") == expected


@pytest.mark.parametrize(
    ("filters", "below", "alone"),
    [
        ([], ["/en", "/de"], None),
        ([StringStartsWith(PATH, "/en/")], ["/en"], None),
        ([StringStartsWith(PATH, "/en/news/2026")], ["/en/news"], None),
        ([StringStartsWith(PATH, "/e")], ["/en", "/de"], None),
        ([StringStartsWith(PATH, "/fr/")], [], None),
        ([StringStartsWith(PATH, "no path")], ["/en", "/de"], None),
        ([In(PATH, ("/en/b", "/fr/a", "/en/a"))], ["/en", "/de"], ["/en/a", "/en/b"]),
        ([EqualTo(PATH, "/en/a"), StringStartsWith(PATH, "/en/x/")], ["/en/x"], []),
        ([EqualTo(PATH, "/en/../secret.txt")], ["/en", "/de"], []),
        ([In(PATH, ("/en/../../etc", "/../en/a", "en/a", "/en//a", "/en/", "/en/b"))], ["/en", "/de"], ["/en/b"]),
        ([StringStartsWith(PATH, "/en/../")], [], None),
        ([StringStartsWith(PATH, "/en//news/")], [], None),
    ],
)
def test_conditions_on_paths_leave_subtrees_or_single_nodes(
    filters: list[Filter], below: list[str], alone: list[str] | None
) -> None:
    roots = [NodePath("/en"), NodePath("/de")]
    assert (asked_below(filters, roots), asked_alone(filters, roots)) == (below, alone)


@pytest.mark.parametrize(
    "asked",
    [
        EqualTo(PATH, "/../secret.txt"),
        In(PATH, ("/../secret.txt", "/a/../../secret.txt")),
        StringStartsWith(PATH, "/../"),
    ],
)
def test_a_condition_on_what_is_no_path_reads_nothing_beside_the_source(tmp_path: Path, asked: Filter) -> None:
    write_site(tmp_path / "site", {"a/page.html": "page"})
    (tmp_path / "secret.txt").write_text("topsecret")
    reader = PushingNodeReader(SourceQuery(str(tmp_path / "site")), ["path", "data"])
    reader.pushFilters([asked])
    batches_read = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert [batch.to_pylist() for batch in batches_read] == []


def test_options_are_read_with_their_names_in_the_messages() -> None:
    assert (number_of({}, "from", 3), number_of({"from": "4"}, "from", 3)) == (3, 4)
    assert (truth_of({}, "pushdown"), truth_of({"pushdown": "True"}, "pushdown")) == (False, True)
    assert (texts_of({}, "roots"), texts_of({"roots": '["/a"]'}, "roots")) == (None, ["/a"])
    for read in (
        lambda: number_of({"from": "-1"}, "from", 0),
        lambda: positive_of({"from": "0"}, "from", 1),
        lambda: truth_of({"from": "1"}, "from"),
        lambda: texts_of({"from": "[1]"}, "from"),
        lambda: texts_of({"from": "["}, "from"),
    ):
        with pytest.raises(UsageError, match="from"):
            read()


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
    assert [(one.low, one.high) for one in found] == [(3, 7), (7, 9)]
    assert [(one.low, one.high) for one in stretches(journal, topic, range(20, 30), 4)] == [(20, 20)]


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


def test_readers_travel_to_executors() -> None:
    reader = TopicReader(place_of({"path": "boat"}), TopicRole.STATUS, ["offset"])
    assert isinstance(pickle.loads(pickle.dumps(reader)), TopicReader)
    assert MailboatFormat.name() == "mailboat"


def test_a_session_of_spark_submit_keeps_what_that_was_told() -> None:
    own = SessionSettings("local[2]", properties={"spark.ui.enabled": "true"}).all_properties()
    assert (own["spark.driver.host"], own["spark.ui.enabled"]) == ("127.0.0.1", "true")
    submitted = SessionSettings(None).all_properties()
    assert not {"spark.driver.memory", "spark.driver.host", "spark.driver.extraJavaOptions"} & set(submitted)
    assert "spark.driver.host" not in SessionSettings("spark://there:7077").all_properties()


def test_without_pyspark_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("pyspark"):
            raise ImportError("No module named 'pyspark'")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SparkMissingError, match="bulk builds need Spark") as caught, open_session(SessionSettings()):
        pass
    assert caught.value.next_step == 'pip install "mailboat[spark]"'
    assert spark_session.JAVA_END_SECONDS > 0


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
    monkeypatch.setattr(spark_session, "_session_class", lambda: Session)
    monkeypatch.setattr(spark_session, "_end_machine", lambda: ended.append(True))
    with pytest.raises(kind, match=re.escape(said)), open_session(SessionSettings("spark://h:1")):
        pass
    assert bool(ended) is (kind is not ZeroDivisionError)


def test_the_reason_of_an_error_without_an_exception_is_all_of_it() -> None:
    assert reason_of(Py4JError(" gone ")) == "gone"


class Customs(pickle.Unpickler):
    """Notes which modules' classes come in.

    Attributes:
        modules: Their names.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.modules = set[str]()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        return super().find_class(module, name)


def test_what_a_task_hands_over_has_no_compiled_class_which_pickle_could_not_make_anew() -> None:
    digest, path = bytes(32), NodePath("/film.bin")
    built = BuiltBin(
        BinKind.CONTENT, (path,), digest, frozenset([path]), 9, 9, digest, digest, b"", (StoredBinary(digest, 9),)
    )
    built = replace(built, nodes=(BuiltNode(path, digest),))
    customs = Customs(pickle.dumps(built))
    assert customs.load() == built
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    compiled = {one.removesuffix(".py").replace("/", ".") for one in hook["modules"]}
    assert "mailboat.model.nodes" in compiled
    assert "mailboat.bulk.records" in customs.modules
    assert not customs.modules & compiled

"""Sources and the distribution history as tables of Spark: what is read, what conditions leave out, what is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mailboat.bulk.spark.node_table import NODE_COLUMNS
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.differences import keyed_digests
from mailboat.content.keys import path_of
from mailboat.content.sources.folder import FolderSource
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import FailureCause, PackageStatus, StatusMessage, TopicRole
from mailboat.model.paths import ROOT
from mailboat.wire.messages import encode_message
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)  # Java starts, and compiles, on what cores there are


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two languages, a hot folder, one path that is deep."""
    site = tmp_path / "site"
    for language in ("en", "de"):
        (site / language / "news").mkdir(parents=True)
        for number in range(30):
            (site / language / "news" / f"{number}.html").write_text(f"{language} {number}")
    deep = site.joinpath("deep", *(f"d{level}" for level in range(20)))
    deep.mkdir(parents=True)
    (deep / "end.txt").write_text("the end")
    (site / "en" / "logo.png").write_bytes(bytes(70_000))
    return site


def names_of(rows: list[Any]) -> set[str]:
    return {row.path for row in rows}


def test_a_source_is_a_table_with_a_row_for_each_node_and_its_digest(spark: SparkSession, site: Path) -> None:
    rows = spark.read.format("mailboat").option("tasks", 8).load(str(site)).collect()
    expected = {path_of(key): digest for key, digest in keyed_digests(FolderSource(site), ROOT)}
    assert {row.path: bytes(row.digest) for row in rows} == expected
    logo = next(row for row in rows if row.name == "logo.png")
    assert (logo.type, logo.parent, logo.content_bytes) == ("nt:file", "/en", 70_000)
    assert logo.properties[0].values[0].endswith(":70000")


@pytest.mark.long("spark")
def test_every_node_is_in_one_partition_and_there_are_as_many_as_asked_for(spark: SparkSession, site: Path) -> None:
    table = spark.read.format("mailboat").option("tasks", 8).schema("path STRING").load(str(site))
    assert table.rdd.getNumPartitions() == 8
    assert table.count() == table.distinct().count() == len(list(keyed_digests(FolderSource(site), ROOT)))


@pytest.mark.long("spark")
def test_a_query_ends_where_it_meets_what_cannot_be_read(spark: SparkSession, site: Path) -> None:
    (site / "de" / "secret.html").symlink_to("/nowhere")
    table = spark.read.format("mailboat").option("roots", '["/en"]').load(str(site))
    assert table.where("type = 'nt:file'").count() == 31
    with pytest.raises(PySparkException, match="leads outside"):
        spark.read.format("mailboat").load(str(site)).count()


@pytest.mark.long("spark")
def test_one_table_answers_several_queries(spark: SparkSession, site: Path) -> None:
    table = spark.read.format("mailboat").option("types", '["nt:file"]').load(str(site))
    assert (table.where("path LIKE '/en/%'").count(), table.where("path LIKE '/de/%'").count()) == (31, 30)


def test_a_source_that_changed_since_the_query_was_planned_is_not_read(
    spark: SparkSession, boat: Any, site: Path, tmp_path: Path
) -> None:
    boat.do("publish", site, "/en")
    boat.do("subscribe", "web", "--into", f"sqlite:{tmp_path / 'web.db'}", "--until", "caught-up")
    table = spark.read.format("mailboat").load(f"sqlite:{tmp_path / 'web.db'}")
    assert table.where("type = 'nt:file'").count() == 31
    boat.do("publish", site, "/de")
    boat.do("subscribe", "web", "--until", "caught-up")
    with pytest.raises(PySparkException, match="SourceChanged"):
        table.count()


def test_roots_and_columns_can_be_chosen_and_the_bytes_of_files_are_one(spark: SparkSession, site: Path) -> None:
    reader = spark.read.format("mailboat").option("roots", json.dumps(["/en", "/en/news"]))
    rows = reader.schema("path STRING, data BINARY").load(str(site)).where("path LIKE '%.html'").collect()
    assert {row.path: bytes(row.data) for row in rows}["/en/news/7.html"] == b"en 7"
    assert len(rows) == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": "none"}, "tasks is 'none'"),
        ({"roots": "/en"}, "not a JSON list"),
        ({"roots": "[]"}, "must be a JSON list"),
        ({"roots": '["en"]'}, "does not start with '/'"),
        ({"roots": '["/fr"]'}, "SourceMissing"),
        ({"root": '["/en"]'}, "unknown option 'root'; did you mean 'roots'"),
        ({"pushdown": "true"}, "unknown option 'pushdown'"),
    ],
)
def test_options_that_mean_nothing_are_refused_by_name(
    spark: SparkSession, site: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(PySparkException, match=message):
        spark.read.format("mailboat").options(**options).load(str(site)).count()


def test_a_column_that_the_table_does_not_have_is_refused_with_those_it_has(spark: SparkSession, site: Path) -> None:
    with pytest.raises(PySparkException, match=r"no column .size.*path, parent, name, type"):
        spark.read.format("mailboat").schema("size BIGINT").load(str(site)).count()
    assert "data" in NODE_COLUMNS


@pytest.fixture
def published(boat: Any, site: Path) -> Any:
    """A home with six packages, a subscriber that has two of them, and a record that no one can read."""
    for language in ("en", "de"):
        for number in range(3):
            boat.do("publish", site, f"/{language}/news/{number}.html")
    return boat


@pytest.mark.long("spark")
def test_the_package_topic_is_a_table(spark: SparkSession, published: Any) -> None:
    table = spark.read.format("mailboat.packages").option("offsetsPerTask", 2).load(str(published.home))
    assert table.rdd.getNumPartitions() == 3
    rows = table.orderBy("offset").collect()
    assert [row.paths for row in rows][:2] == [["/en/news/0.html"], ["/en/news/1.html"]]
    assert {(row.action, row.transport, row.error) for row in rows} == {("ADD", "inline", None)}
    assert table.where("offset >= 4 AND offset < 9").select("offset").collect() == [(4,), (5,)]
    some = spark.read.format("mailboat.packages").option("from", 1).option("before", 3).load(str(published.home))
    assert [row.offset for row in some.collect()] == [1, 2]


def test_statuses_and_queues_are_tables_of_who_has_what(spark: SparkSession, published: Any, tmp_path: Path) -> None:
    published.do("subscribe", "web", "--into", f"files:{tmp_path / 'web'}", "--until", "caught-up")
    published.do("publish", tmp_path / "site", "/en/logo.png")
    queues = spark.read.format("mailboat.queues").load(str(published.home))
    assert [(row.subscriber, row.offset, row.first_path) for row in queues.collect()] == [("web", 6, "/en/logo.png")]
    assert queues.where("subscriber = 'nobody'").count() == 0


@pytest.mark.long("spark")
def test_the_status_topic_is_a_table(spark: SparkSession, boat: Any) -> None:
    with Workspace(Home(boat.home)) as workspace:
        sling_id, topic = workspace.home.sling_id, workspace.topic(TopicRole.STATUS)
        cause = FailureCause("StorageFull", "no space left")
        said = [
            StatusMessage(sling_id, AgentName("web"), AgentName("author"), Offset(7), PackageStatus.IMPORTED),
            StatusMessage(
                sling_id, AgentName("web"), AgentName("author"), Offset(8), PackageStatus.REMOVED, cause=cause
            ),
        ]
        encoded = map(encode_message, said)
        workspace.journal.append(topic, [NewRecord(value, headers) for headers, value in encoded])
        workspace.journal.append(topic, [NewRecord(b"what is this")])
    rows = spark.read.format("mailboat.statuses").load(str(boat.home)).orderBy("offset").collect()
    assert [(row.subscriber, row.package_offset, row.status, row.cause) for row in rows] == [
        ("web", 7, "IMPORTED", None),
        ("web", 8, "REMOVED", "StorageFull"),
        (None, None, None, None),
    ]
    assert rows[2].error

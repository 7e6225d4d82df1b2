"""Log lines: what stands in them, what never does, and how often."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.agent.subscriber_process import StateLogger
from mailboat.config.document import LimitsConfig, LogFormat, LogsConfig
from mailboat.errors import JournalUnavailableError, MailboatError, PackageCorruptError, PathRefusedError, UsageError
from mailboat.model.identifiers import Offset
from mailboat.model.messages import FailureCause
from mailboat.model.paths import parse_path
from mailboat.packages.filevault.archive_reader import ZipArchive
from mailboat.subscriber.figures import SubscriberPhase, SubscriberStatistics
from mailboat.telemetry.logs import FIELDS, REPEAT_SECONDS, blotted, configure_logs
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
_LOG = logging.getLogger("mailboat.test")


class Lines:
    """A configured process, and what it wrote."""

    def __init__(self, config: LogsConfig) -> None:
        self.clock = ManualClock()
        self.stream = io.StringIO()
        self.handler = configure_logs(config, "author", self.clock, self.stream)

    def texts(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.texts()]


@pytest.fixture
def as_json() -> Lines:
    return Lines(LogsConfig(LogFormat.JSON, "info"))


@pytest.fixture
def as_text() -> Lines:
    return Lines(LogsConfig(LogFormat.CONSOLE, "info"))


def test_a_line_is_one_json_object_with_stable_names(as_json: Lines) -> None:
    _LOG.warning(
        "%s lost %d", "topic", 3, extra={"publisher": "author", "offset": 7, "trace_parent": TRACE, "stranger": "x"}
    )
    (line,) = as_json.documents()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "logger": "mailboat.test",
        "message": "topic lost 3",
        "agent": "author",
        "publisher": "author",
        "offset": 7,
        "trace_id": TRACE.split("-")[1],
    }


def test_an_error_in_a_line_gives_its_name_and_its_facts(as_json: Lines) -> None:
    _LOG.warning("waiting: %s", JournalUnavailableError("away", topic="package", offset=4, attempt=3))
    (line,) = as_json.documents()
    assert (line["error"], line["topic"], line["offset"]) == ("JournalUnavailable", "package", 4)
    assert "attempt" not in line


def test_a_trace_stands_in_the_line_that_reports_it(as_json: Lines) -> None:
    try:
        raise KeyError("lost")
    except KeyError:
        _LOG.exception("a defect")
    (line,) = as_json.documents()
    assert line["error"] == "KeyError"
    assert line["trace"].startswith("Traceback")


def test_people_get_a_line_with_time_level_and_facts(as_text: Lines) -> None:
    _LOG.warning("no room", extra={"subscriber": "web", "offset": 9})
    _LOG.error("two\nlines", exc_info=UsageError("no"))
    first, second, *trace = as_text.texts()
    assert first.endswith("Z warning no room   subscriber=web offset=9")
    assert " error   two ⏎ lines" in second
    assert trace[-1].endswith("Usage: no")


def test_facts_of_a_hostile_package_begin_no_line_and_steer_no_terminal(as_text: Lines) -> None:
    forged = "/a\n2026-11-28T05:00:00.000Z error   forged\r\x1b[2J\u2028"
    state_logger = StateLogger("web")
    for error in (refusal_of_path(forged), refusal_of_entry(forged), PackageCorruptError(forged, entry=forged)):
        cause = FailureCause.of_error(error)
        state_logger.given_up(SubscriberStatistics(attempts=1, next_offset=Offset(7), cause=cause))
        as_text.clock.advance(REPEAT_SECONDS)
        _LOG.error("no: %s", error, exc_info=error)
    lines = as_text.texts()
    assert all(line.isprintable() for line in lines)
    at_margin = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[1] for line in at_margin] == ["warning", "error"] * 3
    assert (
        len([line for line in at_margin if r"=/a\n2026-11-28T05:00:00.000Z error   forged\r\x1b[2J\u2028" in line]) == 6
    )


def refusal_of_path(text: str) -> MailboatError:
    with pytest.raises(PathRefusedError) as caught:
        parse_path(text)
    return caught.value


def refusal_of_entry(name: str) -> MailboatError:
    """What the reader of FileVault archives says of an entry with this name."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        writer.writestr(name, b"x")
    with pytest.raises(PathRefusedError) as caught:
        ZipArchive(archive, archive.tell(), LimitsConfig())
    return caught.value


def test_a_line_of_json_holds_no_control_characters_and_keeps_the_text(as_json: Lines) -> None:
    _LOG.warning("a\x9b2Jb\u2028c\x7f", extra={"path": "/a\n\x1b[2J\x85"})
    (text,) = as_json.texts()
    assert text.isprintable()
    (line,) = as_json.documents()
    assert (line["message"], line["path"]) == ("a\x9b2Jb\u2028c\x7f", "/a\n\x1b[2J\x85")


def test_what_is_below_the_level_is_not_written(as_json: Lines) -> None:
    _LOG.debug("detail")
    logging.getLogger("somebody.else").info("chatter")
    logging.getLogger("somebody.else").warning("trouble")
    assert [line["message"] for line in as_json.documents()] == ["trouble"]


def test_the_same_kind_of_line_comes_once_a_minute_with_the_number_of_the_others(as_json: Lines) -> None:
    for number in range(100):
        _LOG.warning("%d is late", number)
        _LOG.warning("another kind")
    as_json.clock.advance(61)
    _LOG.warning("%d is late", 100)
    assert [line["message"] for line in as_json.documents()] == [
        "0 is late",
        "another kind",
        "100 is late (99 more like this since the last)",
    ]


def test_lines_that_tell_what_happened_are_never_left_out(as_json: Lines) -> None:
    audit = logging.getLogger("mailboat.audit")
    for number in range(3):
        audit.info("%s", f"call {number}", extra={"audit": {"caller": "ann", "status": 200}})
    assert [line["message"] for line in as_json.documents()] == ["call 0", "call 1", "call 2"]
    assert as_json.documents()[0]["audit"] == {"caller": "ann", "status": 200}


def test_audit_lines_are_written_at_any_level() -> None:
    lines = Lines(LogsConfig(LogFormat.JSON, "error"))
    logging.getLogger("mailboat.audit").info("%s", "cleared")
    assert [line["message"] for line in lines.documents()] == ["cleared"]


def test_warnings_without_a_text_of_their_own_are_told_apart_by_their_values(as_json: Lines) -> None:
    for text in ("one", "two", "one"):
        _LOG.warning("%s", text)
        _LOG.warning("%s: %s", text, "away")
    assert [line["message"] for line in as_json.documents()] == ["one", "one: away", "two", "two: away"]


def test_a_process_that_is_no_agent_names_none_in_its_lines() -> None:
    stream = io.StringIO()
    configure_logs(LogsConfig(LogFormat.JSON), None, ManualClock(), stream)
    _LOG.warning("lost", extra={"publisher": "author"})
    line = json.loads(stream.getvalue())
    assert [*line] == ["time", "level", "logger", "message", "publisher"]


def test_the_memory_of_lines_is_bounded(as_json: Lines) -> None:
    for number in range(2000):
        _LOG.warning(f"kind {number}")  # each is a kind of its own
    (repeats,) = as_json.handler.filters
    assert len(repeats._kinds) == 500  # type: ignore[union-attr]  # it is ours


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("at https://user:geheim@host/path", "at https://***@host/path"),
        ("password=hunter2, more", "password=***, more"),
        ("sasl.password: hunter2", "sasl.password=***"),
        ("the token is kept", "the token is kept"),
        ("http://host:8080/path", "http://host:8080/path"),
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(text: str, shown: str) -> None:
    assert blotted(text) == shown


def test_secrets_are_blotted_out_of_facts_and_traces_too(as_json: Lines) -> None:
    try:
        raise UsageError("can't reach http://u:hunter2@h", path="https://u:hunter2@h/x")
    except UsageError as error:
        _LOG.exception("no: %s", error)
    assert "hunter2" not in as_json.stream.getvalue()


def test_configuring_again_replaces_the_handler(as_json: Lines) -> None:
    again = Lines(LogsConfig(LogFormat.JSON, "error"))
    _LOG.warning("below")
    _LOG.error("once")
    assert as_json.texts() == []
    assert [line["message"] for line in again.documents()] == ["once"]


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="one of debug, info, warning, error"):
        configure_logs(LogsConfig(level="loud"), "author", ManualClock())


def test_a_subscribers_trouble_is_told_once_for_each_change_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="mailboat")
    state_logger, cause = StateLogger("web"), FailureCause("StorageFull", "no space left", "/a")
    current = SubscriberStatistics(SubscriberPhase.CURRENT, next_offset=Offset(9))
    importing = SubscriberStatistics(SubscriberPhase.IMPORTING, next_offset=Offset(9))
    retrying = SubscriberStatistics(SubscriberPhase.RETRYING, next_offset=Offset(9), attempts=1, cause=cause)
    waiting = SubscriberStatistics(SubscriberPhase.WAITING, next_offset=Offset(9), cause=cause)
    for item in (importing, current, current, importing, retrying, retrying, waiting):
        state_logger.progressed(item)
    state_logger.given_up(SubscriberStatistics(attempts=4, next_offset=Offset(10), cause=cause))
    state_logger.progressed(current)
    state_logger.given_up(SubscriberStatistics(attempts=1, next_offset=Offset(11), cause=cause))
    records = [record for record in caplog.records if record.name == StateLogger.__module__]
    assert [(record.levelname, record.getMessage()) for record in records] == [
        ("INFO", "web has caught up"),
        ("WARNING", "web could not import a package, attempt 1: no space left"),
        ("WARNING", "web waits: no space left"),
        ("WARNING", "web gave a package up after 4 attempts: no space left"),
        ("INFO", "web has caught up"),
        ("WARNING", "web gave a package up after 1 attempt: no space left"),
    ]
    told = records[3].__dict__
    assert (told["subscriber"], told["offset"], told["error"], told["path"]) == ("web", 9, "StorageFull", "/a")


@settings(deadline=None, max_examples=examples(60))
@given(st.text(), st.dictionaries(st.sampled_from(FIELDS), st.text() | st.integers() | st.floats() | st.binary()))
def test_anything_can_be_logged_and_gives_one_line_of_json(text: str, extra: dict[str, object]) -> None:
    stream = io.StringIO()
    formatter = configure_logs(LogsConfig(LogFormat.JSON), "a", ManualClock(), stream)
    logging.getLogger().removeHandler(formatter)
    record = logging.makeLogRecord({"msg": "%s", "args": (text,), "levelname": "INFO", **extra})
    line = formatter.format(record)
    assert "\n" not in line
    assert isinstance(json.loads(line)["message"], str)

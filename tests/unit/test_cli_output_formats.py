"""How results and errors are printed."""

from __future__ import annotations

import errno
import io
import json
import sys
from datetime import UTC, datetime

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.cli.error_report import EXIT_CODES, error_lines, print_error
from mailboat.cli.main import main
from mailboat.cli.output import Output, Report, bytes_text, count_text, seconds_text, show, show_next, time_text
from mailboat.cli.rich_output import table_text
from mailboat.cli.tables import Column, Table
from mailboat.errors import JournalTrimmedError, MailboatError, UsageError
from mailboat.printable import printable
from mailboat.testing.examples import examples
from rich.text import Text

TABLE = Table((Column("NAME"), Column("LAG", is_number=True)), [("edge-1", "7"), ("[bold]x", "1234")])
REPORT = Report([{"name": "edge-1", "lag": 7}], ["edge-1"], lambda: [TABLE, "one line"])


def rendered(report: Report, output: Output) -> str:
    into = io.StringIO()
    show(report, output, into)
    return into.getvalue()


def test_a_table_is_plain_aligned_columns_without_trailing_blanks() -> None:
    assert rendered(REPORT, Output.TABLE) == ("NAME       LAG\nedge-1       7\n[bold]x   1234\none line\n")


def test_columns_of_a_table_for_programs_are_aligned_on_a_terminal_too() -> None:
    table = Table((Column("NAME"), Column("LAG", is_number=True)), [("漢字e\u0301\x1b", "7"), ("a", "1234")])
    assert rendered(Report([], [], lambda: [table]), Output.TABLE) == (
        "NAME         LAG\n漢字e\u0301\\x1b      7\na           1234\n"
    )


class Terminal(io.StringIO):
    """A terminal, as wide as COLUMNS says."""

    def isatty(self) -> bool:
        return True


def on_terminal(table: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    return Text.from_ansi(table_text(table, Terminal())).plain.splitlines()


WORDS = "StorageFull: /news/a: no space left on device while the package was being written to the disk"
FAILING = Table(
    (Column("QUEUE"), Column("OLDEST", can_cut=True), Column("LAG", is_number=True), Column("ERROR", can_fold=True)),
    [("edge-1", "12 ADD /news/one/and/two … 3 paths", "7", WORDS), ("edge-2", "-", "0", "")],
)


def test_errors_stand_below_their_rows_where_a_terminal_is_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(FAILING, 60, monkeypatch) == [
        "QUEUE    OLDEST                               LAG",
        "edge-1   12 ADD /news/one/and/two … 3 paths     7",
        "    StorageFull: /news/a: no space left on device while the",
        "    package was being written to the disk",
        "edge-2   -                                      0",
    ]


def test_what_says_least_is_cut_where_even_the_rest_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_terminal(FAILING, 30, monkeypatch)[:2] == [
        "QUEUE  OLDEST              LAG",
        "edge-1 12 ADD /news/one/a…   7",
    ]


def test_errors_fold_beside_their_rows_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(FAILING, 90, monkeypatch)
    assert lines[0].split() == ["QUEUE", "OLDEST", "LAG", "ERROR"]
    assert len(lines) == 5


@given(st.integers(min_value=20, max_value=200))
@settings(deadline=None, max_examples=examples(30))
def test_no_line_of_a_table_is_wider_than_its_terminal(width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        assert max(map(len, on_terminal(FAILING, width, patch))) <= width


def test_json_and_yaml_carry_the_same_document() -> None:
    assert json.loads(rendered(REPORT, Output.JSON)) == REPORT.document
    assert yaml.safe_load(rendered(REPORT, Output.YAML)) == REPORT.document


def test_documents_of_a_stream_can_be_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    documents = [{"lag": 7}, {"lag": 8}]
    for output, read in (
        (Output.JSON, lambda text: list(map(json.loads, text.splitlines()))),
        (Output.YAML, lambda text: list(yaml.safe_load_all(text))),
    ):
        for document in documents:
            show_next(document, ["edge"], output)
        assert read(capsys.readouterr().out) == documents
    show_next(documents[0], ["a", "b\nc"], Output.NAME)
    assert capsys.readouterr().out == "a\nb\\nc\n"


def test_names_are_one_a_line() -> None:
    assert rendered(Report({}, ["a", "b\nc"], list), Output.NAME) == "a\nb\\nc\n"


def test_a_table_without_rows_says_so() -> None:
    assert rendered(Report([], [], lambda: [Table((Column("NAME"),), [], empty="no subscribers")]), Output.TABLE) == (
        "no subscribers\n"
    )


@given(st.text())
def test_nothing_printed_can_steer_a_terminal(text: str) -> None:
    assert printable(text).isprintable()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (41_300, "41 kB"), (3_140_000, "3.1 MB"), (999_600, "1.0 MB"),
     (5 * 10**12, "5.0 TB"), (10**16, "10000 TB")],
)  # fmt: skip
def test_sizes_read_well(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0144, "14 ms"),
        (2.46, "2.5 s"),
        (12.3, "12 s"),
        (180, "3 min"),
        (4 * 3600, "4 h"),
        (604800, "7 d"),
    ],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(1, "file", "1 file"), (0, "file", "0 files"), (2, "entry", "2 entries"), (1200, "day", "1,200 days")],
)
def test_counts_read_well(count: int, noun: str, text: str) -> None:
    assert count_text(count, noun) == text


def test_times_are_in_utc_to_the_millisecond() -> None:
    assert time_text(datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)) == "2023-11-14T22:13:20.123Z"
    assert time_text(None) is None


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = JournalTrimmedError(
        "edge-3 stands at 60", next_step="mailboat a\nmailboat b", target="files:/srv", oldest_offset=80, nothing=None
    )
    assert list(error_lines(error)) == [
        "error: JournalTrimmed: edge-3 stands at 60",
        "  target         files:/srv",
        "  oldest offset  80",
        "  next           mailboat a",
        "                 mailboat b",
    ]


def test_a_fact_of_a_server_cannot_steer_the_terminal_by_its_name() -> None:
    error = MailboatError("x").with_facts(**{"a\x1b[2J\nerror: b": "c"})
    assert list(error_lines(error))[1:] == ["  a\\x1b[2J\\nerror: b  c"]


def test_an_error_cannot_steer_the_terminal() -> None:
    assert list(error_lines(UsageError("a\x1b[2Jb"))) == ["error: Usage: a\\x1b[2Jb"]


def test_a_fact_from_a_package_is_one_line_that_cannot_look_like_advice() -> None:
    error = UsageError("no", next_step="mailboat a", path="/a\n  next  mailboat b\x1b[2J")
    assert list(error_lines(error)) == [
        "error: Usage: no",
        r"  path  /a\n  next  mailboat b\x1b[2J",
        "  next  mailboat a",
    ]


def test_a_trace_cannot_steer_the_terminal_or_forge_an_error_by_its_facts() -> None:
    verbose = io.StringIO()
    error = UsageError("no", path="/a\nerror: Forged: x\x1b[2J")
    error.__cause__ = ValueError("\x1b[2J")
    print_error(error, verbose, is_verbose=True)
    lines = verbose.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    assert [line for line in lines if line.startswith("error:")] == ["error: Usage: no"]


def test_traces_come_only_when_asked_for() -> None:
    quiet, verbose = io.StringIO(), io.StringIO()
    print_error(MailboatError("x"), quiet, is_coloured=True)
    print_error(MailboatError("x"), verbose, is_verbose=True)
    assert quiet.getvalue() == "\x1b[1;31merror:\x1b[0m Mailboat: x\n"
    assert "mailboat.errors.MailboatError: Mailboat: x\n" in verbose.getvalue()


def test_error_that_cannot_be_printed_keeps_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    assert main(["explain", "no-such-name"]) == 2


def test_every_exit_code_of_an_error_is_documented() -> None:
    def codes(kind: type[MailboatError]) -> set[int]:
        return {kind.exit_code}.union(*(codes(child) for child in kind.__subclasses__()))

    assert codes(MailboatError) <= {code for code, _ in EXIT_CODES}

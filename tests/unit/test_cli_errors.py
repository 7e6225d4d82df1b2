"""What `errors show` makes of the trace that is stored with a failure."""

from __future__ import annotations

from mailboat.api.records import GivenUpView
from mailboat.cli.errors import row_of, whole_lines


def test_a_trace_that_was_cut_begins_with_a_whole_line() -> None:
    assert whole_lines("ut, line 7\n    fail()\nError: no\n") == "    fail()\nError: no\n"


def test_a_trace_that_is_whole_stays() -> None:
    whole = "Traceback (most recent call last):\n  File x\nError: no\n"
    assert whole_lines(whole) == whole
    assert whole_lines("Error: no\n") == "Error: no\n"
    assert whole_lines("") == ""


def test_attempts_that_are_not_known_are_not_shown_as_none() -> None:
    view = GivenUpView("edge", "author", 5, None, None, None, (), None)
    assert row_of(view)[3] == "-"

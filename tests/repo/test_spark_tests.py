"""Without Spark, tests that need it are left out, and the run says so; with it, none is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import spark_tests

ROOT = Path(__file__).parents[2]


def configured(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, *, is_missing: bool) -> pytest.Config:
    """The configuration of this run, as with or without Spark until the test ends."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None if is_missing else object())
    request.addfinalizer(lambda: spark_tests.pytest_configure(request.config))  # the patch is undone before
    spark_tests.pytest_configure(request.config)
    return request.config


def test_files_that_import_spark_are_left_out_without_it(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    config = configured(monkeypatch, request, is_missing=True)
    bulk, other = ROOT / "tests/unit/test_bulk_spark_parts.py", ROOT / "tests/unit/test_model_paths.py"
    assert [spark_tests.pytest_ignore_collect(path, config) for path in (bulk, other, other.parent)] == [
        True,
        None,
        None,
    ]
    assert "make dev-all" in spark_tests.pytest_report_header(config)[0]


def test_no_file_is_left_out_with_spark(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    config = configured(monkeypatch, request, is_missing=False)
    assert spark_tests.pytest_ignore_collect(ROOT / "tests/unit/test_bulk_spark_parts.py", config) is None
    assert spark_tests.pytest_report_header(config) == []

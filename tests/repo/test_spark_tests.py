"""Without Spark, tests that need it are left out, and the run says so; with it, none is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import spark_tests

UNIT = Path(__file__).parents[1] / "unit"


def configured(monkeypatch: pytest.MonkeyPatch, *, is_missing: bool) -> Any:
    """The configuration of a run with or without Spark."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None if is_missing else object())
    config: Any = SimpleNamespace(stash=pytest.Stash())
    spark_tests.pytest_configure(config)
    return config


def summary_of(config: Any) -> list[str]:
    """The lines at the end of a run."""
    lines: list[str] = []
    spark_tests.pytest_terminal_summary(SimpleNamespace(write_line=lines.append), config)
    return lines


def test_files_that_import_spark_are_left_out_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(monkeypatch, is_missing=True)
    paths = (UNIT / "test_bulk_spark_parts.py", UNIT / "test_model_paths.py", UNIT)
    assert [spark_tests.pytest_ignore_collect(path, config) for path in paths] == [True, None, None]
    assert "make dev-all" in summary_of(config)[0]


def test_no_file_is_left_out_with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(monkeypatch, is_missing=False)
    assert spark_tests.pytest_ignore_collect(UNIT / "test_bulk_spark_parts.py", config) is None
    assert summary_of(config) == []

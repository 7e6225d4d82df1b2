"""After `make dev`, which installs no Spark, files of tests that import it are not collected: the run says so.

The suite and `make lint` install it (`make dev-all`), so no stage runs without these tests.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, Final

import pytest

_IMPORT: Final = re.compile(
    r"^(?:from|import) (?:mailboat\.bulk|pyspark|pyarrow|pandas|support\.(?:bulk_|spark_))", re.MULTILINE
)
_MISSING: Final = pytest.StashKey[bool]()


def needs_spark(source: str) -> bool:
    """Whether a module of tests fails to import without Spark."""
    return _IMPORT.search(source) is not None


def pytest_configure(config: pytest.Config) -> None:
    """Note whether Spark is installed."""
    config.stash[_MISSING] = importlib.util.find_spec("pyspark") is None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that need Spark where it is missing."""
    if not config.stash[_MISSING] or not collection_path.name.startswith("test_"):
        return None
    return needs_spark(collection_path.read_text()) or None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name what is missing: in the summary, which `-q` prints, too."""
    if config.stash[_MISSING]:
        terminalreporter.write_line(
            "Spark is not installed: tests of bulk builds were not collected; `make dev-all` installs it"
        )

"""What several unit tests begin with; a test file that needs it otherwise makes its own of the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.testing.memory_content import MemoryStore
from support.engines import Engine, memory_engine
from support.event_world import World


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine whose journal and blobs are in memory."""
    with memory_engine(tmp_path) as opened:
        yield opened


@pytest.fixture
def store() -> MemoryStore:
    """What a target in memory holds."""
    return MemoryStore()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A publisher's log and the subscribers that report on it."""
    made = World(tmp_path)
    yield made
    made.close()

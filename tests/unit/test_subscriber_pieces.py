"""Pieces of a dead publisher at a running subscriber: they expire by the clock, not by what the log brings."""

from __future__ import annotations

import threading
from pathlib import Path

from mailboat.config.document import PiecesConfig
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import PackageId
from mailboat.model.pieces import PieceMessage
from mailboat.subscriber.subscriber import Subscriber
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemoryStore
from mailboat.wire.headers import PIECE_HEADERS
from mailboat.wire.piece_messages import encode_piece
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, EngineParts, memory_engine
from support.memory_imports import absent, append, subscriber


class StoppingClock(SkippingClock):
    """Notes after each wait how many packages have expired, and stops the subscriber after some seconds."""

    def __init__(self, stop_after_seconds: float) -> None:
        super().__init__()
        self.subscriber: Subscriber | None = None
        self.expired_at: float | None = None
        self._begin = self.monotonic()
        self._stop_after_seconds = stop_after_seconds

    def wait(self, event: threading.Event, timeout_seconds: float) -> bool:
        if self.subscriber is not None:
            passed, pieces = self.monotonic() - self._begin, self.subscriber.statistics().pieces
            if pieces is not None and pieces.expired and self.expired_at is None:
                self.expired_at = passed
            if passed > self._stop_after_seconds:
                self.subscriber.stop()
        return super().wait(event, timeout_seconds)


def append_orphan(engine: Engine) -> None:
    piece = PieceMessage(SLING_ID, AUTHOR, PackageId("orphan"), 0, b"x" * 1000)
    engine.journal.append(PACKAGES, [NewRecord(encode_piece(piece), PIECE_HEADERS)])


def expiry_of(folder: Path, *, is_failing: bool) -> float:
    """Seconds until the only piece in the log expired, at a subscriber that has nothing else to do, or that pauses."""
    clock = StoppingClock(100.0)
    with memory_engine(folder, EngineParts(clock, synchronous="OFF")) as engine:
        append_orphan(engine)
        if is_failing:
            append(engine, absent())
        settings = engine.with_settings(
            pieces=PiecesConfig(expire_seconds=60.0),
            max_retries=3,
            first_pause_seconds=1000.0,
            longest_pause_seconds=1000.0,
        )
        clock.subscriber = subscriber(engine, MemoryStore(), settings)
        clock.subscriber.run()
    assert clock.expired_at is not None
    return clock.expired_at


def test_pieces_of_a_dead_publisher_expire_on_a_quiet_log(tmp_path: Path) -> None:
    assert 60.0 <= expiry_of(tmp_path, is_failing=False) <= 62.0


def test_pieces_expire_during_the_pause_of_a_failing_package(tmp_path: Path) -> None:
    assert 60.0 <= expiry_of(tmp_path, is_failing=True) <= 62.0

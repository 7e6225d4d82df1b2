"""What an attempt reports while it runs: steps and the last log lines, as one JSON object of at most 4 KiB.

    {"done": 4, "total": 10, "log": ["purged /news"]}

A worker in another language may send the same object, or any other text, which is shown as it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeGuard

from mailboat.model.jobs import MAX_PROGRESS_BYTES

MAX_LOG_LINES: Final = 20
MAX_LINE_CHARACTERS: Final = 200
_MAX_STEPS: Final = 1 << 53
"""Integers that every JSON reader keeps exactly."""


class AttemptProgress(NamedTuple):
    """Steps of an attempt, and the last lines that it logged; no `total` without reported steps."""

    done: int = 0
    total: int | None = None
    log: Sequence[str] = ()


def encode_progress(progress: AttemptProgress) -> bytes:
    """Encode a report. Lines that are too many or too long are cut; the oldest lines go first."""
    lines = [line[:MAX_LINE_CHARACTERS] for line in progress.log[-MAX_LOG_LINES:]]
    steps = {} if progress.total is None else {"done": progress.done, "total": progress.total}
    while True:
        # ASCII only: the bytes are cut and sent as text elsewhere, where a character must not be divided
        encoded = json.dumps({**steps, "log": lines}, separators=(",", ":")).encode()
        if len(encoded) <= MAX_PROGRESS_BYTES:
            return encoded
        del lines[0]


def decode_progress(report: bytes) -> AttemptProgress | None:
    """Decode a report; None for another text. Values out of bounds are dropped."""
    try:
        document = json.loads(report)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or not document.keys() & {"done", "total", "log"}:
        return None
    done, total, log = document.get("done"), document.get("total"), document.get("log")
    lines = log[-MAX_LOG_LINES:] if isinstance(log, list) else []
    shown = tuple(line[:MAX_LINE_CHARACTERS] for line in lines if isinstance(line, str))
    if _is_count(done) and _is_count(total) and done <= total:
        return AttemptProgress(done, total, shown)
    return AttemptProgress(log=shown)


def eta_ms(progress: AttemptProgress, started_ms: int, reported_ms: int) -> int | None:
    """When the last step will be done at the speed so far; None before the first step."""
    if progress.total is None or not progress.done:
        return None
    return reported_ms + (reported_ms - started_ms) * (progress.total - progress.done) // progress.done


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_STEPS

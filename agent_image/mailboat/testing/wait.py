"""Waiting for what should come at once: tests poll with a bound that only a failing one reaches, and never sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

PATIENCE_SECONDS: Final = 120.0
"""How long a test waits for what should come at once, however busy the machine. Only a failing test takes that long."""

LONG_WAIT_SECONDS: Final = 600.0
"""Longer than the patience: what waits so long must be ended by something else."""

_POLL_SECONDS: Final = 0.005


def wait_until(look: Callable[[], _T], what: str = "what was to come") -> _T:
    """What a look gives as soon as it is true. Raises AssertionError with the last look when the patience ends."""
    pause, deadline = threading.Event(), time.monotonic() + PATIENCE_SECONDS
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE_SECONDS:g} s in vain for {what}; the last look gave {seen!r}")
        pause.wait(_POLL_SECONDS)
    return seen

"""Memory accounts: what the bounded structures of an agent hold, each with its limit.

`/metrics` and the dashboard show the same record. The process needs more than the sum of its accounts: its code and
libraries, and what packages and requests need while they are processed.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mailboat.api.process_views import MemoryAccountView, MemoryView
from mailboat.telemetry import catalogue
from mailboat.telemetry.families import Samples

_STATM: Final = Path("/proc/self/statm")
_CGROUP: Final = Path("/sys/fs/cgroup")
_LIMIT_FILES: Final = ("memory.max", "memory/memory.limit_in_bytes")
"""Of the control group, versions 2 and 1."""

_NO_LIMIT: Final = 1 << 60
"""Version 1 has no word for "no limit": it shows the largest number of pages, in bytes."""


class MemoryAccounts:
    """The accounts of a process. Safe to use from several threads once all are added."""

    def __init__(self, statm: Path = _STATM, cgroup: Path = _CGROUP) -> None:
        """No account yet. The paths are those of Linux; where they are missing, the process's figures are unknown."""
        self._statm = statm
        self._cgroup = cgroup
        self._accounts: dict[str, tuple[Callable[[], int], int | None]] = {}

    def add(self, name: str, used_bytes: Callable[[], int], limit_bytes: int | None) -> None:
        """Add an account; `used_bytes` is called by any thread. A limit of None: it grows with what the log holds."""
        self._accounts[name] = used_bytes, limit_bytes

    def view(self) -> MemoryView:
        """The figures of this moment."""
        accounts = [MemoryAccountView(name, used(), limit) for name, (used, limit) in self._accounts.items()]
        return MemoryView(self._resident_bytes(), self._limit_bytes(), tuple(accounts))

    def collect(self, samples: Samples) -> None:
        """Add everything to a scrape; the resident memory is a standard metric, `process_resident_memory_bytes`."""
        seen = self.view()
        if seen.limit_bytes is not None:
            samples.add(catalogue.MEMORY_LIMIT, (), seen.limit_bytes)
        for account in seen.accounts:
            samples.add(catalogue.MEMORY_ACCOUNT, (account.name,), account.used_bytes)
            if account.limit_bytes is not None:
                samples.add(catalogue.MEMORY_ACCOUNT_LIMIT, (account.name,), account.limit_bytes)

    def _resident_bytes(self) -> int | None:
        try:
            return int(self._statm.read_text().split()[1]) * resource.getpagesize()
        except OSError:
            return None

    def _limit_bytes(self) -> int | None:
        for name in _LIMIT_FILES:
            try:
                text = (self._cgroup / name).read_text().strip()
            except OSError:
                continue
            return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None
        return None

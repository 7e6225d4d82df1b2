"""What tests make once on a machine, and find again in every later run and checkout: files and folders of the cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MAKING: Final = "support.machine_cache.making"
MADE: Final = "support.machine_cache.made"
"""Audit events around what is made: `tests/plugins/costs.py` counts it as the cost of no test."""


def made_once(place: Path, make: Callable[[Path], None]) -> Path:
    """Return a file or folder, made by the first of all processes that ask; `make` gets the path of a draft."""
    if not place.exists():
        with _locked(place), _draft(place) as draft:
            if not place.exists():
                sys.audit(MAKING, str(place))
                try:
                    make(draft)
                finally:
                    sys.audit(MADE, str(place))
                draft.rename(place)
    return place


def filled_once(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache, made as in `made_once`; `fill` gets a draft of it that is there, and empty."""

    def make(draft: Path) -> None:
        draft.mkdir()
        fill(draft)

    return made_once(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat" / name, make)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _draft(place: Path) -> Iterator[Path]:
    """Give a path beside the place, free of what an interrupted process left."""
    draft = place.with_name(f"{place.name}.draft")
    if draft.is_dir():
        shutil.rmtree(draft)
    draft.unlink(missing_ok=True)
    yield draft


def java_key(java: str) -> str:
    """A text for names of files that fit one build of Java only, as archives of classes do."""
    found = Path(java).resolve().stat()
    return f"{found.st_size:x}{found.st_mtime_ns:x}"

"""What tests make once on a machine, and find again in every later run and checkout: files and folders of the cache."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def made_once(place: Path, make: Callable[[Path], None]) -> Path:
    """Return a file or folder, made by the first of all processes that ask; `make` gets the path of a draft."""
    if not place.exists():
        with _locked(place), _draft(place) as draft:
            if not place.exists():
                make(draft)
                draft.rename(place)
    return place


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

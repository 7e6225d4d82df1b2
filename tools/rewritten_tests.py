"""Rewrite the assertions of all tests once, before the workers of the suite would each do it.

In a new clone pytest rewrites the assertions of every test module, and keeps the result in `__pycache__`. Workers go
through the modules in the same order at the same time, so each would rewrite all of them: 25 CPU seconds a worker.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

# pytest has no public names for this; what it finds is only a cache, whose format it checks
from _pytest.assertion import rewrite

TESTS = Path(__file__).resolve().parent.parent / "tests"
PATTERNS = ("*/test_*.py", "**/conftest.py", "plugins/*.py")
CONFIG: Any = SimpleNamespace(getini=lambda _name: False)
STATE: Any = SimpleNamespace(trace=lambda _text: None)


def rewrite_stale(file: Path) -> bool:
    """Rewrite a module, unless what is kept of it is that of its text; whether it was stale."""
    folder = rewrite.get_cache_dir(file)
    kept = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(file, kept) is not None:  # noqa: SLF001
        return False
    folder.mkdir(parents=True, exist_ok=True)
    digest, code = rewrite._rewrite_test(file, CONFIG)  # noqa: SLF001
    rewrite._write_pyc(STATE, code, digest, kept)  # noqa: SLF001
    return True


def main() -> None:
    """Entry point."""
    files = sorted({file for pattern in PATTERNS for file in TESTS.glob(pattern)})
    print(f"assertions of {sum(map(rewrite_stale, files))} of {len(files)} test modules rewritten")


if __name__ == "__main__":
    main()

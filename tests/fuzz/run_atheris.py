"""Coverage-guided fuzzing by hand: `python tests/fuzz/run_atheris.py TARGET [FOLDER] [options of libFuzzer]`.

Needs atheris, which is no dependency of the project: `.venv/bin/pip install atheris`. FOLDER keeps what was found to
reach new code; without one it starts from the seeds each time. A crash is written to the current folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["mailboat"]):
    from support.fuzzing import TARGETS, seeds


def main(arguments: list[str]) -> None:
    """Fuzz one target until it is stopped or something is found."""
    if not arguments or arguments[0] not in TARGETS:
        raise SystemExit(f"say which target: {', '.join(TARGETS)}")
    name, *rest = arguments
    with tempfile.TemporaryDirectory() as folder:
        for index, seed in enumerate(seeds(name)):
            (Path(folder) / str(index)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *rest, folder], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])

"""Write `crds/*.yaml` from the records of the operator's kinds; with `--check`, only say which are not what they give.

Run through `make generate`. The files are committed, so that `kubectl apply -f crds/` works from a checkout;
`tests/operator/test_crds.py` runs the check.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mailboat_operator.kinds.crds import files

FOLDER = Path(__file__).resolve().parent.parent / "crds"


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    wanted = files()
    stale = [name for name, text in wanted.items() if not _is_current(FOLDER / name, text)]
    strays = [path.name for path in FOLDER.glob("*") if path.name not in wanted]
    for name in [*stale, *strays]:
        if "--check" in arguments:
            print(f"crds/{name} is not what the records give: run `make generate`")
        elif name in wanted:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(wanted[name])
            print(f"crds/{name} written")
        else:
            (FOLDER / name).unlink()
            print(f"crds/{name} removed")
    return 1 if (stale or strays) and "--check" in arguments else 0


def _is_current(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

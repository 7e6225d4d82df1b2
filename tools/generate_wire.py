"""Generate `mailboat/wire/_generated/` from `proto/`; with `--check`, only say whether it is up to date.

Run through `make generate`. The generated modules are committed, so that users need no compiler;
`tests/repo/test_generated.py` runs the check.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "proto" / "mailboat" / "v1"
GENERATED = ROOT / "agent_image" / "mailboat" / "wire" / "_generated"

# protoc's check refuses every runtime older than the compiler and those two major versions newer. What it writes for
# these files works from the floor in pyproject.toml on (editions came with 5.27), which the slice `lowest` tests, so
# that environments with another library's protobuf 5 or 6 can install this one: docs/decisions/0020-wheel.md
_VERSION_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version as _runtime_version\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\([^)]*\)\n",
    re.MULTILINE,
)


def generate(into: Path) -> None:
    """Compile all .proto files, with their type stubs, into one flat folder. Raises: SystemExit."""
    sources = sorted(str(path) for path in PROTOS.glob("*.proto"))
    arguments = ["protoc", f"-I{PROTOS}", f"--python_out={into}", f"--mypy_out=quiet:{into}", *sources]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    for module in into.glob("*_pb2.py"):
        text, count = _VERSION_CHECK.subn("", module.read_text())
        if count != 2:
            raise SystemExit(f"protoc wrote {module.name} without the known version check: adapt _VERSION_CHECK")
        module.write_text(text)


def differences(fresh: Path) -> list[str]:
    """Names of files that differ between a fresh generation and the committed one."""
    names = {path.name for path in fresh.iterdir()} | {path.name for path in GENERATED.glob("*_pb2.py*")}
    return sorted(name for name in names if _text(fresh / name) != _text(GENERATED / name))


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    if "--check" not in arguments:
        GENERATED.mkdir(exist_ok=True)
        generate(GENERATED)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder))
    for name in stale:
        print(f"{name} is not what proto/ gives: run `make generate`")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What is generated and committed is what its source gives today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def check(root: Path, tool: str) -> None:
    """Run a tool of the repository, which fails and says what to do if a file is not current."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # protoc finds its plug-in there
    environment = {**os.environ, "PATH": programs}
    done = subprocess.run(
        [sys.executable, tool, "--check"], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_protobuf_code_is_what_proto_gives(root: Path) -> None:
    check(root, "tools/generate_wire.py")


def test_the_generated_pages_are_what_the_code_gives(root: Path) -> None:
    check(root, "tools/generate_docs.py")  # without Spark all but the pages of errors


def test_the_locks_fit_the_dependency_tables(root: Path) -> None:
    check(root, "tools/lock_requirements.py")

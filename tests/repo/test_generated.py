"""What is generated and committed is what its source gives today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(root: Path, *arguments: str) -> tuple[int, str]:
    """Run a tool of the repository; its exit code and what it printed."""
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # protoc finds its plug-in there
    environment = {**os.environ, "PATH": programs}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_protobuf_code_is_what_proto_gives(root: Path) -> None:
    assert run(root, "tools/generate_wire.py", "--check") == (0, "")


def test_the_generated_pages_are_what_the_code_gives(root: Path) -> None:
    assert run(root, "tools/generate_docs.py", "--check") == (0, "")


def test_the_locks_fit_the_dependency_tables(root: Path) -> None:
    assert run(root, "tools/lock_requirements.py", "--check") == (0, "")

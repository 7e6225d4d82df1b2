"""Processes that tests fork have loaded what they need, and are counted."""

from __future__ import annotations

from pathlib import Path

import mailboat
from mailboat.testing.wait import PATIENCE_SECONDS
from support.forked_programs import run_mailboat, start_mailboat
from support.forks import run_child, server_cpu_seconds


def test_a_child_begins_with_its_modules_loaded() -> None:
    assert run_child(exec, "import sys; sys.exit('mailboat.cli.agents' not in sys.modules)") == 0


def test_a_child_that_has_ended_is_counted() -> None:
    run_child(exec, "pass")
    before = server_cpu_seconds()
    run_child(exec, "import time\nwhile time.process_time() < 0.1: pass")
    assert server_cpu_seconds() - before >= 0.05


def test_a_command_has_its_output_its_errors_and_its_exit_code(tmp_path: Path) -> None:
    done = run_mailboat(["--version"])
    assert (done.returncode, mailboat.__version__ in done.stdout, done.stderr) == (0, True, "")
    refused = run_mailboat(["config", "check", tmp_path / "missing"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("error: ")


def test_a_command_in_the_background_is_read_while_it_runs(tmp_path: Path) -> None:
    process = start_mailboat(["--version"], tmp_path / "errors")
    assert mailboat.__version__ in process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 0
    assert (tmp_path / "errors").read_text() == ""

"""Run a command line as `measured_command` does; sweeps in it have no grace period, which no configuration may say."""

from __future__ import annotations

import runpy
from pathlib import Path

from mailboat.maintenance import blob_sweep

blob_sweep._stored_before = lambda workspace: workspace.clock.now()
runpy.run_path(str(Path(__file__).with_name("measured_command.py")), run_name="__main__")

"""Run one command line of the project in this process, then say how much memory and time it took.

Processor time is that of this process and of the children that it waited for, such as Spark's Java machine.

The size is of this process alone (VmHWM): what `wait` says of a child can be that of the parent it was forked from.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

begun = time.perf_counter()

from mailboat.cli.main import main  # noqa: E402  # the imports are a part of what a command takes

code = main(sys.argv[1:])
line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(
    "\n"
    + json.dumps(
        {
            "peak_bytes": int(line.split()[1]) * 1024,
            "wall_seconds": time.perf_counter() - begun,
            "cpu_seconds": sum(os.times()[:4]),
        }
    )
)
sys.exit(code)

"""Run one command line of the project in this process, then say how much memory the process took at its peak.

The size is of this process alone (VmHWM): what `wait` says of a child can be that of the parent it was forked from.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mailboat.cli.main import main

code = main(sys.argv[1:])
line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print("\n" + json.dumps({"peak_bytes": int(line.split()[1]) * 1024}))
sys.exit(code)

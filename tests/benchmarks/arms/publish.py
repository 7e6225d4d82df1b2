"""The project's side: publish small files, each by a request of its own. Usage: publish.py HOME SITE COUNT.

SITE is filled first. Measured are the requests: intent, package, append, receipt.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.sources.folder import FolderSource
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from workload import text_of

site, count = Path(sys.argv[2]), int(sys.argv[3])
site.mkdir(exist_ok=True)
for number in range(count):
    (site / f"p{number}.html").write_text(text_of(number))


def calls() -> tuple[int, int]:
    """How often this process has read, and written, through the system so far."""
    numbers = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(numbers["syscr"]), int(numbers["syscw"])


with Workspace(Home(Path(sys.argv[1]))) as workspace:
    publisher, source = workspace.publisher(), FolderSource(site)
    begin, calls_before = time.process_time(), calls()
    for number in range(count):
        publisher.publish(add_request([NodePath(f"/p{number}.html")]), source)
    spent, called = time.process_time() - begin, calls()
    source.close()
reads, writes = called[0] - calls_before[0], called[1] - calls_before[1]
print(json.dumps({"cpu_seconds": spent, "count": count, "reads": reads, "writes": writes}))

"""The project's side: one subscriber until it has caught up. Usage: subscribe.py HOME NAME TARGET [COUNT].

Measured is `run`, with everything that the subscriber does in it; not the start of Python. With COUNT it goes on until
so many packages are imported, and says so in a first line when it is ready.
`marks` has the CPU seconds after each batch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mailboat.agent.subscriber_process import SubscriberProcess, Subscription
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import TopicRole
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until


def peak_memory_bytes() -> int:
    """The largest resident size of this process so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


wanted = int(sys.argv[4]) if len(sys.argv) > 4 else None
marks: list[tuple[int, float]] = []


def on_progress(statistics: SubscriberStatistics) -> None:
    """Note what is done, and stop when it is enough."""
    if not marks or statistics.imported > marks[-1][0]:
        marks.append((statistics.imported, time.process_time()))
    if wanted is not None and statistics.next_offset is not None and statistics.next_offset >= wanted:
        process.stop()


with Workspace(Home(Path(sys.argv[1]))) as workspace:
    process = SubscriberProcess(
        workspace, Subscription(AgentName(sys.argv[2]), sys.argv[3], max_retries=0), on_progress
    )
    if wanted is not None:
        print("ready", flush=True)
    begin = time.process_time()
    statistics = process.run(Until.CAUGHT_UP if wanted is None else Until.FOREVER)
    spent = time.process_time() - begin
    process.close()
    announced = workspace.journal.bounds(workspace.topic(TopicRole.DISCOVERY)).next_offset
result = {"cpu_seconds": spent, "count": statistics.imported, "peak_bytes": peak_memory_bytes()}
print(json.dumps({**result, "announced": announced, "marks": marks}))

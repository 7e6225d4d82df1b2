"""Publish one page again and again on an idle home with one subscriber; how long until it was imported, each time."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from pathlib import Path

from mailboat.agent.subscriber_process import SubscriberProcess, Subscription
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.content.sources.folder import FolderSource
from mailboat.model.identifiers import AgentName
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until

folder, site, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
imported = threading.Condition()
done = 0


def listen(statistics: SubscriberStatistics) -> None:
    """The subscriber says how many packages it has imported."""
    global done  # noqa: PLW0603  # one process, one figure
    with imported:
        done = statistics.imported
        imported.notify_all()


samples = []
with Workspace(Home(folder)) as workspace:
    target = f"sqlite:{folder / 'edge.db'}"
    subscriber = SubscriberProcess(workspace, Subscription(AgentName("edge"), target), listen)
    thread = threading.Thread(target=subscriber.run, args=(Until.FOREVER,))
    thread.start()
    publisher = workspace.publisher()
    for number in range(count):
        time.sleep(0.05)  # idle again
        started = time.perf_counter()
        publisher.publish(add_request([NodePath("/page.html")]), FolderSource(site))
        with imported:
            assert imported.wait_for(lambda wanted=number + 1: done >= wanted, 30)
        samples.append((time.perf_counter() - started) * 1000)
    subscriber.stop()
    thread.join()
    subscriber.close()
print(json.dumps({"median_ms": round(statistics.median(samples), 2), "largest_ms": round(max(samples), 2)}))

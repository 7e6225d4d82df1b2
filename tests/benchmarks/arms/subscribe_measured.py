"""One subscriber until it has caught up, with metrics or without: subscribe_measured.py HOME NAME TARGET on|off.

Both sides import the same modules, so that only measuring makes the difference.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from mailboat.agent.observability import Observability
from mailboat.agent.subscriber_process import SubscriberProcess, Subscription
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace
from mailboat.model.identifiers import AgentName
from mailboat.subscriber.subscriber import Until

with Workspace(Home(Path(sys.argv[1]))) as workspace:
    observed = Observability(workspace.home, workspace.clock)
    process = SubscriberProcess(
        workspace,
        Subscription(AgentName(sys.argv[2]), sys.argv[3], max_retries=0),
        lambda _: None,
        observed if sys.argv[4] == "on" else None,
    )
    begin = time.process_time()
    statistics = process.run(Until.CAUGHT_UP)
    spent = time.process_time() - begin
    process.close()
    text = observed.render().content.decode()
counted = text.count("mailboat_subscriber_import_age_seconds_bucket")
print(json.dumps({"cpu_seconds": spent, "count": statistics.imported, "is_measured": counted > 0}))

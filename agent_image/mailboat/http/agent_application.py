"""The whole API of an agent process with publishers.

The ports of its application. Imported on demand.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from mailboat.clock import SystemClock
from mailboat.control.event_feed import EventFeed, EventTopic
from mailboat.control.journal_archive import AgentArchive
from mailboat.control.lag_history import MAX_BYTES as MAX_HISTORY_BYTES
from mailboat.control.lag_history import LagHistory
from mailboat.control.service import ControlService
from mailboat.http.application import create_app
from mailboat.http.audit import AuditTrail
from mailboat.http.ports import ApiPorts
from mailboat.model.messages import TopicRole

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from mailboat.agent.process import AgentProcess


def agent_application(process: AgentProcess, control: ControlService, history: LagHistory) -> ASGIApp:
    """The application of a started process with publishers. Raises: as `create_app`."""
    workspace, clock = process.workspace, SystemClock()
    topic = EventTopic(workspace.journal, workspace.topic(TopicRole.EVENT))
    feed = EventFeed(control.status, uuid.uuid4().hex[:8], topic)
    memory = process.observability.memory
    control.account_for(memory)
    memory.add("history", lambda: history.size_bytes, MAX_HISTORY_BYTES)
    ports = ApiPorts(
        process,
        process.observability,
        control,
        control.jobs,
        AgentArchive(workspace, process.restores),
        clock,
        AuditTrail(clock),
        feed,
        history,
        process.stopping,
        memory,
    )
    return create_app(ports, process.config.http, workspace.home.path)

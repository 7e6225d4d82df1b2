"""Makes the topics of a configuration, or says how those that are there differ from it.

Called by `mailboat journal ensure`.
"""

from __future__ import annotations

from dataclasses import replace

from mailboat.api.archive import SettingDifference, TopicCheck
from mailboat.composition.workspace import Workspace
from mailboat.errors import TopicMissingError
from mailboat.model.messages import TopicRole


def check_topic(workspace: Workspace, role: TopicRole) -> TopicCheck:
    """Compare a topic with the configuration; changes nothing. Raises: JournalUnavailableError."""
    topic = workspace.topic(role)
    try:
        found = _differences(workspace, role)
    except TopicMissingError:
        return TopicCheck(topic, role.value, "missing")
    return TopicCheck(topic, role.value, "different" if found else "right", found)


def ensure_topic(workspace: Workspace, role: TopicRole) -> TopicCheck:
    """Make a topic that is missing, or put right what differs. What the log can't change stays `different`.

    Raises: JournalUnavailableError, JournalAccessDeniedError; UsageError for what the brokers do not grant.
    """
    found = check_topic(workspace, role)
    if found.is_right:
        return found
    workspace.journal.ensure_topic(workspace.topic(role), workspace.topic_settings(role))
    left = _differences(workspace, role)
    if left:
        return replace(found, state="different", differences=left)
    return replace(found, state="made" if found.state == "missing" else "changed")


def _differences(workspace: Workspace, role: TopicRole) -> tuple[SettingDifference, ...]:
    found = workspace.journal.upkeep.differences(workspace.topic(role), workspace.topic_settings(role))
    return tuple(SettingDifference(one.name, one.found, one.wanted) for one in found)

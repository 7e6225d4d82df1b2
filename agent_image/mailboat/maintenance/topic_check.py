"""Makes the topics of a configuration, or says how those that are there differ from it.

Called by `mailboat journal ensure`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from mailboat.composition.workspace import Workspace
from mailboat.errors import TopicMissingError
from mailboat.journal.port import TopicDifference
from mailboat.model.identifiers import TopicName
from mailboat.model.messages import TopicRole


class TopicState(enum.StrEnum):
    """What was found, or done."""

    RIGHT = "right"
    """It is there, and kept as the configuration says."""

    MADE = "made"
    CHANGED = "changed"
    MISSING = "missing"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class TopicReport:
    """One topic: its state, and where it differs, or differed before it was changed."""

    topic: TopicName
    role: TopicRole
    state: TopicState
    differences: tuple[TopicDifference, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether it is now as it should be."""
        return self.state not in {TopicState.MISSING, TopicState.DIFFERENT}


def check_topics(workspace: Workspace) -> Sequence[TopicReport]:
    """Compare the five topics with the configuration; changes nothing. Raises: JournalUnavailableError."""
    return [_checked(workspace, role) for role in TopicRole]


def ensure_topics(workspace: Workspace) -> Sequence[TopicReport]:
    """Make the topics that are missing and put right what differs. What the log can't change stays DIFFERENT.

    Raises: JournalUnavailableError, JournalAccessDeniedError; UsageError for what the brokers do not grant.
    """
    return [_ensured(workspace, _checked(workspace, role)) for role in TopicRole]


def _checked(workspace: Workspace, role: TopicRole) -> TopicReport:
    topic, wanted = workspace.topic(role), workspace.topic_settings(role)
    try:
        found = tuple(workspace.journal.upkeep.differences(topic, wanted))
    except TopicMissingError:
        return TopicReport(topic, role, TopicState.MISSING)
    return TopicReport(topic, role, TopicState.DIFFERENT if found else TopicState.RIGHT, found)


def _ensured(workspace: Workspace, found: TopicReport) -> TopicReport:
    if found.is_right:
        return found
    settings = workspace.topic_settings(found.role)
    workspace.journal.ensure_topic(found.topic, settings)
    left = tuple(workspace.journal.upkeep.differences(found.topic, settings))
    if left:
        return TopicReport(found.topic, found.role, TopicState.DIFFERENT, left)
    is_new = found.state is TopicState.MISSING
    return TopicReport(found.topic, found.role, TopicState.MADE if is_new else TopicState.CHANGED, found.differences)

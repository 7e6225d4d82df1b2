"""What an embedded journal needs now and then, and what can be told of it: retention, size, damage, publishers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mailboat.agent.composition import Workspace
from mailboat.agent.inspection import Finding, recent_publishers
from mailboat.journal.sqlite import SqliteJournal
from mailboat.model.identifiers import AgentName, TopicName

MAINTENANCE_SECONDS: Final = 3600.0
"""Publishers apply the journal's retention at most this often."""

_MARK: Final = ".maintained"


def maintain(workspace: Workspace) -> None:
    """Apply the journal's retention, if nobody did within the last hour."""
    mark = workspace.home.publishers_path / _MARK
    now = workspace.clock.now().timestamp()
    if mark.exists() and now - mark.stat().st_mtime < MAINTENANCE_SECONDS:
        return
    mark.touch()
    remove_expired(workspace)


def remove_expired(workspace: Workspace) -> int:
    """Apply the retention that the configuration says now; how many messages went."""
    workspace.ensure_topics()
    return workspace.journal.remove_expired()


def journal_bytes(workspace: Workspace) -> int:
    """What the journal takes on disk, its write-ahead log included."""
    path = workspace.home.journal_path
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")) if file.exists())


def journal_damage(workspace: Workspace) -> Sequence[Finding]:
    """What SQLite itself finds wrong with the journal's file."""
    if not isinstance(workspace.journal, SqliteJournal):
        return []
    return [Finding(TopicName("*"), None, text) for text in workspace.journal.find_damage()]


def last_published(workspace: Workspace) -> Mapping[AgentName, int | None]:
    """When each publisher's newest message among the last ones was appended, milliseconds since 1970 UTC."""
    names: dict[AgentName, int | None] = dict.fromkeys(workspace.publisher_names())
    return {**names, **recent_publishers(workspace.journal, workspace.package_topic)}

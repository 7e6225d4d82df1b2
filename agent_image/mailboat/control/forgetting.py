"""Takes a subscriber that will not come back off the books: the registry of the home, and its announcement.

Its target stays as it is. Until then it counts: `publish --wait` waits for it, `status` shows it, and where retention
is by consumption its position holds packages back. Called by the control room, for
`mailboat subscribers forget` and the HTTP API.
"""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.api.records import ForgottenView
from mailboat.composition.workspace import Workspace
from mailboat.control.subscriber_directory import Member, audience_of
from mailboat.errors import AgentMissingError, UsageError
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, SlingId
from mailboat.model.messages import DiscoveryMessage, TopicRole
from mailboat.wire.messages import encode_message


def forget_subscriber(workspace: Workspace, name: AgentName) -> ForgottenView:
    """Forget a subscriber that does not run.

    Raises:
        AgentMissingError: Nobody of that name is known.
        UsageError: It runs; it would announce itself again.
    """
    members = _members_of(workspace, name)
    for one in members:
        if one.is_running:
            raise UsageError(
                f"{name} is {one.state}: one that runs would announce itself again", next_step="stop it first"
            )
    instances = tuple(one.key.sling_id for one in members if one.heard_ms is not None)
    for instance in instances:
        _withdraw(workspace, instance, name)
    was_registered = workspace.home.forget_subscriber(name)
    target = next((one.target for one in members if one.target is not None), None)
    return ForgottenView(name, was_registered, instances, target)


def _members_of(workspace: Workspace, name: AgentName) -> Sequence[Member]:
    """The subscriber, in each instance that it announced itself from."""
    members = audience_of(workspace).members()
    found = [one for one in members if one.name == name]
    if not found:
        raise AgentMissingError(
            f"no subscriber {name} is known", known=", ".join(one.name for one in members) or "none"
        )
    return found


def _withdraw(workspace: Workspace, instance: SlingId, name: AgentName) -> None:
    """An announcement without states takes leave for good."""
    now_ms = int(workspace.clock.now().timestamp() * 1000)
    headers, value = encode_message(DiscoveryMessage(instance, name, (), announced_ms=now_ms))
    topic = workspace.topic(TopicRole.DISCOVERY)
    workspace.journal.append(topic, [NewRecord(value, headers, f"{instance}-{name}".encode())])

"""Times in messages: what no clock can show is refused, so times are valid wherever they are shown."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mailboat.cli.output import time_text
from mailboat.clock import LAST_MS, moment_of
from mailboat.errors import MessageCorruptError
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    Action,
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    Message,
    PackageMessage,
    PackageStatus,
    RedriveMessage,
    StatusMessage,
)
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.wire.messages import decode_message, encode_message

SLING_ID = SlingId("0f3c1b52-6a1e-4a51-9b39-1d2f3c4b5a69")
EDGE, AUTHOR = AgentName("edge"), AgentName("author")


def registry_of(heard_ms: int) -> RegistryMessage:
    registrations = (Registration(SLING_ID, EDGE, Offset(0), heard_ms),)
    return RegistryMessage(LogIdentity("cluster", "topic"), Offset(0), registrations)


MESSAGES: dict[str, Callable[[int], Message]] = {
    "package": lambda ms: PackageMessage(SLING_ID, PackageId("p"), Action.TEST, "tree", created_ms=ms),
    "status": lambda ms: StatusMessage(SLING_ID, EDGE, AUTHOR, Offset(0), PackageStatus.REMOVED_FAILED, created_ms=ms),
    "announcement": lambda ms: DiscoveryMessage(SLING_ID, EDGE, (), is_editable=False, announced_ms=ms),
    "clear": lambda ms: CommandMessage(SLING_ID, EDGE, Offset(0), sent_ms=ms),
    "redrive": lambda ms: RedriveMessage(SLING_ID, EDGE, Offset(0), sent_ms=ms),
    "answer": lambda ms: CommandResult(
        "c", SLING_ID, EDGE, CommandVerb.CLEAR, Offset(0), CommandState.DONE, created_ms=ms
    ),
    "registry": registry_of,
}


@pytest.mark.parametrize("ms", [-1, LAST_MS + 1, 2**62])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_a_time_that_can_not_be_is_refused(name: str, ms: int) -> None:
    with pytest.raises(MessageCorruptError):
        decode_message(*encode_message(MESSAGES[name](ms)))


@pytest.mark.parametrize("ms", [1, LAST_MS])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_any_other_time_is_understood(name: str, ms: int) -> None:
    message = MESSAGES[name](ms)
    assert decode_message(*encode_message(message)) == message


def test_the_last_time_that_is_understood_can_be_shown() -> None:
    assert (time_text(moment_of(LAST_MS)) or "").startswith("9999-12-31T23:59:59.")

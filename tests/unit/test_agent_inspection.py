"""What is told of messages, and of packages on disk."""

from __future__ import annotations

import pytest
from mailboat.composition.package_formats import CodecsOnDemand, codec_names, package_registry
from mailboat.config.document import Config
from mailboat.model.identifiers import AgentName, Offset, PackageId, SlingId
from mailboat.model.messages import (
    Action,
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    DistributedEvent,
    FailureCause,
    Message,
    PackageMessage,
    PackageStatus,
    PingMessage,
    RedriveMessage,
    StatusMessage,
    SubscriberState,
)
from mailboat.model.paths import NodePath
from mailboat.operations.journal_inspection import summary_of

SLING = SlingId("0" * 36)
WEB = AgentName("web")
MESSAGES: list[tuple[Message | DistributedEvent, str]] = [
    (
        PackageMessage(SLING, PackageId("p"), Action.ADD, "tree", paths=tuple(map(NodePath, ("/a", "/b", "/c", "/d")))),
        "ADD /a /b /c … 4 paths   0 bytes no package",
    ),
    (
        PackageMessage(SLING, PackageId("p"), Action.ADD, "tree", package_length_bytes=9, payload_ref="sha256:…"),
        "ADD   9 bytes by reference",
    ),
    (PingMessage(), "ping"),
    (CommandMessage(SLING, WEB, Offset(7)), "web: clear up to offset 7"),
    (RedriveMessage(SLING, WEB, Offset(7)), "web: redrive offset 7"),
    (
        CommandResult("c1", SLING, WEB, CommandVerb.CLEAR, Offset(7), CommandState.REFUSED, message="beyond the log"),
        "web: clear offset 7 refused   beyond the log",
    ),
    (
        CommandResult("c1", SLING, WEB, CommandVerb.REDRIVE, Offset(7), CommandState.DONE),
        "web: redrive offset 7 done",
    ),
    (DistributedEvent(AgentName("author"), PackageId("p"), Offset(3)), "distributed p offset 3"),
    (
        StatusMessage(
            SLING, WEB, AgentName("author"), Offset(3), PackageStatus.REMOVED_FAILED, cause=FailureCause("X", "why")
        ),
        "web: REMOVED_FAILED offset 3   X: why",
    ),
    (
        DiscoveryMessage(SLING, WEB, (SubscriberState(AgentName("author"), 4),), state="current"),
        "web: current   author at 4",
    ),
    (DiscoveryMessage(SLING, WEB, ()), "web: alive"),
]


@pytest.mark.parametrize(("message", "text"), MESSAGES, ids=[text for _, text in MESSAGES])
def test_a_message_is_told_in_one_line(message: Message | DistributedEvent, text: str) -> None:
    assert summary_of(message) == text


def test_codecs_are_loaded_one_by_one_and_are_those_of_the_registry() -> None:
    codecs = CodecsOnDemand(codec_names(Config()))
    assert set(codecs) - {"journal", "journal_filevault"} == set(package_registry()) == {"tree", "filevault"}
    assert len(codecs) == 4
    assert codecs["tree"] is codecs["tree"]
    assert codecs["filevault"].package_type == codecs["journal"].package_type == "filevault"
    assert codecs.get("durbo") is None

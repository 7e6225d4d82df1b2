"""The bytes of every message, both ways, against bytes that are built here by hand from the numbers of the original.

`tests/golden/wire/` keeps the same bytes as hex, with a readable twin, so that a change shows in a review.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.errors import MessageCorruptError, PathRefusedError, UnknownMessageError, UntrustedInputError
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId, RequestId, SlingId
from mailboat.model.messages import (
    Action,
    AfterCall,
    BulkPart,
    CommandMessage,
    CommandResult,
    CommandState,
    CommandVerb,
    DiscoveryMessage,
    FailureCause,
    HookCalls,
    Message,
    PackageMessage,
    PackageStatus,
    PingMessage,
    PoolBacklog,
    RedriveMessage,
    ReportStart,
    StatusMessage,
    SubscriberState,
    SuspendMessage,
    Suspension,
)
from mailboat.model.nodes import Binary
from mailboat.model.paths import NodePath
from mailboat.model.pieces import PieceMessage
from mailboat.model.positions import LogIdentity
from mailboat.model.registrations import Registration, RegistryMessage
from mailboat.testing.examples import examples
from mailboat.wire import headers
from mailboat.wire._generated import messages_pb2 as pb
from mailboat.wire._generated import pieces_pb2, registry_pb2
from mailboat.wire.messages import decode_message, encode_message
from mailboat.wire.package_messages import decode_package, encode_package
from support.handmade import data, fields_of, number, text, varint

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "wire"
SLING_ID = SlingId("0b1f9ad1-3c55-4a2c-9f4e-3a3a7b0c1d2e")
OTHER_ID = SlingId("7e2d5c11-9b0a-4c1d-8e2f-5a6b7c8d9e0f")
PACKAGE_ID = PackageId("dstrpck-1767225600000-5f2d7c9c-0b4e-4a52-8a8e-2f6f0f6f2f0e")


CAUSE = FailureCause("StorageFull", "no space is left", "/news/ä", "line 1\nline 2")
CAUSE_BYTES = text(1, "StorageFull") + text(2, "no space is left") + text(3, "/news/ä") + text(4, "line 1\nline 2")

# A message with every field, its headers' type, and its bytes.
WHOLE: dict[str, tuple[Message, int, bytes]] = {
    "package": (
        PackageMessage(
            SLING_ID,
            PACKAGE_ID,
            Action.ADD,
            "tree",
            AgentName("author"),
            300,
            bytes(range(256)) + bytes(44),
            None,
            (NodePath("/content/a"), NodePath("/content/ö")),
            (NodePath("/content/a"),),
            "admin",
            RequestId("request-1"),
            bytes(range(32)),
            bytes(range(32, 64)),
            1_767_225_600_000,
            (Binary(digest=b"\x01" * 32, length_bytes=70_000), Binary(digest=b"\x02" * 32, length_bytes=0)),
            ("chunks",),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            BulkPart(BuildId("release-42"), 6, 40),
        ),
        2,
        text(1, SLING_ID)
        + text(2, "author")
        + text(3, PACKAGE_ID)
        + number(4, 0)
        + number(5, 300)
        + data(6, bytes(range(256)) + bytes(44))
        + text(7, "/content/a")
        + text(7, "/content/ö")
        + text(8, "/content/a")
        + text(11, "tree")
        + text(12, "admin")
        + text(20, "request-1")
        + data(21, bytes(range(32)))
        + data(22, bytes(range(32, 64)))
        + number(23, 1_767_225_600_000)
        + data(24, data(1, b"\x01" * 32) + number(2, 70_000))
        + data(24, data(1, b"\x02" * 32) + number(2, 0))
        + text(26, "chunks")
        + text(27, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        + data(28, text(1, "release-42") + number(2, 6) + number(3, 40)),
    ),
    "package-by-reference": (
        PackageMessage(
            SLING_ID,
            PACKAGE_ID,
            Action.DELETE,
            "filevault",
            AgentName("author"),
            3_000_000_000,
            payload_ref="sha256:00:3000000000",
            paths=(NodePath("/a"),),
        ),
        2,
        text(1, SLING_ID)
        + text(2, "author")
        + text(3, PACKAGE_ID)
        + number(4, 1)
        + number(5, 3_000_000_000)
        + text(7, "/a")
        + text(10, "sha256:00:3000000000")
        + text(11, "filevault"),
    ),
    "package-invalidate": (
        PackageMessage(SLING_ID, PACKAGE_ID, Action.INVALIDATE, "tree", AgentName("author"), paths=(NodePath("/a"),)),
        2,
        text(1, SLING_ID)
        + text(2, "author")
        + text(3, PACKAGE_ID)
        + number(4, 2)
        + number(5, 0)
        + text(7, "/a")
        + text(11, "tree")
        + number(25, 1),
    ),
    "status": (
        StatusMessage(
            SLING_ID,
            AgentName("edge-1"),
            AgentName("author"),
            Offset(2**40),
            PackageStatus.REMOVED_FAILED,
            PACKAGE_ID,
            CAUSE,
            11,
            1_767_225_600_000,
        ),
        3,
        text(1, SLING_ID)
        + text(2, "edge-1")
        + text(3, "author")
        + number(4, 2**40)
        + number(5, 0)
        + text(20, PACKAGE_ID)
        + data(21, CAUSE_BYTES)
        + number(22, 11)
        + number(23, 1_767_225_600_000),
    ),
    "status-imported": (
        StatusMessage(SLING_ID, AgentName("edge-1"), AgentName("author"), Offset(0), PackageStatus.IMPORTED),
        3,
        text(1, SLING_ID) + text(2, "edge-1") + text(3, "author") + number(4, 0) + number(5, 2),
    ),
    "status-skipped": (
        StatusMessage(
            SLING_ID,
            AgentName("edge-1"),
            AgentName("author"),
            Offset(7),
            PackageStatus.REMOVED,
            staged_behind=AgentName("golden"),
        ),
        3,
        text(1, SLING_ID) + text(2, "edge-1") + text(3, "author") + number(4, 7) + number(5, 1) + text(24, "golden"),
    ),
    "discovery-reports": (
        DiscoveryMessage(
            OTHER_ID,
            AgentName("edge-2"),
            (SubscriberState(AgentName("author"), 41, reports=ReportStart(Offset(12), is_first=True)),),
            follows_all=True,
            reports=ReportStart(Offset(0)),
        ),
        1,
        text(1, OTHER_ID)
        + text(2, "edge-2")
        + data(3, text(1, "author") + number(2, 41) + number(3, 0) + data(20, number(1, 12) + number(2, 1)))
        + data(4, number(1, 0) + number(2, -1))
        + number(30, 1)
        + data(31, number(1, 0)),
    ),
    "discovery": (
        DiscoveryMessage(
            OTHER_ID,
            AgentName("edge-2"),
            (SubscriberState(AgentName("author"), 41, 3), SubscriberState(AgentName("other"), -1, 0)),
            True,
            10,
            "retrying",
            CAUSE,
            1_767_225_600_000,
            "generations:/srv/web",
            True,
            "caught up",
            True,
            0,
            Offset(42),
            LogIdentity("cluster", "topic"),
            True,
        ),
        1,
        text(1, OTHER_ID)
        + text(2, "edge-2")
        + data(3, text(1, "author") + number(2, 41) + number(3, 3))
        + data(3, text(1, "other") + number(2, -1) + number(3, 0))
        + data(4, number(1, 1) + number(2, 10))
        + text(20, "retrying")
        + data(21, CAUSE_BYTES)
        + number(22, 1_767_225_600_000)
        + text(23, "generations:/srv/web")
        + number(24, 1)
        + text(25, "caught up")
        + number(26, 1)
        + number(27, 0)
        + number(28, 42)
        + data(29, text(1, "cluster") + text(2, "topic"))
        + number(30, 1),
    ),
    "discovery-without-limit": (
        DiscoveryMessage(OTHER_ID, AgentName("edge-2"), ()),
        1,
        text(1, OTHER_ID) + text(2, "edge-2") + data(4, number(1, 0) + number(2, -1)),
    ),
    "discovery-suspended": (
        DiscoveryMessage(
            OTHER_ID,
            AgentName("edge-2"),
            (),
            state="suspended",
            suspension=Suspension(1_767_225_600_000, 1_767_229_200_000),
        ),
        1,
        text(1, OTHER_ID)
        + text(2, "edge-2")
        + data(4, number(1, 0) + number(2, -1))
        + text(20, "suspended")
        + data(34, number(1, 1_767_225_600_000) + number(2, 1_767_229_200_000)),
    ),
    "discovery-of-a-pool": (
        DiscoveryMessage(OTHER_ID, AgentName("edge-2"), (), backlog=PoolBacklog(Offset(42), 7)),
        1,
        text(1, OTHER_ID)
        + text(2, "edge-2")
        + data(4, number(1, 0) + number(2, -1))
        + data(35, number(1, 42) + number(2, 7)),
    ),
    "discovery-hook-calls": (
        DiscoveryMessage(
            OTHER_ID,
            AgentName("edge-2"),
            (),
            after_calls=HookCalls(
                2, 1, None, (AfterCall(Offset(5), 2, CAUSE), AfterCall(Offset(3), 4, is_set_aside=True))
            ),
            former=(
                SubscriberState(AgentName("author"), 8, reports=ReportStart(Offset(2), is_first=True, until=Offset(9))),
                SubscriberState(AgentName(""), 3),
            ),
        ),
        1,
        text(1, OTHER_ID)
        + text(2, "edge-2")
        + data(4, number(1, 0) + number(2, -1))
        + data(
            32,
            number(1, 2)
            + number(2, 1)
            + data(4, number(1, 5) + number(2, 2) + data(3, CAUSE_BYTES))
            + data(4, number(1, 3) + number(2, 4) + number(4, 1)),
        )
        + data(
            33,
            text(1, "author") + number(2, 8) + number(3, 0) + data(20, number(1, 2) + number(2, 1) + number(3, 9)),
        )
        + data(33, text(1, "") + number(2, 3) + number(3, 0)),
    ),
    "discovery-not-ready": (
        DiscoveryMessage(OTHER_ID, AgentName("edge-2"), (), is_ready=False, next_offset=Offset(0)),
        1,
        text(1, OTHER_ID) + text(2, "edge-2") + data(4, number(1, 0) + number(2, -1)) + number(24, 0) + number(28, 0),
    ),
    "command": (
        CommandMessage(SLING_ID, AgentName("edge-1"), Offset(77), AgentName("author"), "clear-1", 1_767_225_600_000),
        4,
        text(1, SLING_ID)
        + text(2, "edge-1")
        + data(3, number(1, 77))
        + text(4, "author")
        + text(20, "clear-1")
        + number(21, 1_767_225_600_000),
    ),
    "command-of-the-original": (
        CommandMessage(SLING_ID, AgentName("edge-1"), Offset(77), AgentName("author")),
        4,
        text(1, SLING_ID) + text(2, "edge-1") + data(3, number(1, 77)) + text(4, "author"),
    ),
    "redrive": (
        RedriveMessage(SLING_ID, AgentName("edge-1"), Offset(77), AgentName("author"), "redrive-1", 1_767_225_600_000),
        20,
        text(1, SLING_ID)
        + text(2, "edge-1")
        + number(3, 77)
        + text(4, "author")
        + text(20, "redrive-1")
        + number(21, 1_767_225_600_000),
    ),
    "suspend": (
        SuspendMessage(SLING_ID, AgentName("edge-1"), True, 1_767_229_200_000, "suspend-1", 1_767_225_600_000),
        36,
        text(1, SLING_ID)
        + text(2, "edge-1")
        + number(3, 1)
        + number(4, 1_767_229_200_000)
        + text(20, "suspend-1")
        + number(21, 1_767_225_600_000),
    ),
    "result": (
        CommandResult(
            "clear-1",
            SLING_ID,
            AgentName("edge-1"),
            CommandVerb.CLEAR,
            Offset(77),
            CommandState.DONE,
            AgentName("author"),
            12,
            "12 packages were dropped",
            1_767_225_600_000,
        ),
        21,
        text(1, SLING_ID)
        + text(2, "edge-1")
        + text(3, "author")
        + number(4, 77)
        + number(5, 0)
        + text(6, "clear")
        + text(7, "clear-1")
        + number(8, 12)
        + text(9, "12 packages were dropped")
        + number(10, 1_767_225_600_000),
    ),
    "result-refused": (
        CommandResult("redrive-1", SLING_ID, AgentName("edge-1"), CommandVerb.REDRIVE, Offset(0), CommandState.REFUSED),
        21,
        text(1, SLING_ID) + text(2, "edge-1") + number(4, 0) + number(5, 1) + text(6, "redrive") + text(7, "redrive-1"),
    ),
    "ping": (PingMessage(), 5, b""),
    "piece": (
        PieceMessage(SLING_ID, AgentName("author"), PackageId("dstrpck-1-a"), 3, b"\x00\xffbytes"),
        22,
        text(1, SLING_ID) + text(2, "author") + text(3, "dstrpck-1-a") + number(4, 3) + data(5, b"\x00\xffbytes"),
    ),
    "registry": (
        RegistryMessage(
            LogIdentity("cluster", "topic"),
            Offset(99),
            (Registration(SLING_ID, AgentName("edge-1"), Offset(42), 1_767_225_600_000),),
        ),
        23,
        text(1, "cluster")
        + text(2, "topic")
        + data(3, text(1, SLING_ID) + text(2, "edge-1") + number(3, 42) + number(4, 1_767_225_600_000))
        + number(4, 99),
    ),
}
KINDS = {
    "package": pb.PackageMessage,
    "status": pb.PackageStatusMessage,
    "discovery": pb.DiscoveryMessage,
    "command": pb.CommandMessage,
    "redrive": pb.RedriveMessage,
    "suspend": pb.SuspendMessage,
    "result": pb.CommandResult,
    "ping": pb.PingMessage,
    "piece": pieces_pb2.PieceMessage,
    "registry": registry_pb2.RegistryMessage,
}


def headers_of(kind: int, version: int = 1) -> headers.Headers:
    return (("type", b"%d" % kind), ("version", b"%d" % version))


@pytest.mark.parametrize("name", WHOLE)
def test_a_message_has_the_bytes_of_its_field_numbers(name: str) -> None:
    message, kind, expected = WHOLE[name]
    assert encode_message(message) == (headers_of(kind), expected)


@pytest.mark.parametrize("name", WHOLE)
def test_the_bytes_are_that_message(name: str) -> None:
    message, kind, value = WHOLE[name]
    assert decode_message(headers_of(kind), value) == message


@pytest.mark.parametrize("name", WHOLE)
def test_the_golden_files_hold_the_same_bytes_and_say_what_they_mean(name: str) -> None:
    kept = bytes.fromhex((GOLDEN / f"{name}.hex").read_text())
    assert kept == WHOLE[name][2]
    parsed = KINDS[name.partition("-")[0]].FromString(kept)
    assert text_format.MessageToString(parsed) == (GOLDEN / f"{name}.txt").read_text()


def test_every_golden_file_is_used() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(WHOLE)


def test_the_seeding_message_of_the_original_is_understood() -> None:
    value = text(1, SLING_ID) + text(3, "seeder") + number(4, 2) + text(11, "seeder")
    assert len(value) == 56
    message = decode_package(value)
    assert message == PackageMessage(SLING_ID, PackageId("seeder"), Action.TEST, "seeder")
    assert message.pub_agent_name is None


def test_a_reader_of_the_original_line_sees_invalidate_as_a_test() -> None:
    value = WHOLE["package-invalidate"][2]
    assert number(4, 2) in value
    without_ours = value.removesuffix(number(25, 1))
    assert decode_package(without_ours).action is Action.TEST


def test_an_empty_payload_is_not_a_missing_one() -> None:
    start = text(1, SLING_ID) + text(3, PACKAGE_ID) + number(4, 0)
    assert decode_package(start + data(6, b"") + text(11, "tree")).payload == b""
    assert decode_package(start + text(11, "tree")).payload is None


# --------------------------------------------------------------------------------------------------------- bad input

REQUIRED = {
    "package": (("pub_sling_id", 1), ("pkg_id", 3), ("req_type", 4), ("pkg_type", 11)),
    "status": (("sub_sling_id", 1), ("sub_agent_name", 2), ("pub_agent_name", 3), ("offset", 4), ("status", 5)),
    "discovery": (("sub_sling_id", 1), ("sub_agent_name", 2), ("subscriber_configuration", 4)),
    "command": (("sub_sling_id", 1), ("sub_agent_name", 2)),
    "redrive": (("sub_sling_id", 1), ("sub_agent_name", 2), ("offset", 3)),
    "suspend": (("sub_sling_id", 1), ("sub_agent_name", 2), ("suspended", 3)),
    "result": (
        ("sub_sling_id", 1),
        ("sub_agent_name", 2),
        ("offset", 4),
        ("state", 5),
        ("verb", 6),
        ("command_id", 7),
    ),
}


@pytest.mark.parametrize(
    ("name", "field", "number_of_field"),
    [(name, field, number_of_field) for name, fields in REQUIRED.items() for field, number_of_field in fields],
)
def test_a_missing_required_field_is_named(name: str, field: str, number_of_field: int) -> None:
    _, kind, value = WHOLE[name]
    cut = b"".join(part for found, part in fields_of(value) if found != number_of_field)
    assert cut != value
    with pytest.raises(MessageCorruptError, match=field):
        decode_message(headers_of(kind), cut)


def test_a_missing_required_field_within_a_field_is_named() -> None:
    start = text(1, SLING_ID) + text(2, "edge-1")
    with pytest.raises(MessageCorruptError, match=r"subscriber_configuration\.max_retries"):
        decode_message(headers_of(1), start + data(4, number(1, 1)))
    with pytest.raises(MessageCorruptError, match=r"clear_command\.offset"):
        decode_message(headers_of(4), start + data(3, b""))


@pytest.mark.parametrize(
    "record_headers",
    [
        (),
        headers_of(6),
        headers_of(99),
        headers_of(2, 2),
        (("type", b"x"), ("version", b"1")),
        (("type", b"2"),),
        (("messageType", b"PackageMessage"),),
        (("type", b"\xff"), ("version", b"1")),
        (("type", b"9" * 5), ("version", b"1")),
    ],
)
def test_an_unknown_type_or_version_is_reported(record_headers: headers.Headers) -> None:
    with pytest.raises(UnknownMessageError, match="no known type"):
        decode_message(record_headers, WHOLE["package"][2])


def test_other_headers_beside_ours_do_no_harm() -> None:
    message, kind, value = WHOLE["status"]
    assert decode_message((("traceparent", b"x"), *headers_of(kind)), value) == message


@pytest.mark.parametrize("unknown", [3, 4, 99, -1])
def test_an_unknown_request_type_makes_the_message_unreadable_as_in_the_original(unknown: int) -> None:
    value = text(1, SLING_ID) + text(3, PACKAGE_ID) + number(4, unknown) + text(11, "tree")
    with pytest.raises(MessageCorruptError, match="req_type"):
        decode_package(value)


def test_an_unknown_status_makes_the_message_unreadable() -> None:
    value = text(1, SLING_ID) + text(2, "edge-1") + text(3, "author") + number(4, 0) + number(5, 3)
    with pytest.raises(MessageCorruptError, match="status"):
        decode_message(headers_of(3), value)


def test_an_action_that_is_not_known_yet_leaves_a_test() -> None:
    value = text(1, SLING_ID) + text(3, PACKAGE_ID) + number(4, 2) + text(11, "tree") + number(25, 9)
    assert decode_package(value).action is Action.TEST


def test_of_a_field_that_comes_twice_the_last_counts() -> None:
    _, _, value = WHOLE["package-by-reference"]
    assert decode_package(value + text(12, "first") + text(12, "last")).user_id == "last"


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "ping"])
def test_a_message_that_was_cut_is_refused_or_lacks_only_optional_fields(name: str) -> None:
    message, kind, value = WHOLE[name]
    boundaries = {0}
    for _, part in fields_of(value):
        boundaries.add(max(boundaries) + len(part))
    for length in range(len(value)):
        if length in boundaries:
            continue
        with pytest.raises(MessageCorruptError):
            decode_message(headers_of(kind), value[:length])
    assert decode_message(headers_of(kind), value) == message


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "ping"])
def test_unknown_fields_are_harmless_and_stay_in_the_bytes(name: str) -> None:
    message, kind, value = WHOLE[name]
    longer = value + text(900, "from a later version") + number(901, 7) + data(902, number(1, 1))
    assert decode_message(headers_of(kind), longer) == message
    parsed = KINDS[name.partition("-")[0]].FromString(longer)
    assert parsed.SerializeToString() == longer


def test_text_that_is_not_utf8_is_refused_clearly() -> None:
    value = data(1, b"\xff\xfe" * 18) + text(3, PACKAGE_ID) + number(4, 0) + text(11, "tree")
    with pytest.raises(MessageCorruptError, match=r"UTF-8|Error parsing message"):  # protobuf before 7 names no reason
        decode_package(value)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (data(21, b"short"), "5 bytes instead of 32"),
        (data(22, bytes(33)), "33 bytes instead of 32"),
        (data(24, data(1, bytes(31)) + number(2, 1)), "31 bytes instead of 32"),
        (data(24, data(1, b"") + number(2, 1)), "0 bytes"),
        (data(24, data(1, bytes(32)) + number(2, -1)), "length -1"),
        (number(5, -1), "-1 bytes"),
        (number(23, 2**62), "ms"),
        (number(23, -1), "ms"),
        (data(28, text(1, "b") + number(2, 4) + number(3, 4)), "package 4 of 4"),
        (data(28, text(1, "b") + number(2, -1) + number(3, 4)), "package -1 of 4"),
        (data(28, text(1, "-b") + number(2, 0) + number(3, 4)), "not a build id"),
        (data(28, text(1, "b") + number(2, 0)), "bulk.total"),
    ],
)
def test_a_value_that_can_not_be_is_refused(field: bytes, expected: str) -> None:
    start = text(1, SLING_ID) + text(3, PACKAGE_ID) + number(4, 0) + text(11, "tree")
    with pytest.raises(MessageCorruptError, match=expected):
        decode_package(start + field)


@pytest.mark.parametrize("path", ["", "a", "/a/../b", "/a//b", "/a\x00", "/a\\b", "/" + "a" * 300])
@pytest.mark.parametrize("field", [7, 8])
def test_a_path_that_content_can_not_have_is_refused(path: str, field: int) -> None:
    start = text(1, SLING_ID) + text(3, PACKAGE_ID) + number(4, 0) + text(11, "tree")
    with pytest.raises(PathRefusedError):
        decode_package(start + text(field, "/good") + text(field, path))


def test_negative_offsets_are_refused() -> None:
    status = text(1, SLING_ID) + text(2, "edge-1") + text(3, "author") + number(4, -5) + number(5, 2)
    with pytest.raises(MessageCorruptError, match="-5"):
        decode_message(headers_of(3), status)
    command = text(1, SLING_ID) + text(2, "edge-1") + data(3, number(1, -1))
    with pytest.raises(MessageCorruptError, match="-1"):
        decode_message(headers_of(4), command)


def test_a_reader_of_the_original_line_finds_nothing_but_its_own_numbers_in_a_clear() -> None:
    value = WHOLE["command"][2]
    known_there = b"".join(part for found, part in fields_of(value) if found < 20)
    assert known_there == WHOLE["command-of-the-original"][2]


def test_a_reader_of_the_original_line_finds_nothing_but_its_own_numbers_in_an_announcement() -> None:
    known_there = [found for found, _ in fields_of(WHOLE["discovery"][2]) if found < 20]
    assert known_there == [1, 2, 3, 3, 4]


@pytest.mark.parametrize("name", ["redrive", "suspend", "result"])
def test_a_message_that_the_original_does_not_have_has_a_type_of_ours(name: str) -> None:
    assert WHOLE[name][1] >= 20


def test_a_result_of_an_unknown_command_is_refused() -> None:
    value = WHOLE["result"][2].replace(text(6, "clear"), text(6, "paint"))
    with pytest.raises(MessageCorruptError, match="'paint' is not a command"):
        decode_message(headers_of(21), value)


@pytest.mark.parametrize(("name", "field"), [("discovery", number(27, -1)), ("result", number(8, -1))])
def test_a_negative_number_of_packages_is_refused(name: str, field: bytes) -> None:
    _, kind, value = WHOLE[name]
    with pytest.raises(MessageCorruptError, match="-1 is not a number of packages"):
        decode_message(headers_of(kind), value + field)


def test_a_command_without_a_known_command_is_refused() -> None:
    with pytest.raises(MessageCorruptError, match="no command"):
        decode_message(headers_of(4), text(1, SLING_ID) + text(2, "edge-1"))


def test_a_length_of_two_gigabytes_is_refused_without_taking_them() -> None:
    with pytest.raises(MessageCorruptError):
        decode_package(varint(6 << 3 | 2) + varint(2**31 - 1) + b"x")


def test_deep_nesting_is_refused() -> None:
    nested = b""
    for _ in range(500):
        nested = varint(900 << 3 | 3) + nested + varint(900 << 3 | 4)  # groups within groups, the only way to nest
    with pytest.raises(MessageCorruptError):
        decode_package(nested)


@settings(deadline=None, max_examples=examples(200))
@given(kind=st.sampled_from([1, 2, 3, 4, 5, 20, 21]), value=st.binary(max_size=120))
def test_random_bytes_are_a_message_or_refused(kind: int, value: bytes) -> None:
    try:
        message = decode_message(headers_of(kind), value)
    except UntrustedInputError:
        return
    record_headers, again = encode_message(message)
    assert decode_message(record_headers, again) == message


SHORT = st.text(st.characters(codec="utf-8"), max_size=12)
PATHS = st.lists(st.sampled_from(["/", "/a", "/a/b", "/ä ö/x", "/jcr:content"]).map(NodePath), max_size=3).map(tuple)


@settings(deadline=None, max_examples=examples(100))
@given(
    message=st.builds(
        PackageMessage,
        SHORT.map(SlingId),
        SHORT.map(PackageId),
        st.sampled_from(Action),
        SHORT,
        st.one_of(st.none(), SHORT.filter(bool).map(AgentName)),
        st.integers(0, 2**63 - 1),
        st.one_of(st.none(), st.binary(max_size=50)),
        st.one_of(st.none(), SHORT.filter(bool)),
        PATHS,
        PATHS,
        st.one_of(st.none(), SHORT.filter(bool)),
        st.one_of(st.none(), SHORT.filter(bool).map(RequestId)),
        st.one_of(st.none(), st.binary(min_size=32, max_size=32)),
        st.one_of(st.none(), st.binary(min_size=32, max_size=32)),
        st.one_of(st.none(), st.integers(1, 253_402_300_799_999)),
        st.lists(
            st.builds(
                lambda digest, length: Binary(digest=digest, length_bytes=length),
                st.binary(min_size=32, max_size=32),
                st.integers(0, 2**63 - 1),
            ),
            max_size=2,
        ).map(tuple),
        st.lists(SHORT, max_size=2).map(tuple),
        st.one_of(st.none(), SHORT.filter(bool)),
        st.one_of(
            st.none(),
            st.integers(0, 2**62).flatmap(
                lambda sequence: st.integers(sequence + 1, 2**63 - 1).map(
                    lambda total: BulkPart(BuildId("build-1"), sequence, total)
                )
            ),
        ),
    )
)
def test_every_package_message_comes_back(message: PackageMessage) -> None:
    assert decode_package(encode_package(message)) == message

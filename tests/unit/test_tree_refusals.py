"""What no writer of `tree` packages makes is refused, by both ways to read, with what is wrong and where."""

from __future__ import annotations

import io

import pytest
from mailboat.config.document import LimitsConfig
from mailboat.errors import (
    LimitExceededError,
    MailboatError,
    PackageCorruptError,
    PathRefusedError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
)
from mailboat.model.namespaces import MAX_NAMESPACES
from mailboat.wire.tree_records import MAX_RECORD_BYTES, PIECE_BYTES
from support.handmade import data, number, text, varint
from support.handmade_trees import (
    CODEC,
    FOLDER,
    LIMITS,
    READERS,
    ancestor,
    header,
    large_file,
    large_files,
    namespace,
    node,
    package,
    piece,
    read_as_stream,
    read_at_once,
    read_together,
)

BOTH = pytest.mark.parametrize("read", READERS)

FULL = b"x" * PIECE_BYTES
LATE_LENGTH = b"\x12" + varint(2**31 - 1)

REFUSED: dict[str, tuple[bytes, type[MailboatError], str]] = {
    "nothing": (b"", PackageCorruptError, "header"),
    "no header": (package(node("/c")), PackageCorruptError, "header"),
    "a header of no version": (package(data(1, data(2, text(1, "/c")))), PackageCorruptError, "version"),
    "a later version": (package(header(version=5)), UnknownRequiredFeatureError, "version 5"),
    "a namespace in version 1": (
        package(header(), node("/c"), namespace("a", "urn:a")),
        PackageCorruptError,
        "version 1 has a namespace",
    ),
    "namespaces out of order": (
        package(header(version=2), namespace("b", "urn:b"), namespace("a", "urn:a")),
        PackageCorruptError,
        "'a' are out of order",
    ),
    "a namespace twice": (
        package(header(version=2), namespace("a", "urn:a"), namespace("a", "urn:a")),
        PackageCorruptError,
        "'a' are out of order or repeated",
    ),
    "a node behind a namespace": (
        package(header(version=2), namespace("a", "urn:a"), node("/c")),
        PackageCorruptError,
        "after the namespaces|out of order",
    ),
    "a prefix that can't be": (
        package(header(version=2), namespace('a"', "urn:a")),
        PackageCorruptError,
        "not a prefix",
    ),
    "a URI that can't be": (
        package(header(version=2), namespace("a", "urn: a")),
        PackageCorruptError,
        "'urn: a' is not the URI",
    ),
    "too many namespaces": (
        package(header(version=2), *[namespace("a", f"urn:{number:04}") for number in range(MAX_NAMESPACES + 1)]),
        LimitExceededError,
        "1000 namespaces|1001 namespaces",
    ),
    "a later version with fields of its own": (
        package(data(1, number(1, 9) + text(77, "x"))),
        UnknownRequiredFeatureError,
        "version 9",
    ),
    "no filter": (package(data(1, number(1, 1))), PackageCorruptError, "filter"),
    "a root that can't be": (package(header(text(1, "/../etc"))), PathRefusedError, "etc"),
    "an unknown mode": (package(header(text(1, "/c") + data(3, text(3, "destroy")))), PackageCorruptError, "destroy"),
    "mode merge in version 3": (
        package(header(text(1, "/c") + data(3, text(3, "merge")), version=3)),
        PackageCorruptError,
        "version 3 has the mode 'merge'",
    ),
    "an inner node in version 3": (
        package(header(version=3), node("/c"), data(5, text(1, "/c/d") + data(2, FOLDER)), count=2),
        PackageCorruptError,
        "version 3 has an inner node",
    ),
    "an inner node of the header in version 3": (
        package(header(ancestors=ancestor("/") + data(4, b"\x00"), version=3)),
        PackageCorruptError,
        "above covered ones",
    ),
    "an inner node that the header lacks": (
        package(header(ancestors=ancestor("/") + data(4, b"\x01"), version=4)),
        PackageCorruptError,
        "above covered ones",
    ),
    "inner nodes of the header out of order": (
        package(header(ancestors=ancestor("/") + data(4, b"\x00\x00"), version=4)),
        PackageCorruptError,
        "above covered ones",
    ),
    "rules without a mode": (package(header(text(1, "/c") + data(3, b""))), PackageCorruptError, "mode"),
    "an expression that is none": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "(")) + text(3, "replace")))),
        PackageCorruptError,
        "expression",
    ),
    "an expression that never ends": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "(a*)*b")) + text(3, "replace")))),
        LimitExceededError,
        "expression",
    ),
    "an expression that is too long": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "a" * 2000)) + text(3, "replace")))),
        LimitExceededError,
        "2000",
    ),
    "too many rules": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "a")) * 10_001 + text(3, "replace")))),
        LimitExceededError,
        "rules",
    ),
    "too many roots": (package(header(*([text(1, "/c")] * 10_001))), LimitExceededError, "roots"),
    "an unknown field in the header": (
        package(data(1, number(1, 1) + data(2, text(1, "/c")) + text(9, "x"))),
        PackageCorruptError,
        "unknown",
    ),
    "an ancestor below a root that rules leave covered": (
        package(
            header(text(1, "/c") + data(3, data(1, text(2, "/c/y")) + text(3, "replace")), ancestors=ancestor("/c/x"))
        ),
        PackageCorruptError,
        "ancestor",
    ),
    "an ancestor that is covered": (package(header(ancestors=ancestor("/c/x"))), PackageCorruptError, "ancestor"),
    "an ancestor beside the root": (package(header(ancestors=ancestor("/d"))), PackageCorruptError, "ancestor"),
    "an ancestor that is the root": (package(header(ancestors=ancestor("/c"))), PackageCorruptError, "ancestor"),
    "ancestors out of order": (
        package(header(text(1, "/a/b/c"), ancestors=ancestor("/a/b") + ancestor("/a"))),
        PackageCorruptError,
        "twice, or after",
    ),
    "a node that is not covered": (package(header(), node("/d")), PackageCorruptError, "does not cover"),
    "a node beside the root with its name as a start": (package(header(), node("/cc")), PackageCorruptError, "cover"),
    "a node below a path that is not deep": (
        package(header(text(1, "/c") + number(2, 1)), node("/c"), node("/c/d")),
        PackageCorruptError,
        "does not cover",
    ),
    "a node that the rules exclude": (
        package(header(text(1, "/c") + data(3, data(1, text(2, "/c/x")) + text(3, "replace"))), node("/c/x")),
        PackageCorruptError,
        "does not cover",
    ),
    "a node without a path": (package(header(), data(2, data(2, FOLDER))), PathRefusedError, "''"),
    "a node without a body": (package(header(), data(2, text(1, "/c"))), PackageCorruptError, "not a name"),
    "a node with two paths": (
        package(header(), data(2, text(1, "/c/x") + text(1, "/c") + data(2, FOLDER))),
        PackageCorruptError,
        "form",
    ),
    "a node whose body is first": (
        package(header(), data(2, data(2, FOLDER) + text(1, "/c"))),
        PackageCorruptError,
        "form",
    ),
    "a node with an unknown field": (
        package(header(), data(2, text(1, "/c") + data(2, FOLDER) + number(3, 1))),
        PackageCorruptError,
        "unknown",
    ),
    "a body with an unknown field": (
        package(header(), node("/c", FOLDER + number(9, 1))),
        PackageCorruptError,
        "unknown",
    ),
    "a node twice": (package(header(), node("/c"), node("/c")), PackageCorruptError, "twice"),
    "a node twice with others between": (
        package(header(), node("/c/a"), node("/c/b"), node("/c/a")),
        PackageCorruptError,
        "twice, or after its subtree",
    ),
    "a parent after its child": (
        package(header(), node("/c/a/b"), node("/c/a")),
        PackageCorruptError,
        "after its desc",
    ),
    "a subtree in two parts": (
        package(header(), node("/c"), node("/c/a"), node("/c/a/1"), node("/c/b"), node("/c/a/2")),
        PackageCorruptError,
        "subtree was left",
    ),
    "the root of all after others": (
        package(header(text(1, "/")), node("/a"), node("/")),
        PackageCorruptError,
        "twice, or after",
    ),
    "a path that leads out": (package(header(), node("/c/../../etc/passwd")), PathRefusedError, "not allowed"),
    "a path with a NUL": (package(header(), node("/c/a\x00b")), PathRefusedError, "control"),
    "a path that is too long": (package(header(), node("/c" + "/a" * 3000)), PathRefusedError, "deep"),
    "a path that is not UTF-8": (
        package(header(), data(2, data(1, b"/c/\xff") + data(2, FOLDER))),
        PackageCorruptError,
        "UTF-8|Error parsing",
    ),
    "no trailer": (header() + node("/c"), PackageCorruptError, "trailer"),
    "a wrong count": (package(header(), node("/c"), count=2), PackageCorruptError, "trailer"),
    "a wrong count of many": (package(header(), node("/c"), count=300), PackageCorruptError, "trailer"),
    "a wrong digest": (package(header(), node("/c"))[:-1] + b"\x00", PackageCorruptError, "digest"),
    "a trailer without a digest": (header() + node("/c") + data(15, number(1, 1)), PackageCorruptError, "trailer"),
    "a trailer with a short digest": (
        header() + node("/c") + data(15, number(1, 1) + data(2, bytes(31))),
        PackageCorruptError,
        "trailer",
    ),
    "something after the trailer": (package(header(), node("/c")) + node("/c/a"), PackageCorruptError, "trailer|order"),
    "two trailers": (package(package(header(), node("/c")), count=1), PackageCorruptError, "trailer|order"),
    "two headers": (package(header(), header(), node("/c")), PackageCorruptError, "header|order"),
    "a header after a node": (package(header(), node("/c"), header()), PackageCorruptError, "header|order"),
    "an unknown record": (package(header(), node("/c"), data(6, b"x")), PackageCorruptError, "unknown"),
    "a group": (package(header(), b"\x13\x14"), PackageCorruptError, "unknown|not a tree"),
    "a length in too many bytes": (
        package(header(), b"\x12\x96\x80\x00" + node("/c")[2:]),
        PackageCorruptError,
        "padded|form|not a tree",
    ),
    "pieces without a node": (package(header(), piece(b"x")), PackageCorruptError, "without a node"),
    "pieces before a node that does not name them": (
        package(header(), piece(b"x"), node("/c")),
        PackageCorruptError,
        "name it",
    ),
    "pieces that are not what is named": (
        package(header(), piece(b"x"), node("/c", large_file(b"y"))),
        PackageCorruptError,
        "name it",
    ),
    "a node before the last piece": (
        package(header(), piece(FULL, is_last=False), node("/c", large_file(FULL))),
        PackageCorruptError,
        "last piece",
    ),
    "pieces without an end": (package(header(), piece(FULL, is_last=False)), PackageCorruptError, "without a node"),
    "a short piece that is not the last": (
        package(header(), piece(b"x", is_last=False), piece(b"y"), node("/c", large_file(b"xy"))),
        PackageCorruptError,
        "1 bytes",
    ),
    "an empty piece": (package(header(), piece(b""), node("/c", large_file(b""))), PackageCorruptError, "0 bytes"),
    "a piece that is too large": (package(header(), piece(FULL + b"x")), PackageCorruptError, "bytes"),
    "a piece that says it is not the last": (
        package(header(), data(3, data(1, FULL) + number(2, 0))),
        PackageCorruptError,
        "is_last false",
    ),
    "a record of two gigabytes": (header() + LATE_LENGTH, UntrustedInputError, "limit|not a tree"),
    "a length that never ends": (header() + b"\x12" + b"\xff" * 20, PackageCorruptError, "length|not a tree"),
    "noise": (b"\x0a\x02\xff\xff", PackageCorruptError, "not valid|not a tree"),
}


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_writer_makes_is_refused(name: str, read) -> None:  # type: ignore[no-untyped-def]
    payload, error, reason = REFUSED[name]
    with pytest.raises(error, match=reason):
        read(payload)


@BOTH
@pytest.mark.parametrize("names", [("A", "a"), ("A/x", "a/y"), ("\u00e4", "a\u0308")])
def test_names_that_differ_in_case_or_form_are_refused_when_told_so(read, names) -> None:  # type: ignore[no-untyped-def]
    payload = package(header(), *(node(f"/c/{name}") for name in names))
    with pytest.raises(LimitExceededError, match="differ in case or Unicode form"):
        read(payload, LimitsConfig(refuse_collisions=True))


@BOTH
def test_a_message_names_the_path_and_the_limit(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PackageCorruptError) as corrupt:
        read(package(header(), node("/c"), node("/c/b", text(9, "x"))))
    assert corrupt.value.where.get("path", corrupt.value.where.get("record", "whole")) in {"/c/b", 3, "whole"}
    with pytest.raises(LimitExceededError) as exceeded:
        read(package(header(), node("/c"), node("/c/b", large_file(b"x" * 11))), LimitsConfig(max_entry_bytes=10))
    assert exceeded.value.where == {"entry": "/c/b", "limit": 10}
    assert exceeded.value.message == "a binary has more bytes than limits.max_entry_bytes"


def test_a_record_beyond_the_limit_is_refused_before_it_is_read() -> None:
    huge = header() + b"\x12" + varint(MAX_RECORD_BYTES + 1)
    stream = io.BytesIO(huge + bytes(1000))
    reader = CODEC.open(stream, LIMITS, None)
    with pytest.raises(LimitExceededError, match=str(MAX_RECORD_BYTES)):
        list(reader.change().records)


def test_pieces_beyond_the_limit_are_refused_while_they_come() -> None:
    pieces = [piece(FULL, is_last=False)] * 5
    with pytest.raises(LimitExceededError) as caught:
        read_as_stream(package(header(), *pieces), LimitsConfig(max_entry_bytes=2 * PIECE_BYTES))
    assert caught.value.where["entry"] == "record 4"
    with pytest.raises(LimitExceededError):
        read_as_stream(package(header(), *pieces), LimitsConfig(max_total_bytes=2 * PIECE_BYTES))


def test_binaries_that_no_node_could_name_are_refused_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.packages.tree_reader._MAX_CARRIED", 3)
    pieces = [piece(b"%d" % count) for count in range(4)]
    read_as_stream(package(header(), *pieces[:3], node("/c", large_files(b"0", b"1", b"2"))))
    with pytest.raises(PackageCorruptError, match="more binaries travel before a node") as caught:
        read_as_stream(package(header(), *pieces))
    assert caught.value.where["record"] == 5


def test_binaries_elsewhere_count_as_bytes_of_the_package() -> None:
    payload = package(header(), node("/c", large_file(b"x" * 5000)))
    for read in (read_at_once, read_as_stream):
        with pytest.raises(LimitExceededError, match="4000"):
            read(payload, LimitsConfig(max_total_bytes=4000))


@BOTH
def test_a_caller_that_knows_the_bytes_spares_their_digest_but_nothing_else(read) -> None:  # type: ignore[no-untyped-def]
    sound = package(header(), node("/c"))
    wrong = sound[:-1] + bytes([sound[-1] ^ 1])
    assert read(wrong, are_bytes_checked=True) == read(sound)
    with pytest.raises(PackageCorruptError, match="digest"):
        read(wrong)
    with pytest.raises(PackageCorruptError, match="trailer"):
        read(package(header(), node("/c"), count=3), are_bytes_checked=True)
    with pytest.raises(PackageCorruptError, match="twice"):
        read(package(header(), node("/c"), node("/c")), are_bytes_checked=True)


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"a wrong digest"}))  # the caller compares the bytes
def test_what_is_refused_alone_is_not_read_together(name: str) -> None:
    assert read_together(REFUSED[name][0]) is None

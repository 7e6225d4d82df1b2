"""The short way to read a package's header: it says what the long way says, or leaves the header to it."""

from __future__ import annotations

import hashlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.config.document import LimitsConfig
from mailboat.errors import UntrustedInputError
from mailboat.model.filters import filter_for
from mailboat.model.nodes import NodeRecord
from mailboat.model.paths import NodePath
from mailboat.packages.tree import MAX_REMEMBERED_BYTES, TreeCodec, TreeHeaders
from mailboat.testing.examples import examples
from mailboat.testing.trees import a_folder, large_binary
from mailboat.wire.node_bodies import encode_node
from support.handmade import data, number, text

CODEC = TreeCodec()
FOLDER = data(1, text(1, "nt:folder"))
FILE = data(1, text(1, "nt:file") + text(6, "jcr:data")) + data(3, data(1, b"small"))


def package(filters: bytes, *ancestors: str, body: bytes = FOLDER) -> bytes:
    """A package without nodes."""
    above = b"".join(data(3, text(1, path) + data(2, body)) for path in ancestors)
    before = data(1, number(1, 1) + filters + above)
    return before + data(15, number(1, 0) + data(2, hashlib.sha256(before).digest()))


def deep(*roots: str) -> bytes:
    return b"".join(data(2, text(1, root)) for root in roots)


def outcome(payload: bytes, *, at_once: bool) -> object:
    """The filter and the nodes above, or why it was refused."""
    try:
        if at_once:
            change = CODEC.read_bytes(payload, LimitsConfig(), None)
        else:
            change = CODEC.open(io.BytesIO(payload), LimitsConfig(), None).change()
        return change.filter, list(change.records)
    except UntrustedInputError as error:
        return type(error)


PATHS = st.sampled_from(["/", "/a", "/ab", "/a/b", "/a/b/c", "/a/", "a", "/a/\x00", "/..", "/ä/b", "/ä", "/a" * 60])


@settings(deadline=None, max_examples=examples(300))
@given(
    st.lists(PATHS, min_size=1, max_size=2),
    st.lists(PATHS, max_size=3),
    st.booleans(),
    st.sampled_from([FOLDER, FILE, b""]),
)
def test_both_ways_agree_about_every_header(roots: list[str], above: list[str], is_shallow: bool, body: bytes) -> None:
    filters = data(2, text(1, roots[0]) + number(2, 1)) if is_shallow else deep(*roots)
    payload = package(filters, *above, body=body)
    long_way = outcome(payload, at_once=False)
    assert outcome(payload, at_once=True) == long_way
    assert outcome(payload, at_once=True) == long_way  # now from memory


@pytest.mark.parametrize("length", [1, 96, 97, 125, 126, 127, 128, 254, 256])
def test_roots_of_every_length_are_read(length: int) -> None:
    root = "/" + "r" * (length - 1)
    assert outcome(package(deep(root)), at_once=True) == (filter_for([], [NodePath(root)]), [])


def test_packages_of_siblings_share_the_nodes_above_them() -> None:
    headers = TreeHeaders()
    first, second = (headers.read(package(deep(f"/a/b/{name}"), "/a", "/a/b")) for name in "xy")
    assert first is not None
    assert second is not None
    assert first.ancestors is second.ancestors
    assert first.ancestors == [encode_node(a_folder("/a")), encode_node(a_folder("/a/b"))]


def test_nodes_above_that_are_not_above_this_root_are_left_to_the_long_way() -> None:
    headers = TreeHeaders()
    assert headers.read(package(deep("/a/b/c"), "/a", "/a/b")) is not None
    assert headers.read(package(deep("/a/bc"), "/a", "/a/b")) is None


def test_many_nodes_above_are_not_remembered() -> None:
    body = data(1, text(1, "nt:folder")) + data(
        4, b"".join(text(1, f"{item:0255}") for item in range(MAX_REMEMBERED_BYTES // 255))
    )
    assert TreeHeaders().read(package(deep("/a/b"), "/a", body=body)) is None


def test_nodes_above_whose_binaries_are_elsewhere_are_opened_by_each_package() -> None:
    content = large_binary(b"above")
    with content.open() as stream:
        digest = hashlib.sha256(stream.read()).digest()
    named = data(1, digest) + data(2, b"\x81\x01")
    body = data(1, text(1, "nt:file") + text(6, "jcr:data")) + data(3, named)
    payload = package(deep("/a/b"), "/a", body=body)
    assert TreeHeaders().read(payload) is None
    opened: list[bytes] = []

    def open_blob(found: bytes) -> io.BytesIO:
        opened.append(found)
        return io.BytesIO()

    (record,) = CODEC.read_bytes(payload, LimitsConfig(), open_blob).records
    assert isinstance(record, NodeRecord)
    record.binaries[0].open().close()
    assert opened == [digest]

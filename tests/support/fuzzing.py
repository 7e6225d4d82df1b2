"""What is fuzzed: each target takes any bytes and raises only when the code is wrong.

Input that is refused by an error of its kind is right, and so is input that is taken; then what was taken must hold
what it promises. `tests/fuzz/` runs them under hypothesis in the suite, and under a coverage-guided fuzzer by hand.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from mailboat.config.document import LimitsConfig
from mailboat.errors import MailboatError, UnknownRequiredFeatureError, UntrustedInputError
from mailboat.model.changes import TreeChange
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath, parse_path
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filter_xml import parse_filter
from mailboat.packages.port import PackageCodec, PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.testing.trees import a_file, a_folder, a_full_node, a_page
from mailboat.wire.event_documents import decode_event, encode_event
from mailboat.wire.headers import headers_for
from mailboat.wire.messages import decode_message, encode_message
from mailboat.wire.node_bodies import body_digest, decode_node, encode_node

Target = Callable[[bytes], None]

LIMITS: Final = LimitsConfig(max_entries=1000, max_entry_bytes=1_000_000, max_total_bytes=4_000_000)
REFUSALS: Final = (UntrustedInputError, UnknownRequiredFeatureError)
PATH: Final = NodePath("/content/a")
DOCUMENT: Final = (
    b'<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" jcr:primaryType="nt:unstructured" a="{Long}[1,2]">'
    b'<b jcr:primaryType="nt:unstructured" c="\\[x\\u0041"/></jcr:root>'
)
FILTER_XML: Final = b'<workspaceFilter version="1.0"><filter root="/content"/></workspaceFilter>'


def fuzz_messages(data: bytes) -> None:
    """The first byte chooses the type; what is decoded is encoded and decoded to the same."""
    try:
        message = decode_message(headers_for(data[0] % 22 if data else 0), data[1:])
    except REFUSALS:
        return
    headers, value = encode_message(message)
    if decode_message(headers, value) != message:
        raise AssertionError(f"{message!r} does not come back")


def fuzz_events(data: bytes) -> None:
    """The JSON of the event topic."""
    try:
        event = decode_event((), data)
    except REFUSALS:
        return
    if decode_event(*encode_event(event)) != event:
        raise AssertionError(f"{event!r} does not come back")


def fuzz_bodies(data: bytes) -> None:
    """A node's body: what is accepted can be encoded, and decoded again to the same node."""
    try:
        node = decode_node(PATH, data)
    except REFUSALS:
        return
    if decode_node(PATH, encode_node(node).body) != node:
        raise AssertionError(f"{node!r} does not come back")


def fuzz_tree(data: bytes) -> None:
    """A `tree` package: both ways to read agree, and every record that is accepted is one that can be read for ever."""
    at_once = _outcome(lambda: TreeCodec().read_bytes(data, LIMITS, None, are_bytes_checked=True))
    as_stream = _outcome(lambda: TreeCodec().open(io.BytesIO(data), LIMITS, None, are_bytes_checked=True).change())
    if at_once != as_stream:
        raise AssertionError(f"at once {at_once!r}, as a stream {as_stream!r}")
    if at_once is not None:
        _check_records(at_once)


def fuzz_filevault(data: bytes) -> None:
    """A FileVault zip."""
    change = _outcome(lambda: FilevaultCodec().read_bytes(data, LIMITS, None))
    if change is not None:
        _check_records(change)


def fuzz_docview(data: bytes) -> None:
    """A DocView document within a sound zip."""
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", FILTER_XML)
        archive.writestr("jcr_root/content/.content.xml", data)
    fuzz_filevault(into.getvalue())


def fuzz_filters(data: bytes) -> None:
    """A `filter.xml`, and a path asked of it."""
    try:
        found = parse_filter(data)
    except REFUSALS:
        return
    found.covers(NodePath("/content/" + "a" * 200))


def fuzz_paths(data: bytes) -> None:
    """A path: what is accepted is absolute, has no way up, and is encodable."""
    try:
        path = parse_path(data.decode(errors="surrogateescape"))
    except REFUSALS:
        return
    if {"", ".", ".."} & set(path[1:].split("/")) and path != "/":
        raise AssertionError(f"{path!r} was accepted")
    path.encode()


def _outcome(read: Callable[[], TreeChange]) -> TreeChange | None:
    try:
        change = read()
        return change._replace(records=list(change.records))
    except REFUSALS:
        return None
    except MailboatError as error:
        raise AssertionError(f"{error!r} is no refusal") from error


def _check_records(change: TreeChange) -> None:
    for record in change.records:
        node = decode_node(record.path, record.body)
        again = encode_node(node)
        if (again.path, again.body) != (record.path, record.body):
            raise AssertionError(f"{node!r} has another body than {record.body!r}")
        body_digest(record.path, record.body)


def _sample() -> list[Node]:
    return [
        a_folder("/content"),
        a_file("/content/a.txt"),
        a_full_node("/content/b"),
        a_page("/content/c", ("x",), title="Hi"),
    ]


def _package(codec: PackageCodec, *, is_self_contained: bool = False) -> bytes:
    into = io.BytesIO()
    codec.write(
        PackageContents(filter_for([], [NodePath("/content")]), _sample(), is_self_contained=is_self_contained), into
    )
    return into.getvalue()


def seeds(name: str) -> list[bytes]:
    """Sound inputs of a target, to start from."""
    bodies = [encode_node(node).body for node in _sample()]
    return {
        "messages": [b"\x02\x0a\x01s\x1a\x01p\x20\x00\x5a\x04tree", b"\x03\x0a\x01s\x12\x01a\x1a\x01b\x20\x01\x28\x02"],
        "events": [b'{"pubAgentName":"a","packageId":"p","deepPaths":[],"paths":["/a"],"offset":1}'],
        "bodies": bodies,
        "tree": [_package(TreeCodec())],
        "filevault": [_package(FilevaultCodec(), is_self_contained=True)],
        "docview": [DOCUMENT],
        "filters": [FILTER_XML.replace(b"/>", b'><include pattern="/content(/.*)?"/></filter>', 1)],
        "paths": [b"/content/a/b.c", b"/a/../b"],
    }[name]


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "messages": fuzz_messages,
        "events": fuzz_events,
        "bodies": fuzz_bodies,
        "tree": fuzz_tree,
        "filevault": fuzz_filevault,
        "docview": fuzz_docview,
        "filters": fuzz_filters,
        "paths": fuzz_paths,
    }
)

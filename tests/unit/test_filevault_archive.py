"""The zip reader believes nothing: each hostile archive is refused with a message that names the entry and the rule."""

from __future__ import annotations

import io
import stat
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mailboat.config.document import LimitsConfig
from mailboat.errors import (
    LimitExceededError,
    PackageCorruptError,
    PathRefusedError,
    SourceChangedError,
    UntrustedInputError,
)
from mailboat.model.filters import filter_for
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import MAX_DEPTH, MAX_PATH_BYTES, NodePath
from mailboat.packages.filevault.archive_reader import MAX_ENTRY_DEPTH, MAX_ENTRY_NAME_BYTES, ZipArchive
from mailboat.packages.filevault.archive_tree import content_root
from mailboat.packages.filevault.archive_writer import SPOOL_BYTES, ArchiveWriter, PackedContent
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.filter_xml import FILTER_XML
from mailboat.packages.filevault.inspection import problems_of
from mailboat.packages.filevault.properties import PROPERTIES_XML
from mailboat.packages.port import PackageContents
from mailboat.testing.trees import large_binary

LIMITS = LimitsConfig()
LOOSE = LimitsConfig(max_ratio=1e6)
FILTER = b'<workspaceFilter version="1.0"><filter root="/content"/></workspaceFilter>'
CENTRAL_SIGNATURE = b"PK\x01\x02"


def opened(payload: bytes, limits: LimitsConfig = LIMITS) -> ZipArchive:
    return ZipArchive(io.BytesIO(payload), len(payload), limits)


def read_all(payload: bytes, limits: LimitsConfig = LIMITS) -> dict[str, bytes]:
    archive = opened(payload, limits)
    return {name: archive.read(entry) for name, entry in archive.entries.items()}


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    into = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(into, "w", method) as archive:
        warnings.simplefilter("ignore")  # zipfile warns of duplicate names
        for name, content in entries:
            archive.writestr(name, content)
    return into.getvalue()


def renamed(payload: bytes, old: str, new: str) -> bytes:
    """Both headers of an entry under another name of the same length."""
    assert len(old.encode()) == len(new.encode())
    return payload.replace(old.encode(), new.encode())


def patched(payload: bytes, entry: str, offset: int, value: bytes) -> bytes:
    """Bytes of an entry's central header replaced."""
    at = payload.index(CENTRAL_SIGNATURE, 0)
    while payload[at + 46 : at + 46 + len(entry)] != entry.encode():
        at = payload.index(CENTRAL_SIGNATURE, at + 4)
    return payload[: at + offset] + value + payload[at + offset + len(value) :]


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


PLAIN = zipped(("jcr_root/content/a.txt", b"hello" * 20), ("jcr_root/content/b.txt", b"world" * 20))


# ---------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        "jcr_root/../../etc/x",
        "../jcr_root/content/x",
        "jcr_root/./content/xxx",
        "/jcr_root/content/xxx",
        "jcr_root//content/xxx",
        "jcr_root\\content\\xxx",
        "C:/jcr_root/content/x",
        "jcr_root/content/a\x01b",
        "jcr_root/content/a\x7fb",
        "jcr_root/content/..",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    harmless = "jcr_root/content/a.txt"[: len(name)].ljust(len(name), "x")
    with pytest.raises(PathRefusedError, match="is not a name that an entry may have"):
        opened(renamed(zipped((harmless, b"")), harmless, name))


def test_a_nul_in_a_name_is_refused() -> None:
    with pytest.raises(PathRefusedError):
        opened(renamed(zipped(("jcr_root/content/aXb", b"")), "aXb", "a\0b"))


def test_a_name_that_is_not_utf8_is_refused() -> None:
    payload = renamed(zipped(("jcr_root/content/aXb", b"")), "aXb", "aYb").replace(b"aYb", b"a\xffb")
    with pytest.raises(PathRefusedError, match="not in UTF-8"):
        opened(payload)


@pytest.mark.parametrize("end", ["/x", "/"])
def test_a_name_that_is_too_deep_is_refused_with_its_depth_and_the_limit(end: str) -> None:
    depth = 2000 + (end != "/")
    with pytest.raises(PathRefusedError, match=f"is {depth} names deep") as caught:
        opened(zipped(("/".join(["a"] * 2000) + end, b"")))
    assert caught.value.where["limit"] == MAX_ENTRY_DEPTH
    assert caught.value.where["entry"] == "a/" * 100 + "…"


def test_a_name_that_is_too_long_is_refused_with_its_length_and_the_limit() -> None:
    assert len(opened(zipped(("a" * MAX_ENTRY_NAME_BYTES, b""))).entries) == 1
    with pytest.raises(PathRefusedError, match=f"has {MAX_ENTRY_NAME_BYTES + 1} bytes") as caught:
        opened(zipped(("a" * (MAX_ENTRY_NAME_BYTES + 1), b"")))
    assert caught.value.where["limit"] == MAX_ENTRY_NAME_BYTES
    assert caught.value.where["entry"] == "a" * 200 + "…"


def test_the_longest_path_with_the_longest_name_of_a_property_is_written_and_read() -> None:
    """Every byte of the path is three in the zip, `.dir` is doubled, and a property may have 4 KiB by itself."""
    path = NodePath(("/" + "|" * 251 + ".dir") * (MAX_PATH_BYTES // 256))
    kept = Property("\U0001f600" * 1024, (Binary(b"x"),), PropertyType.BINARY)
    into = io.BytesIO()
    node = Node(path, "nt:unstructured", (), (kept,))
    FilevaultCodec().write(PackageContents(filter_for((), [path]), [node]), into)
    assert max(map(len, zipfile.ZipFile(into).namelist())) > 3 * MAX_PATH_BYTES
    (record,) = FilevaultCodec().read_bytes(into.getvalue(), LIMITS, None).records
    assert record.path == path


def test_long_names_of_many_folders_take_no_more_memory_than_a_few_times_the_zip() -> None:
    folders = "/".join(["b" * 130] * (MAX_DEPTH - 2))
    payload = zipped(*((f"jcr_root/content/{number}/{folders}/x", b"") for number in range(20)))
    archive = opened(payload)
    tracemalloc.start()
    try:
        content_root(archive)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(payload)


def test_what_lies_in_the_deepest_node_is_read() -> None:
    folder = "jcr_root/content" + "/a" * (MAX_DEPTH - 1)
    names = [f"{folder}/.vlt", f"{folder}/.svn/text-base/x.svn-base"]
    payload = zipped((FILTER_XML, FILTER), *((name, b"") for name in names))
    *_, last = FilevaultCodec().read_bytes(payload, LIMITS, None).records
    assert last.path.count("/") == MAX_DEPTH


def test_a_node_deeper_than_a_path_may_be_is_refused() -> None:
    payload = zipped((FILTER_XML, FILTER), ("jcr_root/content" + "/a" * MAX_DEPTH, b""))
    with pytest.raises(PathRefusedError, match=f"{MAX_DEPTH + 1} names deep, the limit is {MAX_DEPTH}"):
        FilevaultCodec().read_bytes(payload, LIMITS, None)


def test_a_link_is_refused() -> None:
    with pytest.raises(PathRefusedError, match="a link") as caught:
        opened(zipped((link("jcr_root/content/link"), b"/etc/passwd")))
    assert caught.value.where["entry"] == "jcr_root/content/link"


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(PackageCorruptError, match="two entries have one name") as caught:
        opened(zipped(("jcr_root/a", b"1"), ("jcr_root/a", b"2")))
    assert caught.value.where["entry"] == "jcr_root/a"


def test_a_directory_may_have_two_entries() -> None:
    found = opened(zipped(("jcr_root/a/", b""), ("jcr_root/a/b", b"1"), ("jcr_root/a/", b"")))
    assert list(found.entries) == ["jcr_root/a/", "jcr_root/a/b"]
    assert found.read(found.entries["jcr_root/a/b"]) == b"1"
    found.check_names()


@pytest.mark.parametrize(("one", "other"), [("Page.html", "page.html"), ("\u00e4.txt", "a\u0308.txt")])
def test_names_that_a_file_system_could_take_for_one_are_refused(one: str, other: str) -> None:
    payload = zipped((FILTER_XML, FILTER), (f"jcr_root/content/{one}", b"1"), (f"jcr_root/content/{other}", b"2"))
    with pytest.raises(PathRefusedError, match="differ in case or Unicode form only"):
        FilevaultCodec().read_bytes(payload, LimitsConfig(refuse_collisions=True), None)
    assert len(list(FilevaultCodec().read_bytes(payload, LIMITS, None).records)) == 3


def test_a_file_that_is_also_a_directory_is_refused() -> None:
    payload = zipped((FILTER_XML, FILTER), ("jcr_root/content/a", b"1"), ("jcr_root/content/a/b", b"2"))
    with pytest.raises(PackageCorruptError, match="both a file and a directory"):
        FilevaultCodec().read_bytes(payload, LIMITS, None)


# ---------------------------------------------------------------------------------------------------------- limits


def test_too_many_entries_are_refused_before_they_are_looked_at() -> None:
    payload = zipped(*((f"jcr_root/{number}", b"") for number in range(20)))
    with pytest.raises(LimitExceededError, match="has 20 entries") as caught:
        opened(payload, LimitsConfig(max_entries=19))
    assert caught.value.where["limit"] == 19


def test_a_promised_million_entries_are_refused_by_the_end_record_alone() -> None:
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFE, 0xFFFE, 0, 0, 0)
    with pytest.raises(UntrustedInputError):
        opened(end, LimitsConfig(max_entries=0xFFFF))


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (LimitsConfig(max_entry_bytes=99), "an entry has 100 bytes"),
        (LimitsConfig(max_total_bytes=199), "the package unpacks to 200 bytes"),
    ],
)
def test_sizes_beyond_a_limit_are_refused(limits: LimitsConfig, told: str) -> None:
    with pytest.raises(LimitExceededError, match=told):
        opened(PLAIN, limits)


def test_a_flat_bomb_is_refused_by_its_ratio() -> None:
    with pytest.raises(LimitExceededError, match="are packed into") as caught:
        opened(zipped(("jcr_root/content/zeros", bytes(4_000_000))))
    assert caught.value.where["entry"] == "jcr_root/content/zeros"
    assert caught.value.where["limit"] == "200 to 1"


def test_many_small_bombs_are_refused_by_the_ratio_of_all() -> None:
    entries = [(f"jcr_root/content/{number}", bytes(1_000_000)) for number in range(5)]
    with pytest.raises(LimitExceededError) as caught:
        opened(zipped(*entries))
    assert caught.value.where == {"limit": "200 to 1"}


def test_a_nested_bomb_stays_packed() -> None:
    inner = zipped(("zeros", bytes(900_000)))
    payload = zipped((FILTER_XML, FILTER), ("jcr_root/content/inner.zip", inner))
    records = list(FilevaultCodec().read_bytes(payload, LIMITS, None).records)
    assert [record.path for record in records] == ["/content", "/content/inner.zip"]


def test_an_entry_that_unpacks_to_more_than_it_claims_is_refused_without_unpacking_it() -> None:
    payload = zipped(("jcr_root/content/zeros", bytes(500_000)))
    lying = struct.pack("<I", 1000)
    at = payload.index(b"PK\x03\x04")
    payload = patched(payload[: at + 22] + lying + payload[at + 26 :], "jcr_root/content/zeros", 24, lying)
    archive = opened(payload)
    with pytest.raises(PackageCorruptError, match="longer or shorter"):
        archive.read(archive.entries["jcr_root/content/zeros"])
    with pytest.raises(PackageCorruptError), archive.open(archive.entries["jcr_root/content/zeros"]) as stream:
        stream.read()


def first_problem(stream: io.BytesIO) -> None:
    """Raise what `packages verify` lists first."""
    raise problems_of(stream, LOOSE)[0]


@pytest.mark.parametrize("name", [FILTER_XML, PROPERTIES_XML])
@pytest.mark.parametrize("read", [lambda stream: FilevaultCodec().open(stream, LOOSE, None), first_problem])
def test_metadata_beyond_its_limit_is_refused_before_it_is_unpacked(
    name: str, read: Callable[[io.BytesIO], object]
) -> None:
    others = [] if name == FILTER_XML else [(FILTER_XML, FILTER)]
    stream = io.BytesIO(zipped((name, b" " * (16 * 1024 * 1024)), *others))
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceededError, match="a document has 16777216 bytes") as caught:
            read(stream)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.where["entry"] == name
    assert peak < 4 * 1024 * 1024


def test_what_is_packed_into_many_times_its_size_is_not_read_at_once() -> None:
    into, empty_block = io.BytesIO(), b"\x00\x00\x00\xff\xff"
    writer = ArchiveWriter(into)
    last = zlib.compress(FILTER, 9, -zlib.MAX_WBITS)
    for count in (1000, 400_000):
        content = PackedContent(zipfile.ZIP_DEFLATED, empty_block * count + last, zlib.crc32(FILTER), len(FILTER))
        writer.add_packed(f"jcr_root/{count}", content)
    writer.finish()
    archive = opened(into.getvalue())
    assert archive.read(archive.entries["jcr_root/1000"]) == FILTER
    with pytest.raises(PackageCorruptError, match="packed into many times its size"):
        archive.read(archive.entries["jcr_root/400000"])


def test_overlapping_entries_are_refused() -> None:
    second = patched(PLAIN, "jcr_root/content/b.txt", 42, struct.pack("<I", 0))
    with pytest.raises(PackageCorruptError, match="overlaps"):
        opened(second)


# ------------------------------------------------------------------------------------------------------------ lies

HOSTILE: dict[str, Callable[[], bytes]] = {
    "encrypted": lambda: patched(PLAIN, "jcr_root/content/a.txt", 8, b"\x01\x00"),
    "strongly encrypted": lambda: patched(PLAIN, "jcr_root/content/a.txt", 8, b"\x41\x00"),
    "unknown flag": lambda: patched(PLAIN, "jcr_root/content/a.txt", 8, b"\x20\x00"),
    "unknown method": lambda: patched(PLAIN, "jcr_root/content/a.txt", 10, b"\x0c\x00"),
    "another method": lambda: patched(PLAIN, "jcr_root/content/a.txt", 10, b"\x00\x00"),
    "another checksum": lambda: patched(PLAIN, "jcr_root/content/a.txt", 16, b"\x01\x02\x03\x04"),
    "another packed size": lambda: patched(PLAIN, "jcr_root/content/a.txt", 20, struct.pack("<I", 1)),
    "another size": lambda: patched(PLAIN, "jcr_root/content/a.txt", 24, struct.pack("<I", 99)),
    "beyond the end": lambda: patched(PLAIN, "jcr_root/content/b.txt", 42, struct.pack("<I", 10**6)),
    "another disk": lambda: patched(PLAIN, "jcr_root/content/b.txt", 34, b"\x01\x00"),
    "another local name": lambda: PLAIN.replace(b"a.txt", b"c.txt", 1),
    "no local header": lambda: PLAIN.replace(b"PK\x03\x04", b"PK\x03\x05", 1),
    "bytes before": lambda: b"#!/bin/sh\n" + PLAIN,
    "bytes after": lambda: PLAIN + b"\n",
    "cut off": lambda: PLAIN[:-1],
    "empty": lambda: b"",
    "no zip": lambda: b"PK" * 40,
    "wide size without its field": lambda: patched(PLAIN, "jcr_root/content/a.txt", 24, b"\xff" * 4),
    "one more entry": lambda: PLAIN[:-14] + struct.pack("<HH", 3, 3) + PLAIN[-10:],
    "one entry less": lambda: PLAIN[:-14] + struct.pack("<HH", 1, 1) + PLAIN[-10:],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_lie_in_a_header_is_refused(kind: str) -> None:
    with pytest.raises(UntrustedInputError):
        read_all(HOSTILE[kind]())


@given(at=st.integers(0, len(PLAIN) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_changes_no_content(at: int, bit: int) -> None:
    payload = bytearray(PLAIN)
    payload[at] ^= 1 << bit
    try:
        found = read_all(bytes(payload))
    except UntrustedInputError:
        return
    assert found == read_all(PLAIN)


NAMES = st.sampled_from(["a", "b/c", "jcr_root/.content.xml", "jcr_root/\u00e4", "d/", "META-INF/vault/filter.xml"])


@given(
    entries=st.dictionaries(NAMES, st.binary(max_size=60), max_size=4),
    method=st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.binary(min_size=1, max_size=3)), max_size=3),
)
@example(entries={"jcr_root/\u00e4": b""}, method=zipfile.ZIP_STORED, edits=[(7, b"\x00")])
def test_it_agrees_with_zipfile_or_refuses(
    entries: dict[str, bytes], method: int, edits: Sequence[tuple[int, bytes]]
) -> None:
    contents = [(name, b"" if name[-1] == "/" else content) for name, content in entries.items()]
    payload = zipped(*contents, method=method)
    for place, replacement in edits:
        at = place % len(payload)
        payload = payload[:at] + replacement + payload[at + len(replacement) :]
    try:
        found = read_all(payload)
    except UntrustedInputError:
        assert edits
        return
    with zipfile.ZipFile(io.BytesIO(payload)) as theirs:
        assert found == {name: theirs.read(name) for name in theirs.namelist()}


def test_a_utf8_flag_in_one_header_only_is_refused_for_a_name_beyond_ascii() -> None:
    umlaut = zipped(("jcr_root/\u00e4", b""))
    with pytest.raises(PackageCorruptError, match="local header of an entry differs") as caught:
        read_all(umlaut[:7] + b"\x00" + umlaut[8:])
    assert caught.value.where["entry"] == "jcr_root/\u00e4"
    plain = zipped(("jcr_root/a", b"text"))
    assert read_all(plain[:7] + b"\x08" + plain[8:]) == {"jcr_root/a": b"text"}


def test_a_name_in_utf8_needs_no_flag() -> None:
    payload = bytearray(zipped(("jcr_root/\u00e4", b"text")))
    payload[7] = payload[payload.index(b"PK\x01\x02") + 9] = 0
    assert read_all(bytes(payload)) == {"jcr_root/\u00e4": b"text"}


def test_an_entry_that_needs_a_later_version_of_the_format_is_refused() -> None:
    payload = bytearray(zipped(("a", b"text")))
    payload[payload.index(b"PK\x01\x02") + 6] = 64
    with pytest.raises(PackageCorruptError, match="needs a version of the format that is not known: 64"):
        read_all(bytes(payload))


# ------------------------------------------------------------------------------------------------- other writers


class Forward(io.RawIOBase):
    """A stream that can't seek, so that `zipfile` writes sizes behind the data."""

    def __init__(self) -> None:
        super().__init__()
        self.held = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.held += bytes(data)
        return len(data)


@pytest.mark.parametrize("is_wide", [False, True])
def test_sizes_behind_the_data_are_read(is_wide: bool) -> None:
    into = Forward()
    archive = zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED)
    with archive, archive.open("jcr_root/a", "w", force_zip64=is_wide) as entry:
        entry.write(b"hello" * 100)
    assert read_all(into.held) == {"jcr_root/a": b"hello" * 100}


def test_wide_sizes_in_front_of_the_data_are_read() -> None:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive, archive.open("jcr_root/a", "w", force_zip64=True) as entry:
        entry.write(b"hello")
    assert read_all(into.getvalue()) == {"jcr_root/a": b"hello"}


@pytest.mark.costly("more than 65,535 entries need a wide zip")
def test_more_entries_than_a_narrow_zip_can_count_are_written_and_read() -> None:
    into = io.BytesIO()
    writer = ArchiveWriter(into)
    for number in range(70_000):
        writer.add(f"jcr_root/{number}", b"")
    writer.finish()
    assert len(opened(into.getvalue()).entries) == 70_000
    assert len(zipfile.ZipFile(into).namelist()) == 70_000


# ------------------------------------------------------------------------------------------------------- writing


JPEG = b"\xff\xd8\xff\xe0"


@pytest.mark.parametrize("start", [JPEG, b"text"])
def test_large_content_passes_through_in_pieces(start: bytes) -> None:
    into, binary = io.BytesIO(), large_binary(start + b"0123456789", SPOOL_BYTES + 12_345)
    writer = ArchiveWriter(into)
    writer.add_binary("jcr_root/original", binary)
    digest = writer.finish()
    payload = into.getvalue()
    assert digest == Binary(payload).digest
    entry = opened(payload).entries["jcr_root/original"]
    with binary.open() as expected, opened(payload).open(entry) as stream:
        assert stream.read() == expected.read()
    assert (len(payload) < binary.length_bytes) == (start != JPEG)


@pytest.mark.parametrize(
    ("start", "is_packed"),
    [
        (b"\x89PNG\r\n\x1a\n", True),
        (b"RIFF\x00\x00\x00\x00WEBP", True),
        (b"\x00\x00\x00\x20ftypisom", True),
        (b"RIFF\x00\x00\x00\x00WAVE", False),
        (b"\xff\xfea\x00", False),
        (b"%PDF-1.7", False),
    ],
)
def test_content_in_a_compressed_format_is_stored(start: bytes, is_packed: bool) -> None:
    into = io.BytesIO()
    writer = ArchiveWriter(into)
    writer.add_binary("original", Binary(start + bytes(1000)))
    writer.finish()
    assert (zipfile.ZipFile(into).infolist()[0].compress_type == zipfile.ZIP_STORED) == is_packed


@pytest.mark.parametrize("length", [100, SPOOL_BYTES + 1])
@pytest.mark.parametrize("start", [JPEG, b""])
def test_content_that_is_not_what_its_digest_says_is_not_written(start: bytes, length: int) -> None:
    true = large_binary(start + b"true", length)
    false = Binary(digest=true.digest, length_bytes=length, opener=large_binary(start + b"lies", length).open)
    with pytest.raises(SourceChangedError):
        ArchiveWriter(io.BytesIO()).add_binary("jcr_root/x", false)


def test_entries_have_their_sizes_in_front_and_no_time() -> None:
    into = io.BytesIO()
    writer = ArchiveWriter(into)
    writer.add("a.txt", b"hello" * 50)
    writer.add_directory("b/")
    writer.finish()
    infos = zipfile.ZipFile(into).infolist()
    assert [info.flag_bits & 8 for info in infos] == [0, 0]
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert struct.unpack_from("<I", into.getvalue(), 14) == (zlib.crc32(b"hello" * 50),)

"""A real directory as a source: what is content, what is refused, and what is noticed while it is read."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import socket
import tracemalloc
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from mailboat.content.digest import source_digest, tree_digest
from mailboat.content.listed_nodes import ListedNode, UnlistedEntry
from mailboat.content.sources import folder as folder_source
from mailboat.content.sources import folder_entries, known_files
from mailboat.content.sources.folder import INLINE_BYTES, DigestCache, FolderSource
from mailboat.content.sources.folder_entries import FileSignature, SourceFolders, signature_of
from mailboat.content.sources.known_files import KnownFiles
from mailboat.errors import (
    PackageCorruptError,
    PathRefusedError,
    SourceChangedError,
    SourceMissingError,
    UsageError,
)
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import ROOT, NodePath
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples
from mailboat.testing.trees import TreeShape, a_file, a_folder, names, trees
from mailboat.wire.node_bodies import node_digest

LARGE = 64 * 1024 + 1


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A small site."""
    folder = tmp_path / "site"
    (folder / "en").mkdir(parents=True)
    (folder / "en/index.html").write_bytes(b"<h1>Hello</h1>")
    (folder / "en/empty").touch()
    (folder / ".well-known").mkdir()
    (folder / "large").write_bytes(b"x" * LARGE)
    return folder


def paths_of(source: FolderSource, path: str = "/") -> list[str]:
    """The paths of a walk."""
    return [node.path for node in source.walk(NodePath(path))]


def test_files_and_folders_are_nodes_and_the_top_is_none(site: Path) -> None:
    source = FolderSource(site)
    assert list(source.walk(ROOT)) == [
        a_folder("/.well-known"),
        a_folder("/en"),
        a_file("/en/empty", b""),
        a_file("/en/index.html", b"<h1>Hello</h1>"),
        a_file("/large", b"x" * LARGE),
    ]
    assert source.node(ROOT) is None
    assert source.uri == str(site)


def test_small_files_are_held_and_large_ones_read_when_asked(site: Path) -> None:
    source = FolderSource(site)
    small, large = source.node(NodePath("/en/index.html")), source.node(NodePath("/large"))
    assert small is not None
    assert small.data is not None
    assert small.data.data == b"<h1>Hello</h1>"
    assert large is not None
    assert large.data is not None
    assert large.data.data is None
    assert large.data.digest == hashlib.sha256(b"x" * LARGE).digest()
    with large.data.open() as stream:
        assert stream.read() == b"x" * LARGE


def test_state_and_repository_at_the_top_are_no_content_but_below_they_are(site: Path) -> None:
    for folder in (".git", ".mailboat", "lost+found", "en/.git"):
        (site / folder).mkdir()
    assert paths_of(FolderSource(site)) == [
        "/.well-known",
        "/en",
        "/en/.git",
        "/en/empty",
        "/en/index.html",
        "/large",
    ]
    assert FolderSource(site).node(NodePath("/.git")) is None


def test_a_source_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError):
        FolderSource(tmp_path / "absent")
    (tmp_path / "file").touch()
    with pytest.raises(SourceMissingError):
        FolderSource(tmp_path / "file")


def test_links_within_the_source_are_followed(site: Path) -> None:
    (site / "home.html").symlink_to("en/index.html")
    (site / "english").symlink_to(site / "en")
    source = FolderSource(site)
    assert source.node(NodePath("/home.html")) == a_file("/home.html", b"<h1>Hello</h1>")
    assert paths_of(source, "/english") == ["/english", "/english/empty", "/english/index.html"]


@pytest.mark.parametrize("leads_to", ["/etc", "../outside", "/etc/hostname", "absent", "loop"])
def test_links_that_lead_outside_or_nowhere_are_refused_with_their_path(site: Path, leads_to: str) -> None:
    (site.parent / "outside").mkdir()
    (site / "loop").symlink_to("loop")
    (site / "loop").unlink()
    (site / "link").symlink_to(leads_to)
    with pytest.raises(PathRefusedError, match=r"/link' is a link that leads"):
        paths_of(FolderSource(site))
    with pytest.raises(PathRefusedError):
        FolderSource(site).node(NodePath("/link"))


@pytest.mark.parametrize("path", ["/../secret.txt", "/en/../../secret.txt", "/..", "en", "/en/"])
def test_a_path_that_no_one_checked_is_not_looked_for_beside_the_source(site: Path, path: str) -> None:
    (site.parent / "secret.txt").write_text("secret")
    source = FolderSource(site)
    for look in (source.node, source.child_names, lambda one: list(source.walk(one))):
        with pytest.raises(PathRefusedError, match="is not a content path"):
            look(NodePath(path))
    (told,) = source.listed(NodePath(path))
    assert isinstance(told, UnlistedEntry)


def test_a_link_to_a_folder_around_it_is_refused(site: Path) -> None:
    (site / "en/again").symlink_to("../en")
    with pytest.raises(PathRefusedError, match="a folder that it lies in"):
        paths_of(FolderSource(site))


def test_the_source_itself_may_be_a_link_which_is_resolved_once(site: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(site)
    source = FolderSource(tmp_path / "current")
    (tmp_path / "current").unlink()
    (tmp_path / "other").mkdir()
    (tmp_path / "current").symlink_to(tmp_path / "other")
    assert len(paths_of(source)) == 5
    (site / "large").unlink()
    os.utime(site, (2e9, 2e9))  # later than the source was opened, whatever the file system's clock says
    with pytest.raises(SourceChangedError, match="current leads elsewhere now"):
        paths_of(source)


@pytest.mark.parametrize("name", [".node.secret", ".node.name.foo", ".node.folder/file"])
def test_files_with_reserved_names_are_refused_and_not_left_out(site: Path, name: str) -> None:
    (site / "en" / name).parent.mkdir(exist_ok=True)
    (site / "en" / name).touch()
    with pytest.raises(PathRefusedError, match=r"/en/\.node\..*' has a reserved name"):
        paths_of(FolderSource(site))


def test_sockets_and_pipes_are_refused(site: Path) -> None:
    os.mkfifo(site / "pipe")
    with pytest.raises(PathRefusedError, match="neither a file nor a folder"):
        paths_of(FolderSource(site))
    (site / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(site / "socket"))
        with pytest.raises(PathRefusedError, match="socket"):
            paths_of(FolderSource(site))


@pytest.mark.parametrize("name", [b"caf\xe9", b".node.name..node.\xe9", b"back\\slash", b"line\nbreak"])
def test_names_that_content_cannot_have_are_refused(site: Path, name: bytes) -> None:
    Path(os.fsdecode(os.fsencode(site) + b"/" + name)).touch()
    with pytest.raises(PathRefusedError):
        paths_of(FolderSource(site))


def test_a_large_file_that_changes_after_it_was_hashed_is_noticed(site: Path) -> None:
    node = FolderSource(site).node(NodePath("/large"))
    assert node is not None
    assert node.data is not None
    (site / "large").write_bytes(b"y" * LARGE)
    with pytest.raises(SourceChangedError, match="changed while it was read"):
        node.data.open()


def test_a_large_file_that_changes_while_it_is_shipped_is_noticed(site: Path) -> None:
    (site / "large").write_bytes(b"x" * 5_000_000)
    node = FolderSource(site).node(NodePath("/large"))
    assert node is not None
    assert node.data is not None
    with node.data.open() as stream:
        stream.read(1_000_000)
        with (site / "large").open("r+b") as file:
            file.truncate(2_000_000)
        with pytest.raises(SourceChangedError):
            stream.read()


def test_a_file_that_went_away_is_noticed(site: Path) -> None:
    walk = FolderSource(site).walk(ROOT)
    assert next(walk).path == "/.well-known"
    assert next(walk).path == "/en"
    assert next(walk).path == "/en/empty"
    (site / "en/index.html").unlink()
    with pytest.raises(SourceChangedError):
        list(walk)


def test_a_folder_that_cannot_be_read_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: str) -> list[str]:
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr("mailboat.content.sources.folder.os.listdir", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        paths_of(FolderSource(site))


@pytest.mark.parametrize(
    "sidecar",
    [
        b"",
        b"[]",
        b"{}",
        b'{"primaryType": 1}',
        b'{"primaryType": "nt:x", "properties": [{"name": "a"}]}',
        b"[" * 100_000,
    ],
)
def test_a_sidecar_that_tells_no_node_is_refused_with_its_path(site: Path, sidecar: bytes) -> None:
    (site / "en/.node.json").write_bytes(sidecar)
    with pytest.raises(PackageCorruptError, match=r"/en/\.node\.json"):
        paths_of(FolderSource(site))


def test_a_sidecar_s_binary_with_other_bytes_is_refused(site: Path) -> None:
    digest = hashlib.sha256(b"real").hexdigest()
    (site / "en/.node.json").write_text(
        '{"primaryType": "nt:x", "properties": [{"name": "b", "type": "BINARY", "value": '
        f'{{"sha256": "{digest}", "bytes": 4}}}}]}}'
    )
    (site / f"en/.node.{digest}.bin").write_bytes(b"fake")
    with pytest.raises(Exception, match="does not have the content of its digest"):
        FolderSource(site).node(NodePath("/en"))
    (site / f"en/.node.{digest}.bin").write_bytes(b"real")
    node = FolderSource(site).node(NodePath("/en"))
    assert node is not None
    assert node.primary_type == "nt:x"


@settings(max_examples=examples(20))
@given(tree=trees(TreeShape(root=NodePath("/site"), has_only_files=True, node_names=names())))
def test_any_tree_of_plain_files_is_read_as_it_lies_there(
    tmp_path_factory: pytest.TempPathFactory, tree: list[Node]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for node in tree:
        place = folder / node.path[1:]
        if node.data is None:
            place.mkdir()
        else:
            place.write_bytes(node.data.open().read())
    source = FolderSource(folder)
    assert list(source.walk(ROOT)) == tree
    assert source_digest(source) == tree_digest(tree)
    assert dict(source.digests(ROOT)) == {node.path: node_digest(node) for node in tree}


class Remembered(DigestCache):
    """A cache in a dictionary, which counts what it was asked."""

    def __init__(self) -> None:
        self.digests: dict[tuple[str, FileSignature], bytes] = {}
        self.hits = 0

    def find(self, path: NodePath, signature: FileSignature) -> bytes | None:
        found = self.digests.get((path, signature))
        self.hits += found is not None
        return found

    def store(self, path: NodePath, signature: FileSignature, digest: bytes) -> None:
        self.digests[path, signature] = digest

    def close(self) -> None:
        pass


def test_files_known_by_signature_are_not_read_again(site: Path) -> None:
    clock, cache = ManualClock(), Remembered()
    newest = max(path.stat().st_ctime for path in site.rglob("*"))
    clock.advance(newest - clock.now().timestamp() + 3)
    source = FolderSource(site, digests=cache, clock=clock)
    first = dict(source.digests(ROOT))
    assert (len(cache.digests), cache.hits) == (3, 0)
    assert dict(source.digests(ROOT)) == first
    assert cache.hits == 3
    (site / "en/empty").write_bytes(b"not any more")
    assert dict(source.digests(ROOT)) != first


def test_what_files_hold_is_kept_in_a_file(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cache = ManualClock(), tmp_path / "known-files.cache"
    (site / "large").write_bytes(b"x" * (INLINE_BYTES + 1))
    newest = max(path.stat().st_ctime for path in site.rglob("*"))
    clock.advance(newest - clock.now().timestamp() + 3)
    nodes = []
    for _ in range(2):
        source = FolderSource(site, digests=KnownFiles(cache, site), clock=clock)
        node = source.node(NodePath("/large"))
        assert node is not None
        assert node.data is not None
        nodes.append((node, node.data.digest))
        source.close()
        monkeypatch.setattr(folder_entries, "_UnchangedFile", None)  # from now on nothing can be read
    assert nodes[0] == nodes[1]
    monkeypatch.undo()
    (site / "large").write_bytes(b"y" * (INLINE_BYTES + 1))
    source = FolderSource(site, digests=KnownFiles(cache, site), clock=clock)
    assert source.node(NodePath("/large")) not in [node for node, _ in nodes]
    source.close()
    other = KnownFiles(cache, tmp_path)
    assert other.find(NodePath("/large"), signature_of((site / "large").stat())) is None
    other.close()


def test_no_file_is_read_for_being_remembered_alone(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_source, "MOST_UNREAD", 2)
    clock, cache = ManualClock(), Remembered()
    for name in "abc":
        (site / name).write_bytes(name.encode() * (INLINE_BYTES + 1))
    newest = max(path.stat().st_ctime for path in site.rglob("*"))
    clock.advance(newest - clock.now().timestamp() + 3)
    source = FolderSource(site, digests=cache, clock=clock)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(Binary, "_read_digest", None)
        binaries = {path: node.data for path in map(NodePath, ("/a", "/b", "/c")) if (node := source.node(path))}
    assert cache.digests == {}
    for path in ("/a", "/c"):  # the first is waited for no more, the second no one reads
        binary = binaries[NodePath(path)]
        assert binary is not None
        binary.tell_digest(path.encode() * 16)
    source.close()
    assert [path for path, _ in cache.digests] == ["/c"]


@pytest.mark.parametrize("content", [b"no database" * 100, None])
def test_a_cache_that_cannot_be_used_knows_nothing(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "known-files.cache"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    cache, signature = KnownFiles(file, tmp_path), FileSignature(1, 2, 3, 2**64 - 1)
    cache.store(NodePath("/a"), signature, b"digest")
    assert cache.find(NodePath("/a"), signature) is None
    cache.close()


def test_a_cache_that_grew_too_large_forgets_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "MAX_FILES", 2)
    signature = FileSignature(1, 2, 3, 2**64 - 1)
    for name, is_known in (("a", False), ("b", True), ("c", True), ("d", False)):
        cache = KnownFiles(tmp_path / "known-files.cache", tmp_path)
        assert (cache.find(NodePath("/a"), signature) == b"digest") == is_known
        cache.store(NodePath(f"/{name}"), signature, b"digest")
        cache.close()


def test_a_file_changed_just_now_is_not_remembered(site: Path) -> None:
    clock, cache = ManualClock(), Remembered()
    oldest = min(path.stat().st_mtime for path in site.rglob("*"))
    clock.advance(oldest - clock.now().timestamp() + timedelta(milliseconds=100).total_seconds())
    source = FolderSource(site, digests=cache, clock=clock)
    dict(source.digests(ROOT))
    assert cache.digests == {}


def test_memory_does_not_grow_with_a_file(site: Path) -> None:
    with (site / "huge").open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        node = FolderSource(site).node(NodePath("/huge"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert node is not None
    assert peak < 8 * 1024 * 1024


def test_a_listing_goes_on_where_the_target_of_a_link_goes_away(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "file").write_text("x")
    (tmp_path / "link").symlink_to("z/file")
    found = FolderSource(tmp_path).listed(ROOT)
    assert next(found).path == "/a"
    shutil.rmtree(tmp_path / "z")
    assert not any(isinstance(item, ListedNode) and item.path == "/link" for item in found)


def test_a_folder_that_is_exchanged_while_others_are_listed_is_not_taken_for_removed(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "new"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / f"of_{name}").touch()
    (tmp_path / "site/new").rename(tmp_path / "new")
    found = FolderSource(tmp_path / "site").listed(ROOT)
    assert next(found).path == "/a"
    (tmp_path / "site/b").rename(tmp_path / "old")
    (tmp_path / "new").rename(tmp_path / "site/b")
    shutil.rmtree(tmp_path / "site/c")
    assert [item.path for item in found if isinstance(item, ListedNode)] == ["/a/of_a", "/b", "/b/of_new"]


def test_a_folder_that_is_exchanged_while_it_is_listed_is_not_taken_for_removed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = SourceFolders.find

    def exchanged(folders: SourceFolders, disk: str) -> tuple[str, os.stat_result] | None:
        if disk == f"{site}/en/.node.json":
            (site / "en").rename(site / "old")
            (site / "en").mkdir()
        return find(folders, disk)

    monkeypatch.setattr(SourceFolders, "find", exchanged)
    (told,) = (item for item in FolderSource(site).listed(ROOT) if item.path == "/en")
    assert isinstance(told, UnlistedEntry)
    assert isinstance(told.error, SourceChangedError)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_source_that_is_removed_while_it_is_read_is_not_one_of_fewer_nodes(tmp_path: Path, is_listed: bool) -> None:
    for name in ("a/first", "z/last"):
        (tmp_path / "site" / name).parent.mkdir(parents=True)
        (tmp_path / "site" / name).touch()
    source = FolderSource(tmp_path / "site")
    found = source.listed(ROOT) if is_listed else source.walk(ROOT)
    assert next(iter(found)).path == "/a"
    (tmp_path / "site").rename(tmp_path / "discarded")
    (tmp_path / "discarded/z/last").unlink()
    with pytest.raises(SourceChangedError, match="site' disappeared"):
        list(found)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("is_link", [True, False])
@pytest.mark.parametrize("start", ["/", "/top", "/top/site"])
def test_a_folder_that_is_exchanged_while_it_is_read_is_not_one_of_fewer_nodes(
    tmp_path: Path, start: str, is_link: bool, is_listed: bool
) -> None:
    site = tmp_path / "top/site"
    real = tmp_path / "releases/1" if is_link else site
    for name in ("a/first", "z/last"):
        (real / name).parent.mkdir(parents=True)
        (real / name).touch()
    if is_link:
        site.parent.mkdir()
        site.symlink_to("../releases/1")
    source = FolderSource(tmp_path)
    found = source.listed(NodePath(start)) if is_listed else source.walk(NodePath(start))
    taken = next(item for item in found if item.path == "/top/site/a")
    if is_link:
        site.unlink()
        site.symlink_to("../releases/2")
        (real / "z/last").unlink()
    else:
        site.rename(tmp_path / "old")
        (tmp_path / "old/z/last").unlink()
    (tmp_path / ("releases/2" if is_link else "top/site")).mkdir()
    if is_listed:
        problems = {item.path for item in found if isinstance(item, UnlistedEntry)}
        assert "/top/site" in problems
    else:
        with pytest.raises(SourceChangedError, match="site' was exchanged"):
            list(found)
    assert taken.path == "/top/site/a"


def test_what_another_machine_removes_on_nfs_is_a_source_that_changed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(*_: object) -> list[str]:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(SourceFolders, "entries", stale)
    with pytest.raises(SourceChangedError, match="disappeared"):
        paths_of(FolderSource(site))


def test_a_path_whose_way_is_exchanged_while_it_is_looked_up_is_not_taken_for_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for release in ("1", "2"):
        (tmp_path / release / "en").mkdir(parents=True)
    (tmp_path / "current").symlink_to("1")
    resolve = SourceFolders.resolve

    def flipped(folders: SourceFolders, disk: str) -> tuple[str, os.stat_result]:
        if disk == f"{tmp_path}/1/en":
            (tmp_path / "current").unlink()
            (tmp_path / "current").symlink_to("2")
            (tmp_path / "1/en").rmdir()
        return resolve(folders, disk)

    monkeypatch.setattr(SourceFolders, "resolve", flipped)
    with pytest.raises(SourceChangedError, match="current' was exchanged"):
        FolderSource(tmp_path).node(NodePath("/current/en"))


def test_a_file_that_is_removed_while_others_are_listed_is_no_problem(site: Path) -> None:
    found = FolderSource(site).listed(ROOT)
    assert next(found).path == "/.well-known"
    (site / "large").unlink()
    assert [item.path for item in found] == ["/en", "/en/empty", "/en/index.html"]


def test_a_sidecar_and_its_binary_may_be_links_within_the_source(site: Path) -> None:
    digest = hashlib.sha256(b"real").hexdigest()
    (site / "shared.json").write_text(
        '{"primaryType": "nt:x", "properties": [{"name": "b", "type": "BINARY", "value": '
        f'{{"sha256": "{digest}", "bytes": 4}}}}]}}'
    )
    (site / "shared.bin").write_bytes(b"real")
    (site / "names.json").write_text('{"acme": "urn:acme"}')
    (site / "en/.node.json").symlink_to("../shared.json")
    (site / f"en/.node.{digest}.bin").symlink_to("../shared.bin")
    (site / ".node.namespaces.json").symlink_to("names.json")
    source = FolderSource(site)
    node = source.node(NodePath("/en"))
    assert node is not None
    assert (node.primary_type, node.properties[0].values) == ("nt:x", (Binary(b"real"),))
    assert "/en" in [item.path for item in source.listed(ROOT) if isinstance(item, ListedNode)]
    assert source.namespaces() == {"acme": ("urn:acme",)}


@pytest.mark.parametrize("name", [".node.json", ".node.namespaces.json"])
def test_a_folder_with_the_name_of_an_own_file_is_refused(site: Path, name: str) -> None:
    (site / name).mkdir()
    source = FolderSource(site)
    look = source.namespaces if name == ".node.namespaces.json" else lambda: paths_of(source)
    with pytest.raises(PathRefusedError, match="is a folder: that name is for a file of Mailboat"):
        look()

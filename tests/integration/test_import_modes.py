"""Import modes with content that is there already: Oak after FileVault's import, and our targets, hold the same.

A package made by hand is imported as it is, and as `packages build` packs it in both formats.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.composition.package_formats import package_registry
from mailboat.config.document import LimitsConfig
from mailboat.model.nodes import Node, PropertyType, ordered_names
from mailboat.model.paths import NodePath, name_of, parent_of
from mailboat.model.requests import add_request
from mailboat.operations.package_files import PackageFiles
from mailboat.packages.filevault.sources import open_archive_source
from mailboat.testing.target_model import ModelTree
from mailboat.wire.node_bodies import decode_node

MODES = ["replace", "merge", "merge_properties", "update", "update_properties"]
ROOT = NodePath("/content/site")
NAMESPACES = " ".join(
    f'xmlns:{prefix}="{uri}"'
    for prefix, uri in {
        "jcr": "http://www.jcp.org/jcr/1.0",
        "nt": "http://www.jcp.org/jcr/nt/1.0",
        "mix": "http://www.jcp.org/jcr/mix/1.0",
        "sling": "http://sling.apache.org/jcr/sling/1.0",
    }.items()
)
OF_THE_REPOSITORY = {
    "jcr:primaryType", "jcr:mixinTypes", "jcr:created", "jcr:createdBy", "jcr:lastModified", "jcr:lastModifiedBy",
    "jcr:uuid", "jcr:mimeType",
}  # fmt: skip


def document(attributes: str, within: str = "", kind: str = "nt:unstructured") -> str:
    return f'<jcr:root {NAMESPACES} jcr:primaryType="{kind}" {attributes}>{within}</jcr:root>'


def element(name: str, attributes: str = "", within: str = "") -> str:
    return f'<{name} jcr:primaryType="nt:unstructured" {attributes}>{within}</{name}>'


HERE = {
    "content/site": document('both="here" here="1"', element("inner", 'both="here"') + element("gone")),
    "content/site/page": document('both="here"', element("content", 'here="1"', element("text", 'both="here"'))),
    "content/site/page/child": document('both="here"'),
    "content/site/typed": document('here="1"', kind="sling:Folder"),
    "content/site/ordered": document("", "".join(map(element, ["a", "b", "c", "x"]))),
    "content/site/taken": document('here="1"', element("child", 'here="1"')),
}
COMING = {
    "content/site": document(
        'both="coming" coming="1" jcr:mixinTypes="[mix:title]"',
        element("inner", 'both="coming" coming="1"') + element("added", 'coming="1"'),
    ),
    "content/site/page": document(
        'both="coming"',
        element("content", 'coming="1"', element("text", 'both="coming"') + element("image", 'coming="1"')),
    ),
    "content/site/page/child": document('both="coming" coming="1"', element("new")),
    "content/site/page/sibling": document('coming="1"', element("content", "", element("text"))),
    "content/site/typed": document('coming="1"'),
    "content/site/ordered": document("", "".join(map(element, ["c", "b", "a", "d"]))),
}
FILES_HERE = {"content/site/file.txt": "here", "content/site/old.txt": "here", "content/site/folder/a.txt": "here"}
FILES_COMING = {
    "content/site/file.txt": "coming",
    "content/site/new.txt": "new",
    "content/site/folder/b.txt": "new",
    "content/site/taken": "new",
}


def package(path: Path, documents: Mapping[str, str], files: Mapping[str, str], filters: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", f'<workspaceFilter version="1.0">{filters}</workspaceFilter>')
        for folder, text in documents.items():
            archive.writestr(f"jcr_root/{folder}/.content.xml", text)
        for file, text in files.items():
            archive.writestr(f"jcr_root/{file}", text)
    return path


def packed(original: Path, kind: str) -> bytes:
    into = original.with_suffix(f".{kind}")
    with closing(open_archive_source(original)) as source:
        PackageFiles(package_registry(), LimitsConfig()).build(add_request([ROOT]), source, into, kind, {})
    return into.read_bytes()


def in_order(path: str, children: list[str]) -> list[str]:
    """The names of children; nothing prescribes an order where documents do not name all of them."""
    return children if path.endswith("/ordered") else sorted(children)


def dumped(jackrabbit: Any) -> dict[str, Any]:
    """The nodes by path: type, mixins, properties, names of children."""
    return {
        item["path"]: (
            item["type"],
            sorted(item["mixins"]),
            {name: value for name, value in item["properties"].items() if name not in OF_THE_REPOSITORY},
            in_order(item["path"], item["children"]),
        )
        for item in jackrabbit.ask("dump", ROOT)
    }


def shown(nodes: Iterable[Node]) -> dict[str, Any]:
    """The same of our nodes; a file is one node and has no values of a repository."""
    nodes = [node for node in nodes if f"{node.path}/".startswith(f"{ROOT}/")]
    below: dict[str, list[str]] = {}
    for node in nodes:
        below.setdefault(parent_of(node.path), []).append(name_of(node.path))
    return {
        node.path: (
            node.primary_type,
            list(node.mixin_types),
            {
                property_.name: [int(property_.type), property_.is_multiple, list(property_.values)]
                for property_ in node.properties
            },
            in_order(node.path, ordered_names(node.child_order, below.get(node.path, []))),
        )
        for node in nodes
        if node.data is None
    }


def without_files(found: dict[str, Any]) -> dict[str, Any]:
    files = {path for path, node in found.items() if node[0] == "nt:file"}
    return {path: node for path, node in found.items() if path not in files and parent_of(NodePath(path)) not in files}


@pytest.mark.parametrize("mode", MODES)
def test_existing_content_is_treated_as_filevault_treats_it(mode: str, jackrabbit: Any, tmp_path: Path) -> None:
    here = package(tmp_path / "here.zip", HERE, FILES_HERE, f'<filter root="{ROOT}"/>')
    coming = package(tmp_path / "coming.zip", COMING, FILES_COMING, f'<filter root="{ROOT}" mode="{mode}"/>')
    ours = tmp_path / "ours.zip"
    ours.write_bytes(packed(coming, "filevault"))

    repositories = []
    for file in (coming, ours):
        jackrabbit.reset()
        assert jackrabbit.ask("import", here) == []
        assert jackrabbit.ask("import", file) == []
        repositories.append(dumped(jackrabbit))
    assert repositories[0] == repositories[1]

    for payload in (coming.read_bytes(), ours.read_bytes(), packed(coming, "tree")):
        target = ModelTree()
        for content in (here.read_bytes(), payload):
            apply(target, content)
        assert shown(target.walk()) == without_files(repositories[0])
        for file in (NodePath(path) for path, one in repositories[0].items() if one[0] == "nt:file"):
            data = target.nodes[file].data
            assert data is not None
            assert repositories[0][f"{file}/jcr:content"][2]["jcr:data"][2] == [data.digest.hex()]


def apply(target: ModelTree, content: bytes) -> None:
    change = package_registry().codec_of(io.BytesIO(content)).read_bytes(content, LimitsConfig(), None)
    records = [replace(decode_node(record.path, record.body), is_inner=record.is_inner) for record in change.records]
    target.apply(records, change.filter)


def test_children_that_a_kept_type_forbids_are_skipped_by_filevault_only(jackrabbit: Any, tmp_path: Path) -> None:
    """Our targets know no node types."""
    root = f'<filter root="{ROOT}" mode="merge_properties"/>'
    folder = {"content/site": document("", kind="nt:folder")}
    page = {"content/site": document("", element("child"))}
    target = ModelTree()
    for file in (package(tmp_path / "1.zip", folder, {}, root), package(tmp_path / "2.zip", page, {}, root)):
        assert jackrabbit.ask("import", file) == []
        apply(target, file.read_bytes())
    assert dumped(jackrabbit) == {ROOT: ("nt:folder", [], {}, [])}
    assert target.nodes[ROOT].primary_type == "nt:folder"
    assert f"{ROOT}/child" in target.nodes


def test_members_of_an_existing_group_are_merged_by_filevault_only(jackrabbit: Any, tmp_path: Path) -> None:
    """In mode merge our targets leave the group's document alone, as that of any node."""
    group = 'rep:authorizableId="g" rep:principalName="g" jcr:uuid="b2f5ff47-4366-31b6-a533-d8dc3614845d"'
    names = 'xmlns:rep="internal"'
    root = '<filter root="/home/groups/g" mode="merge"/>'
    target, held = ModelTree(), []
    for number, members in enumerate(["", 'rep:members="{WeakReference}[21232f29-7a57-35a7-8389-4a0e4a801fc3]"']):
        file = tmp_path / f"{number}.zip"
        package(file, {"home/groups/g": document(f"{names} {group} {members}", kind="rep:Group")}, {}, root)
        assert jackrabbit.ask("import", file) == []
        held.append(jackrabbit.ask("dump", "/home/groups/g")[0]["properties"].get("rep:members"))
        apply(target, file.read_bytes())
    assert held == [None, [PropertyType.WEAK_REFERENCE, True, ["21232f29-7a57-35a7-8389-4a0e4a801fc3"]]]
    assert target.nodes[NodePath("/home/groups/g")].find("rep:members") is None


ONE = document('here="1"', element("child", 'both="here"'))
NEW = document('new="1"', element("child", 'both="coming" new="1"', element("below", 'new="1"')))
SITE = {"content/site": document("")}


@pytest.mark.parametrize(
    ("coming", "filters"),
    [
        pytest.param(
            {**SITE, "content/site/one": NEW, "content/site/two": NEW},
            "".join(f'<filter root="{ROOT}/{name}/child" mode="merge"/>' for name in ("one", "two")),
            id="roots",
        ),
        pytest.param(
            {**SITE, "content/site/one": document('new="1"', element("added", "", element("below", 'new="1"')))},
            f'<filter root="{ROOT}" mode="merge"><exclude pattern="{ROOT}/one/added"/></filter>',
            id="exclusion",
        ),
        pytest.param(
            {**SITE, "content/site/new": document('new="1"', element("added", "", element("below", 'new="1"')))},
            f'<filter root="{ROOT}" mode="merge"><exclude pattern="{ROOT}/new/added"/></filter>',
            id="new",
        ),
    ],
)
def test_documents_with_nodes_that_no_filter_covers(
    coming: Mapping[str, str], filters: str, jackrabbit: Any, tmp_path: Path
) -> None:
    here = {**SITE, "content/site/one": ONE, "content/site/two": ONE}
    before = package(tmp_path / "here.zip", here, {}, f'<filter root="{ROOT}"/>')
    made = package(tmp_path / "coming.zip", coming, {}, filters)
    ours = tmp_path / "ours.zip"
    ours.write_bytes(packed(made, "filevault"))
    found = []
    for file in (made, ours):
        jackrabbit.reset()
        for item in (before, file):
            assert jackrabbit.ask("import", item) == []
        found.append(dumped(jackrabbit))
    for payload in (made.read_bytes(), ours.read_bytes(), packed(made, "tree")):
        target = ModelTree()
        for content in (before.read_bytes(), payload):
            apply(target, content)
        found.append(shown(target.walk()))
    assert found == [found[0]] * 5

"""Packages made by hand, as no exporter makes them: Oak holds the same after them and after ours made of them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mailboat.composition.places import open_target
from mailboat.composition.source_openers import open_source
from mailboat.config.document import LimitsConfig, Transfer
from mailboat.errors import PackageCorruptError
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.operations.package_files import PackageFiles
from mailboat.packages.codec_registry import FILEVAULT, PackageRegistry
from mailboat.packages.filevault.codec import FilevaultCodec
from mailboat.packages.filevault.properties import format_properties
from mailboat.publisher.publisher import own_roots
from mailboat.wire.package_messages import decode_package
from support.engines import EngineParts, memory_engine

HEAD_OF_PROPERTIES = '<!DOCTYPE properties SYSTEM "http://java.sun.com/dtd/properties.dtd">'
HEAD = (
    '<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" xmlns:nt="http://www.jcp.org/jcr/nt/1.0" xmlns:rep="internal"'
    ' xmlns:sling="http://sling.apache.org/jcr/sling/1.0"'
)
KIND = 'jcr:primaryType="nt:unstructured"'
MADE = {"jcr:created", "jcr:createdBy", "jcr:lastModified", "jcr:lastModifiedBy", "jcr:uuid"}
TYPES = {"jcr:primaryType", "jcr:mixinTypes"}
LIST = (
    f'{HEAD} jcr:primaryType="rep:ACL"><allow jcr:primaryType="rep:GrantACE" rep:principalName="everyone"'
    ' rep:privileges="{Name}[jcr:read]"/></jcr:root>'
)
GUARDED = 'jcr:mixinTypes="[rep:AccessControllable]"'
SEED = {
    "content": f'{HEAD} jcr:primaryType="sling:Folder"/>',
    "content/a": f'{HEAD} {KIND} {GUARDED} t="old"><x {KIND}/></jcr:root>',
    "content/a/rep:policy": LIST.replace("everyone", "bob"),
    "content/b": f"{HEAD} {KIND}><c {KIND}/></jcr:root>",
}
SEED_FILTER = '<filter root="/content/a"/><filter root="/content/b"/>'
A = '<filter root="/content/a"/>'


Shown = tuple[str, list[str], list[str], dict[str, Any]]
"""The type of a node, its mixins, children and properties."""


class Odd(NamedTuple):
    """A package: the documents of nodes by path, other entries, and what it says of itself."""

    documents: Mapping[str, str]
    filter: str = A
    files: Mapping[str, str] = {}
    handling: str | None = None
    properties: Mapping[str, str] = {}
    node_types: str | None = None

    def write(self, into: Path) -> Path:
        """The package as a zip."""
        properties = {"name": "odd", "group": "g", "version": "1", **self.properties}
        if self.handling is not None:
            properties["acHandling"] = self.handling
        with zipfile.ZipFile(into, "w") as archive:
            rules = f'<workspaceFilter version="1.0">{self.filter}</workspaceFilter>'
            archive.writestr("META-INF/vault/filter.xml", rules)
            archive.writestr("META-INF/vault/properties.xml", format_properties(properties))
            for path, text in self.documents.items():
                name = path.replace("/rep:policy", "/_rep_policy")
                archive.writestr(f"jcr_root/{name}{'.xml' if name != path else '/.content.xml'}", text)
            for path, text in self.files.items():
                archive.writestr(f"jcr_root/{path}", text)
            if self.node_types is not None:
                archive.writestr("META-INF/vault/nodetypes.cnd", self.node_types)
        return into


def node(properties: str = "", children: str = "") -> str:
    """The document of a node."""
    return f"{HEAD} {KIND} {properties}>{children}</jcr:root>"


ABOVE = {"content": SEED["content"]}
LISTED = {**ABOVE, "content/a": node(GUARDED), "content/a/rep:policy": LIST}
CASES = {
    "root without content": Odd({**ABOVE, "content/a": node()}, A + '<filter root="/content/b"/>'),
    "roots to clean up": Odd(ABOVE, '<filter root="/content/a/x" type="cleanup"/><filter root="/content/b"/>'),
    "root to clean up, merged": Odd(ABOVE, '<filter root="/content/b" type="cleanup" mode="merge_properties"/>'),
    "list excluded": Odd(
        LISTED, '<filter root="/content/a"><exclude pattern=".*/rep:policy(/.*)?"/></filter>', handling="overwrite"
    ),
    "list excluded, and not there": Odd(
        {**ABOVE, "content/a": node(GUARDED)},
        '<filter root="/content/a"><exclude pattern=".*/rep:policy(/.*)?"/></filter>',
        handling="overwrite",
    ),
    "list not included": Odd(
        LISTED, '<filter root="/content/a"><include pattern="/content/a"/></filter>', handling="overwrite"
    ),
    "two namespaces of a prefix": Odd(
        {
            **ABOVE,
            "content/a": node('xmlns:acme="urn:1" acme:x="1" n="{Name}acme:v"'),
            "content/a/b": node(
                'xmlns:acme="urn:2" acme:x="2" n="{Name}[acme:v,acme:w]" p="{Path}/content/acme:k" s="acme:s"',
                f"<acme:k {KIND}/>",
            ),
        }
    ),
    "two namespaces of a prefix in a document": Odd(
        {
            **ABOVE,
            "content/a": node(
                'xmlns:acme="urn:1" acme:t="1" n="{Name}acme:v"',
                f'<x xmlns:acme="urn:2" {KIND} acme:t="2" n="{{Name}}acme:v" p="{{Path}}/content/acme:k">'
                f'<acme:k {KIND}/></x><y {KIND} acme:t="3" n="{{Name}}acme:v"/>'
                f'<z xmlns:sling="urn:3" {KIND} sling:t="4"/>',
            ),
        }
    ),
    "node in two documents": Odd(
        {
            **ABOVE,
            "content/a": node("", f'<b {KIND} v="outer" w="1"><c {KIND}/><d {KIND} o="1"/></b><e {KIND}/>'),
            "content/a/b": node('v="own"', f"<f {KIND}/>"),
            "content/a/b/d": node('own="1"'),
        }
    ),
    "values of another type": Odd(
        {**ABOVE, "content/a": node('l="{Long}xx" d="{Date}yesterday" f="{Double}one" e="{Long}" b="{Boolean}yes"')}
    ),
    "names, paths and references of another form": Odd(
        {
            **ABOVE,
            "content/a": node(
                'e="{Name}" f="{Name}.." n="{Name}a/b" c="{Name}a:b:c" p="{Path}/a//b" q="{Path}/content/"'
                ' s="{Path}[/content/,/]" r="{Reference}/content/a"'
                ' w="{WeakReference}" d="{Date}1582-10-07T00:00:00.000Z"'
            ),
        }
    ),
    "numbers and dates of Java's forms": Odd(
        {
            **ABOVE,
            "content/a": node(
                'a="{Date}2020-01-01T00:00:00Z" b="{Date}2020-01-01T00:00:00.000+0100"'
                ' c="{Date}12020-01-01T00:00:00.000Z"'
                ' d="{Date}2020-02-30T00:00:00.000Z" e="{Date}2020-01-01T24:00:00.000Z" f="{Decimal} 1"'
                ' g="{Decimal}\u0663" h="{Long}\u0663" i="{Decimal}[1e0\u0663]" j="{Long}\U0001d7d9"'
                ' k="{Decimal}1e2147483648"'
            ),
        }
    ),
    "filter that says more than is known": Odd(
        {**ABOVE, "content/a": node('t="new"')}, '<filter root="/content/a/" mode="" type="CLEANUP" own="1"/>'
    ),
    "type without its end": Odd({**ABOVE, "content/a": node('a="{Long" b="{Foo[x\\,y]" c="{"')}),
    "numbers and dates that readers may not know": Odd(
        {
            **ABOVE,
            "content/a": node(
                'a="{Date}2020-01-01T00:00:00.000" b="{Date}[2020-01-01T00:00:00.000]" c="{Decimal}-0"'
                f' d="{{Decimal}}[-0.00,-0e5]" e="{{Decimal}}{"9" * 500}" f="{{Decimal}}[1e2147483647]"'
            ),
        }
    ),
    "paths that Oak makes shorter": Odd(
        {
            **ABOVE,
            "content/a": node(
                'a="{Path}." b="{Path}" c="{Path}a/.." d="{Path}/content/./b/" e="{Path}[a[1]/b[0],.,/.,a/../b]"'
                ' f="{Path}a:" g="{Path}:a" h="{Path}a[x]" i="{Path}/.." j="{Path}/a/../.."'
            ),
        }
    ),
    "URIs": Odd({**ABOVE, "content/a": node('a="{URI}a b" b="{URI}%zz" c="{URI}:x" d="{URI}[a,//h/%41,urn:x]"')}),
    "binaries without bytes": Odd({**ABOVE, "content/a": node('t="{Binary}[,]"')}),
    "attribute given twice": Odd({**ABOVE, "content/a": node('a_x0062_="1" ab="2" c="3"')}),
    "root of everything": Odd({**ABOVE, "content/a": node('t="new"')}, '<filter root="/"/>'),
    "filter without a root": Odd({**ABOVE, "content/a": node('t="new"')}, "<filter/>"),
    "roots that are no paths": Odd(
        {**ABOVE, "content/a": node('t="new"'), "content/b": node('t="new"')},
        f'{A}<filter root="content/b"/><filter root="/content//b"><exclude pattern=".*"/></filter><filter root="//"/>',
    ),
    "unknown handling of lists": Odd(LISTED, handling="mrege"),
    "document types": Odd(
        {
            **ABOVE,
            "content/a": '<!DOCTYPE a SYSTEM "file:///nowhere/a.dtd">' + node('t="x&gone;y"'),
            "content/a/b": "<!DOCTYPE b [<!ELEMENT b ANY><!-- %p; --><?x %p;?>]>" + node('t="new"'),
        }
    ),
    "plain document type": Odd({**ABOVE, "content/a": "<!DOCTYPE root>" + node('t="new"')}),
    "possessive expression": Odd(
        {**ABOVE, "content/a": node("", f"<y {KIND}/>")},
        '<filter root="/content/a"><exclude pattern="/content/a/x++"/></filter>',
    ),
    "names that differ in case": Odd({**ABOVE, "content/a": node("", f'<x {KIND} v="1"/><X {KIND} v="2"/>')}),
}


SHOWN_OTHERWISE = {
    "siblings of one name": Odd(
        {**ABOVE, "content/a": node("", f"<x {KIND} v='1'/><x_x005b_2_x005d_ {KIND}><y {KIND}/></x_x005b_2_x005d_>")}
    ),
    "bytes in place of an attribute": Odd(
        {**ABOVE, "content/a": node('t="{Long}1"', f'<k {KIND} u="x"/>')},
        files={"content/a/t.binary": "bytes", "content/a/k/u.binary": "others"},
    ),
    "bytes of a file twice": Odd(
        {
            **ABOVE,
            "content/a": node(),
            "content/a/f.txt.dir": f'{HEAD} jcr:primaryType="nt:file"><jcr:content jcr:primaryType="nt:resource"'
            ' jcr:mimeType="text/plain"/></jcr:root>',
        },
        files={"content/a/f.txt": "beside", "content/a/f.txt.dir/_jcr_content/_jcr_data.binary": "as a property"},
    ),
    "content of a file with an excluded node": Odd(
        {
            **ABOVE,
            "content/a": node(),
            "content/a/f.txt.dir": f'{HEAD} jcr:primaryType="nt:file"><jcr:content {KIND} jcr:mimeType="text/plain">'
            f"<k {KIND}/></jcr:content></jcr:root>",
        },
        '<filter root="/content/a"><exclude pattern=".*/k"/></filter>',
        {"content/a/f.txt": "bytes", "content/a/f.txt.dir/_jcr_content/k/g.txt": "below"},
    ),
}
"""A target holds the later sibling, which Oak leaves out; and bytes in another form."""


@pytest.mark.parametrize("case", [*CASES, *SHOWN_OTHERWISE])
def test_oak_holds_what_it_holds_after_the_original(case: str, jackrabbit: Any, tmp_path: Path) -> None:
    """In an empty repository, and in one that has other content and another access control list."""
    original = {**CASES, **SHOWN_OTHERWISE}[case].write(tmp_path / "original.zip")
    seed = Odd(SEED, SEED_FILTER, handling="overwrite").write(tmp_path / "seed.zip")
    rebuilt = tmp_path / "rebuilt.zip"
    rebuild(original, rebuilt)
    assert jackrabbit.ask("properties", rebuilt)["id"] == "g:odd:1", "a whole package, not a part"
    for before in ((), (seed,)):
        found = [after(jackrabbit, *before, package) for package in (original, rebuilt)]
        assert found[0] == found[1]
        assert before == () or "/content" in found[0]


@pytest.mark.parametrize("case", CASES)
def test_a_target_holds_what_oak_holds(case: str, jackrabbit: Any, tmp_path: Path) -> None:
    """With access control lists replaced, as targets take them for ordinary nodes."""
    original = CASES[case]._replace(handling="overwrite").write(tmp_path / "original.zip")
    seed = Odd(SEED, SEED_FILTER, handling="overwrite").write(tmp_path / "seed.zip")
    files = PackageFiles(PackageRegistry([FilevaultCodec()]), LimitsConfig())
    place = f"sqlite:{tmp_path}/target"
    with closing(open_target(place)) as target:
        for package in (seed, original):
            files.install(package, target)
    with closing(open_source(place)) as source:
        held = {
            node.path: (
                node.primary_type,
                {property_.name: [str(value) for value in property_.values] for property_ in node.properties},
            )
            for node in source.walk(NodePath("/content"))
        }
    assert held == {
        path: (kind, {name: value[2] for name, value in properties.items() if name not in TYPES})
        for path, (kind, _, _, properties) in after(jackrabbit, seed, original).items()
    }


@pytest.mark.parametrize("rules", ["", '<include pattern="/content(/.*)?"/><include pattern="/other(/.*)?"/>'])
def test_root_of_everything_keeps_other_nodes_at_the_top(rules: str, jackrabbit: Any, tmp_path: Path) -> None:
    seed = Odd({**SEED, "other": node()}, SEED_FILTER + '<filter root="/other"/>').write(tmp_path / "seed.zip")
    original = Odd({**ABOVE, "content/a": node()}, f'<filter root="/">{rules}</filter>').write(
        tmp_path / "original.zip"
    )
    rebuilt = tmp_path / "rebuilt.zip"
    rebuild(original, rebuilt)
    files = PackageFiles(PackageRegistry([FilevaultCodec()]), LimitsConfig())
    for package in (original, rebuilt):
        assert list(after(jackrabbit, seed, package)) == ["/content", "/content/a"]
        assert [item["path"] for item in jackrabbit.ask("dump", "/other")] == ["/other"]
        with closing(open_target(f"sqlite:{tmp_path}/{package.stem}")) as target:
            for each in (seed, package):
                files.install(each, target)
            with closing(target.source()) as source:
                held = [found.path for found in source.walk(NodePath("/"))]
        assert [path for path in held if path != "/"] == ["/content", "/content/a", "/other"]


def test_single_binary_without_bytes_is_refused(jackrabbit: Any, tmp_path: Path) -> None:
    """FileVault leaves the property as it is."""
    seed = Odd(SEED, SEED_FILTER).write(tmp_path / "seed.zip")
    without = Odd({**ABOVE, "content/a": node('t="{Binary}"')}).write(tmp_path / "without.zip")
    assert after(jackrabbit, seed, without)["/content/a"][3]["t"][2] == ["old"]
    with pytest.raises(PackageCorruptError, match="'t' has no content"):
        rebuild(without, tmp_path / "rebuilt.zip")


def test_order_that_no_document_names_is_that_of_names(jackrabbit: Any, tmp_path: Path) -> None:
    """Oak takes the order of the zip."""
    original, rebuilt = tmp_path / "original.zip", tmp_path / "rebuilt.zip"
    Odd({**ABOVE, "content/a": node(), "content/a/z": node(), "content/a/b": node()}).write(original)
    rebuild(original, rebuilt)
    orders = [after(jackrabbit, package)["/content/a"][2] for package in (original, rebuilt)]
    assert orders == [["z", "b"], ["b", "z"]]


def test_what_filevault_imports_of_a_filter_without_roots_is_refused(jackrabbit: Any, tmp_path: Path) -> None:
    """Oak gets the nodes that it does not have, without what others have now."""
    seed = Odd(SEED, SEED_FILTER).write(tmp_path / "seed.zip")
    without = Odd({**ABOVE, "content/a": node('t="new"', f"<k {KIND}/>")}, "").write(tmp_path / "without.zip")
    found = after(jackrabbit, seed, without)
    assert found["/content/a"][3]["t"][2] == ["old"]
    assert "/content/a/k" in found
    with pytest.raises(PackageCorruptError, match="names no root"):
        open_source(str(without))


def test_package_keeps_each_property_that_filevault_names(jackrabbit: Any, tmp_path: Path) -> None:
    """The names are those of the classes `PackageProperties` and `MetaInf`."""
    names = jackrabbit.ask("property-names")
    assert len(names) >= 25
    said = {"installhook.x.class" if name == "installhook." else name: f"their <{name}>" for name in names}
    said |= {"packageFormatVersion": "2", "acHandling": "overwrite", "useBinaryReferences": "true", "own": "too"}
    original, rebuilt = tmp_path / "original.zip", tmp_path / "rebuilt.zip"
    Odd({**ABOVE, "content/a": node()}, properties=said).write(original)
    rebuild(original, rebuilt)
    found = jackrabbit.ask("properties", rebuilt)
    assert found.pop("id") == jackrabbit.ask("properties", original)["id"]
    assert found == {**said, "useBinaryReferences": "false", "generator": "Mailboat"}


def test_package_defines_the_node_types_of_its_source(jackrabbit: Any, tmp_path: Path) -> None:
    types = "<'odd'='urn:odd'>\n<'nt'='http://www.jcp.org/jcr/nt/1.0'>\n[odd:kind] > nt:unstructured\n"
    document = node('xmlns:odd="urn:odd"').replace(KIND, 'jcr:primaryType="odd:kind"')
    original, rebuilt = tmp_path / "original.zip", tmp_path / "rebuilt.zip"
    Odd({**ABOVE, "content/a": document}, node_types=types).write(original)
    rebuild(original, rebuilt)
    assert after(jackrabbit, rebuilt)["/content/a"][0] == "odd:kind"
    assert after(jackrabbit, published(original, tmp_path))["/content/a"][0] == "odd:kind"


@pytest.mark.parametrize("own", [{"name": "x"}, {"name": "x", "group": "g"}, {"name": "x", "version": "1"}])
def test_package_keeps_an_id_without_group_or_version(jackrabbit: Any, tmp_path: Path, own: dict[str, str]) -> None:
    """FileVault has no id for a package without a group; one of the empty group has an id without invented parts."""
    entries = "".join(f'<entry key="{key}">{text}</entry>' for key, text in own.items())
    original, rebuilt = tmp_path / "original.zip", tmp_path / "rebuilt.zip"
    with zipfile.ZipFile(original, "w") as archive:
        archive.writestr("META-INF/vault/filter.xml", f'<workspaceFilter version="1.0">{A}</workspaceFilter>')
        archive.writestr("META-INF/vault/properties.xml", HEAD_OF_PROPERTIES + f"<properties>{entries}</properties>")
        archive.writestr("jcr_root/content/a/.content.xml", node())
    name = rebuild(original, rebuilt)
    assert name == f"{own.get('group', '')}:x{':1' if 'version' in own else ''}"
    for package in [original, rebuilt] if "group" in own else [rebuilt]:
        assert jackrabbit.ask("properties", package)["id"] == name


def rebuild(original: Path, into: Path) -> str | None:
    """Make a package of ours of a whole one. Returns its name."""
    files = PackageFiles(PackageRegistry([FilevaultCodec()]), LimitsConfig())
    with closing(open_source(str(original))) as source:
        return files.build(add_request(own_roots(source)), source, into, FILEVAULT, {}).name


def published(original: Path, folder: Path) -> Path:
    """The package that a publisher for Sling makes of a whole one."""
    with memory_engine(folder, EngineParts(codecs={FILEVAULT: FilevaultCodec()})) as engine:
        publisher = engine.publisher(engine.publishing_with(package_type=FILEVAULT, transfer=Transfer.INLINE))
        with closing(open_source(str(original))) as source:
            publisher.publish(add_request(own_roots(source)), source)
        payload = decode_package(engine.records()[-1].value).payload
    assert payload is not None
    into = folder / "published.zip"
    into.write_bytes(payload)
    return into


def after(jackrabbit: Any, *packages: Path) -> dict[str, Shown]:
    """What Oak holds below /content after these packages."""
    jackrabbit.reset()
    for package in packages:
        assert jackrabbit.ask("install", package) == []
    return {item["path"]: shown(item) for item in jackrabbit.ask("dump", "/content")}


def shown(one: Mapping[str, Any]) -> Shown:
    """A node without what the repository makes by itself."""
    properties = {name: value for name, value in one["properties"].items() if name not in MADE}
    children = one["children"] if one["is_ordered"] else sorted(one["children"])
    return one["type"], one["mixins"], children, properties

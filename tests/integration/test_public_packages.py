"""Public content packages of AEM: published, imported, packed again, and compared in Oak with the original.

What Oak holds after our package must be what it holds after the original, but for what FileVault's own pack of the
original loses; in an empty repository, and in one that has an earlier version and content of others. FileVault's
validator must not report an error that it does not report for the original.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.subscriber_process import SubscriberProcess, subscription_of
from mailboat.clock import SystemClock
from mailboat.composition.home import create_home
from mailboat.composition.package_formats import package_registry
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import (
    Config,
    LimitsConfig,
    PackageType,
    PublisherConfig,
    SubscriberAgentConfig,
    Transfer,
)
from mailboat.content.digest import tree_digest
from mailboat.errors import LimitExceededError
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.identifiers import AgentName
from mailboat.model.messages import Action
from mailboat.model.nodes import FILE_TYPE, Node, PropertyType
from mailboat.model.paths import NodePath, ancestors_of, child_of, parent_of
from mailboat.model.pieces import is_run
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.operations.package_files import PackageFiles
from mailboat.packages.filevault.filter_xml import FILTER_XML
from mailboat.packages.filevault.names import repository_name
from mailboat.packages.filevault.sources import VaultSource, open_archive_source
from mailboat.publisher.publisher import own_roots
from mailboat.subscriber.piece_store import PieceStore
from mailboat.subscriber.subscriber import Until
from mailboat.wire.package_messages import decode_package

LONG = pytest.mark.long("public-packages")
WKND, CORE, ACS = (
    "com.adobe.aem.guides:aem-guides-wknd",
    "com.adobe.cq:core.wcm.components",
    "com.adobe.acs:acs-aem-commons",
)
SHORT = [f"{CORE}.config:2.26.0:zip", f"{WKND}.ui.apps:3.2.0:zip"]
WITHIN = "#jcr_root/etc/packages/adobe/consulting/acs-aem-commons"
PACKAGES = [
    *SHORT,
    f"{WKND}.ui.content:3.2.0:zip",
    f"{WKND}.ui.content.sample:3.2.0:zip",
    f"{WKND}.ui.apps:1.0.0:zip",
    f"{WKND}.ui.content:1.0.0:zip",
    f"{WKND}.ui.content.sample:1.0.0:zip",
    f"{CORE}.content:2.26.0:zip",
    f"{CORE}.examples.ui.apps:2.26.0:zip",
    f"{CORE}.examples.ui.content:2.26.0:zip",
    f"{ACS}-ui.apps:6.15.4:zip",
    f"{ACS}-ui.content:6.15.4:zip",
    f"{ACS}-content:4.8.4:zip",
    f"{ACS}-content:4.8.4:zip{WITHIN}-ui.apps-4.8.4.zip",
    f"{ACS}-content:4.8.4:zip{WITHIN}-ui.content-4.8.4.zip",
]
"""Maven coordinates, and after a `#` the entry of a package within."""

EARLIER = {
    f"{WKND}.ui.content:3.2.0:zip": f"{WKND}.ui.content:1.0.0:zip",
    f"{WKND}.ui.content.sample:3.2.0:zip": f"{WKND}.ui.content.sample:1.0.0:zip",
    f"{CORE}.content:2.26.0:zip": f"{CORE}.content:2.23.4:zip",
    f"{ACS}-ui.apps:6.15.4:zip": f"{ACS}-content:4.8.4:zip{WITHIN}-ui.apps-4.8.4.zip",
    f"{ACS}-ui.content:6.15.4:zip": f"{ACS}-content:4.8.4:zip{WITHIN}-ui.content-4.8.4.zip",
}
"""What a repository held before; a package without an earlier version here meets itself."""

STEVT = "http://ns.adobe.com/xap/1.0/sType/ResourceEvent#"
FILTER_PLACE = "vault/filter.xml"
OF_THE_REPOSITORY = ("/jcr:system", "/oak:index", "/rep:")
MADE_BY_THE_REPOSITORY = {
    "@jcr:created",
    "@jcr:lastModified",
    "@jcr:lastModifiedBy",
    "@jcr:predecessors",
    "@jcr:uuid",
    "@jcr:versionHistory",
    "@jcr:baseVersion",
}
TARGETS = ("files:{}/files", "generations:{}/generations", "sqlite:{}/target.db")
TOO_LARGE_FOR_A_MESSAGE = {
    f"{WKND}.ui.content:3.2.0:zip",
    f"{WKND}.ui.content.sample:3.2.0:zip",
    f"{WKND}.ui.content:1.0.0:zip",
    f"{WKND}.ui.content.sample:1.0.0:zip",
    f"{CORE}.examples.ui.apps:2.26.0:zip",
    f"{CORE}.examples.ui.content:2.26.0:zip",
    f"{ACS}-ui.apps:6.15.4:zip",
    f"{ACS}-content:4.8.4:zip",
    f"{ACS}-content:4.8.4:zip{WITHIN}-ui.apps-4.8.4.zip",
}
"""Refused with `transfer: inline`, which carries packages up to `publisher.inline_package_bytes`."""

TOO_LARGE_AS_TREE = {f"{CORE}.content:2.26.0:zip"}
"""Refused in the format `tree` alone, which is not compressed."""

ROUTES = [(kind, how) for kind in PackageType for how in (Transfer.REFERENCE, Transfer.CHUNKS, Transfer.INLINE)]

Lines = dict[tuple[str, str], Any]
"""A repository: what is at a path, by `type`, `mixins`, `children` or `@property`."""


def test_the_corpus_has_at_least_ten_packages() -> None:
    assert len(set(PACKAGES)) == len(PACKAGES) >= 10


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "coordinates", [package if package in SHORT else pytest.param(package, marks=LONG) for package in PACKAGES]
)
def test_a_public_package_arrives_in_oak_as_the_original(
    coordinates: str, public_package: Callable[[str], Path], jackrabbit: Any, tmp_path: Path
) -> None:
    original = fetched(coordinates, public_package, tmp_path)
    earlier = fetched(EARLIER.get(coordinates, coordinates), public_package, tmp_path)
    with ThreadPoolExecutor(1) as executor:  # Oak takes the original while the product publishes it
        awaited = executor.submit(expectation, jackrabbit, original, earlier, tmp_path)
        content, packed, published = routed(coordinates, original, tmp_path)
        expected = awaited.result()
    assert (len(packed), len(published)) == (1, 1), "the same content makes the same package"

    for name, package in (("packed", packed.pop()), ("published", published.pop())):
        ours = tmp_path / f"{name}.zip"
        ours.write_bytes(package)
        more = Counter(jackrabbit.errors(ours)) - expected.errors
        assert (name, list(more and more - about_the_filter(jackrabbit, original, ours, tmp_path))) == (name, [])
        jackrabbit.reset()
        assert (name, without_causes(jackrabbit.ask("install", ours))) == (name, expected.problems)
        assert (name, expected.differences(lines(jackrabbit), content)) == (name, {})

    found, problems = filled(jackrabbit, tmp_path / "published.zip")
    assert problems == expected.problems_where_filled
    made = {where for where in expected.filled.keys() | found.keys() if where[1] in MADE_BY_THE_REPOSITORY}
    assert replace(expected, lines=expected.filled, loose=expected.loose | made).differences(found, content) == {}


def routed(coordinates: str, original: Path, folder: Path) -> tuple[Content, set[bytes], set[bytes]]:
    """The packages made of what targets hold, and those that were published with all binaries in them, as for Sling."""
    with closing(open_archive_source(original)) as source:
        content = Content.of(source)
        original_digest = digest(source, content)
        packed, published = set(), set()
        for kind, how in ROUTES:
            publication = Publication(PublisherConfig(package_type=kind, transfer=how), folder / f"{kind}-{how}")
            too_large = TOO_LARGE_FOR_A_MESSAGE | (TOO_LARGE_AS_TREE if kind is PackageType.TREE else set())
            if how is Transfer.INLINE and coordinates in too_large:
                assert publication.is_refused(source)
                continue
            package = publication.publish(source)
            if kind is PackageType.FILEVAULT and how is not Transfer.REFERENCE:
                published.add(package)
            # how a package travels makes no difference to a kind of target, nor its format to what is packed of it
            targets = TARGETS if how is Transfer.REFERENCE else TARGETS[-1:]
            for target, copy in zip(targets, publication.copies(targets), strict=True):
                assert digest(copy, content) == original_digest
                if how is Transfer.REFERENCE and (kind is PackageType.TREE or target == TARGETS[-1]):
                    packed.add(packed_again(copy, content, folder))
        return content, packed, published


def test_a_wrong_namespace_is_a_difference(jackrabbit: Any, tmp_path: Path) -> None:
    """Also where the repository knows the prefix: the importing session hides what it is called for others."""
    original = made_package(tmp_path / "original.zip", STEVT)
    wrong = made_package(tmp_path / "wrong.zip", "urn:mailboat:namespace:stEvt")
    jackrabbit.ask("install", original)
    first = lines(jackrabbit)
    jackrabbit.reset()
    jackrabbit.ask("install", original)
    expected = Expectation(first, changed(first, lines(jackrabbit)), set(), Counter())
    with closing(open_archive_source(original)) as source:
        content = Content.of(source)
    for is_known in (False, True):
        jackrabbit.reset()
        if is_known:
            jackrabbit.ask("install", made_package(tmp_path / "known.zip", STEVT, root="/known"))
        jackrabbit.ask("install", wrong)
        found = {where: text for where, text in lines(jackrabbit).items() if where[0] != "/known"}
        where = ("/content/a", "@stEvt:action") if is_known else ("/", "xmlns:stEvt")
        assert where in expected.differences(found, content)
    assert ("/content/a", "@stEvt:action") not in expected.loose


@LONG
def test_a_narrower_root_of_a_public_package_has_no_rule_that_cannot_match(
    public_package: Callable[[str], Path], jackrabbit: Any, tmp_path: Path
) -> None:
    """The validator has an error for such rules; the original has 8 for this root, of which one can match below."""
    original, narrower = public_package(f"{CORE}.examples.ui.content:2.26.0:zip"), tmp_path / "narrower.zip"
    root = NodePath("/content/core-components-examples/library/core-content")
    with closing(open_archive_source(original)) as source:
        PackageFiles(package_registry(), LimitsConfig()).build(add_request([root]), source, narrower, "filevault", {})
    with closing(open_archive_source(narrower)) as package:
        assert package.filter is not None
        assert [rule.pattern.pattern for rule in package.filter.sets[0].rules] == [f"{root}/aemform"]
        assert "acHandling" not in package.properties  # no access control list is below this root
    assert [error for error in jackrabbit.errors(narrower) if error not in jackrabbit.errors(original)] == []


# ------------------------------------------------------------------------------------------------- the original


@dataclass(frozen=True)
class Expectation:
    """What Oak holds after the original, and where it may hold something else after another import of it.

    Attributes:
        lines: The repository.
        loose: What two imports of the original differ in (times, new identifiers), what FileVault's own pack loses, and
            what policies outside of the filter leave behind: a mixin of the node above, and no policy.
        problems: The nodes that FileVault could not import, such as policies that this Oak does not know.
        errors: What the validator reports.
        filled: What Oak holds after the original meets an earlier version and content of others; then the problems.
        problems_where_filled: See there.
    """

    lines: Lines
    loose: set[tuple[str, str]]
    problems: set[str]
    errors: Counter[str]
    filled: Lines = field(default_factory=dict)
    problems_where_filled: set[str] = field(default_factory=set)

    def differences(self, found: Lines, content: Content) -> Lines:
        """What of the original is not there, or is different; None for what only `found` has."""
        kept = files_kept(self.lines, found, content)
        different = {
            difference
            for difference in differences(self.lines, found, content)
            if not set(at_and_above(difference[0])) & kept
        }
        return {where: self.lines.get(where) for where in different - self.loose}


FILLED = "filled"


def expectation(jackrabbit: Any, original: Path, earlier: Path, folder: Path) -> Expectation:
    problems = without_causes(jackrabbit.ask("install", original))
    first = lines(jackrabbit)
    jackrabbit.ask("repack", original, folder / "theirs.zip")
    if earlier != original:
        jackrabbit.reset()
        jackrabbit.ask("install", earlier)
    jackrabbit.ask("litter", *OF_THE_REPOSITORY, "/home")  # which takes users and groups only
    jackrabbit.keep(FILLED)
    where_filled = filled(jackrabbit, original)
    loose = set()
    for file in (folder / "theirs.zip", without_uncovered_policies(original, folder)):
        jackrabbit.reset()
        jackrabbit.ask("install", file)
        loose |= changed(first, lines(jackrabbit))
    return Expectation(first, loose, problems, Counter(jackrabbit.errors(original)), *where_filled)


def filled(jackrabbit: Any, package: Path) -> tuple[Lines, set[str]]:
    """What a repository holds, and what was refused, after a package meets an earlier version and content of others."""
    jackrabbit.restore(FILLED)
    problems = without_causes(jackrabbit.ask("install", package))
    return lines(jackrabbit), problems


def lines(jackrabbit: Any) -> Lines:
    """The repository as a new session shows it, with the namespace of each prefix in use at `/`."""
    found: Lines = {}
    used: set[str] = set()
    for node in jackrabbit.ask("dump", "/"):
        path = node["path"]
        if path == "/" or path.startswith(OF_THE_REPOSITORY):
            continue
        used.update(prefixes_in(node))
        found[path, "type"], found[path, "mixins"] = node["type"], sorted(node["mixins"])
        if node["is_ordered"]:
            found[path, "children"] = node["children"]
        found |= {(path, f"@{name}"): value for name, value in node["properties"].items()}
    known = jackrabbit.ask("namespaces")
    return found | {("/", f"xmlns:{prefix}"): known.get(prefix) for prefix in used}


def prefixes_in(node: Any) -> Iterator[str]:
    """Of the names and of the values that are names or paths."""
    texts = [node["path"], node["type"], *node["mixins"], *node["properties"]]
    for kind, _, values in node["properties"].values():
        if kind in (PropertyType.NAME, PropertyType.PATH):
            texts += values
    for step in "/".join(texts).split("/"):
        prefix, colon, _ = step.partition(":")
        if colon:
            yield prefix


def changed(left: Lines, right: Lines) -> set[tuple[str, str]]:
    return {where for where in left.keys() | right.keys() if left.get(where) != right.get(where)}


def differences(theirs: Lines, ours: Lines, content: Content) -> set[tuple[str, str]]:
    """Where two repositories differ, but for the order of children that no document names, which nothing prescribes."""

    def ordered(found: Lines, where: tuple[str, str]) -> tuple[set[str], list[str]]:
        named, names = content.orders.get(where[0], ()), found.get(where, [])
        return set(names), [name for name in names if name in named]

    return {
        where
        for where in changed(theirs, ours)
        if where[1] != "children" or ordered(theirs, where) != ordered(ours, where)
    }


def files_kept(theirs: Lines, ours: Lines, content: Content) -> set[str]:
    """Files that FileVault loses from the original, as within users and groups, and imports from our package."""
    return {path for path in content.files if theirs.get((path, "type")) != ours.get((path, "type")) == FILE_TYPE}


def at_and_above(path: str) -> list[str]:
    return [path, *ancestors_of(NodePath(path))]


def about_the_filter(jackrabbit: Any, original: Path, ours: Path, folder: Path) -> Counter[str]:
    """What the validator says of our filter also when the original has it: its roots are those of the request."""
    with zipfile.ZipFile(ours) as archive:
        changed_file = {FILTER_XML: archive.read(FILTER_XML)}
    narrowed = rewritten(original, folder / "narrowed.zip", changed_file)
    return Counter(error for error in jackrabbit.errors(narrowed) if error.split("\t")[1] == FILTER_PLACE)


def made_package(file: Path, uri: str, root: str = "/content/a") -> Path:
    """A package of one node with a property of the namespace."""
    node = f'xmlns:stEvt="{uri}" jcr:primaryType="nt:unstructured" stEvt:action="saved"'
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(FILTER_XML, f'<workspaceFilter version="1.0"><filter root="{root}"/></workspaceFilter>')
        archive.writestr(f"jcr_root{root}/.content.xml", f'<jcr:root xmlns:jcr="http://www.jcp.org/jcr/1.0" {node}/>')
    return file


def without_uncovered_policies(original: Path, folder: Path) -> Path:
    with closing(open_archive_source(original)) as source:
        assert source.filter is not None
        removed = [
            entry
            for entry in zipfile.ZipFile(original).namelist()
            if entry.endswith("/_rep_policy.xml") and not source.filter.covers(policy_path(entry))
        ]
    return rewritten(original, folder / "without.zip", dict.fromkeys(removed))


def policy_path(entry: str) -> NodePath:
    steps = [repository_name(step) for step in entry.removeprefix("jcr_root/").split("/")[:-1]]
    return NodePath("/" + "/".join([*steps, "rep:policy"]))


def rewritten(package: Path, into: Path, changed_files: Mapping[str, bytes | None]) -> Path:
    """A copy of a package with other bytes in some files, or without them."""
    with zipfile.ZipFile(package) as before, zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as after:
        for entry in before.infolist():
            name = entry.filename
            content = changed_files[name] if name in changed_files else before.read(entry)
            if content is not None:
                after.writestr(name, content)
    return into


def without_causes(problems: list[str]) -> set[str]:
    return {problem.partition(": ")[0] for problem in problems}


def fetched(coordinates: str, public_package: Callable[[str], Path], folder: Path) -> Path:
    artifact, _, entry = coordinates.partition("#")
    return public_package(artifact) if not entry else unpacked(public_package(artifact), entry, folder)


def unpacked(outer: Path, entry: str, folder: Path) -> Path:
    inner = folder / Path(entry).name
    with zipfile.ZipFile(outer) as archive:
        inner.write_bytes(archive.read(entry))
    return inner


# ---------------------------------------------------------------------------------------------------- the product


@dataclass(frozen=True)
class Content:
    """What of a package is published: what its own filter covers.

    `of_copies` asks a target for the same, which has no filter: for the highest nodes of what is covered.
    """

    owned: WorkspaceFilter
    of_copies: DistributionRequest
    files: frozenset[str]
    orders: Mapping[str, tuple[str, ...]]
    properties: Mapping[str, str]

    @staticmethod
    def of(source: VaultSource) -> Content:
        assert source.filter is not None
        nodes: dict[NodePath, Node] = {}
        for filter_set in source.filter.sets:
            nodes |= {node.path: node for node in source.walk(filter_set.root)}
        covered = {path for path in nodes if source.filter.covers(path)}
        above_others = {above for path in nodes.keys() - covered for above in ancestors_of(path)}
        deep = {path for path in covered if path not in above_others}
        tops = [path for path in nodes if path in covered and parent_of(path) not in deep]
        of_copies = DistributionRequest(Action.ADD, tuple(tops), frozenset(path for path in tops if path in deep))
        orders = {path: node.child_order for path, node in nodes.items() if node.child_order}
        files = frozenset(path for path, node in nodes.items() if node.primary_type == FILE_TYPE)
        return Content(source.filter, of_copies, files, orders, source.package_properties())


def by_own_filter(source: VaultSource) -> DistributionRequest:
    roots = own_roots(source)
    return DistributionRequest(Action.ADD, roots, frozenset(roots))


class Publication:
    """A home of its own, from which the content is published once and imported into targets."""

    def __init__(self, config: PublisherConfig, place: Path) -> None:
        self.place = place
        self.home = create_home(place / "home", Config(publisher=config))
        with initialise(self.home):
            pass

    def publish(self, source: VaultSource) -> bytes | None:
        """Returns the package as it travels, in its message or in pieces; None where it lies in the blob store."""
        with Workspace(self.home, SystemClock()) as workspace:
            receipt = workspace.publisher("author").publish(by_own_filter(source), source)
            record = workspace.journal.record_at(workspace.package_topic, receipt.offset)
            assert record is not None
            message = decode_package(record.value)
            if message.payload is not None:
                return message.payload
            if message.payload_ref is None or not is_run(message.payload_ref):
                return None
            pieces = PieceStore(workspace.journal, workspace.package_topic, workspace.clock)
            with closing(
                pieces.open(message, receipt.offset, workspace.limits.max_total_bytes, lambda: None)
            ) as stream:
                return stream.read()

    def is_refused(self, source: VaultSource) -> bool:
        with Workspace(self.home, SystemClock()) as workspace:
            before = workspace.journal.bounds(workspace.package_topic)
            with pytest.raises(LimitExceededError, match="does not fit a message"):
                workspace.publisher("author").publish(by_own_filter(source), source)
            return workspace.journal.bounds(workspace.package_topic) == before

    def copies(self, targets: Sequence[str]) -> Iterator[Any]:
        with Workspace(self.home, SystemClock()) as workspace:
            for target in targets:
                where = target.format(self.place)
                name = AgentName(where.partition(":")[0])
                subscription = subscription_of(self.home, SubscriberAgentConfig(name, where))
                with closing(SubscriberProcess(workspace, subscription, lambda _: None)) as process:
                    process.claim()
                    process.run(Until.CAUGHT_UP)
                with closing(open_source(where)) as copy:
                    yield copy


def digest(source: Any, content: Content) -> bytes:
    """Of the covered nodes, with orders of those of them that are there: packages for repositories name no others."""
    roots = sorted({filter_set.root for filter_set in content.owned.sets})
    nodes = {node.path: node for root in roots for node in source.walk(root) if content.owned.covers(node.path)}

    def shortened(node: Node) -> Node:
        if node.child_order is None:
            return node
        kept = tuple(name for name in node.child_order if child_of(node.path, name) in nodes)
        return replace(node, child_order=kept)

    return tree_digest(map(shortened, nodes.values()))


def packed_again(copy: Any, content: Content, folder: Path) -> bytes:
    files = PackageFiles(package_registry(), LimitsConfig())
    into = folder / "packed.zip"
    files.build(content.of_copies, copy, into, "filevault", dict(content.properties))
    return into.read_bytes()

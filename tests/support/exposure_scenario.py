"""Bulk builds and single packages in one log, for the tests of what readers of `current` see meanwhile.

`Author` appends packages of one file each, and knows which trees readers may see: those at offsets at which no build
was open. `import_all` is the whole of a child process that imports them and dies at a failpoint.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mailboat.config.document import Expose
from mailboat.content.digest import tree_digest
from mailboat.content.sources.folder import FolderSource
from mailboat.content.targets.generations import CURRENT
from mailboat.failpoints import Failpoint, NoFailpoints
from mailboat.model.filters import filter_for
from mailboat.model.identifiers import AgentName, BuildId, PackageId
from mailboat.model.messages import Action, BulkPart, PackageMessage
from mailboat.model.nodes import Binary, Node, file_node, folder_node
from mailboat.model.paths import ROOT, NodePath
from mailboat.packages.port import PackageContents
from mailboat.packages.tree import TreeCodec
from mailboat.subscriber.subscriber import Until
from mailboat.testing.memory_content import MemorySource
from support.crashes import KillingFailpoints
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, EngineParts

SITE: Final = NodePath("/site")
MISSING_BLOB: Final = f"sha256:{'00' * 32}:5"


@dataclass(frozen=True, slots=True)
class Step:
    """One package: the file that it brings, and its place in a build if it has one.

    Attributes:
        name: The file, in `/site`; None stands for a package that can't be imported.
        text: What is in it; None removes the file.
        part: Its place in a build; None for a single publication.
        publisher: Who publishes it.
    """

    name: str | None
    text: str | None = "text"
    part: BulkPart | None = None
    publisher: AgentName = AUTHOR


def build_of(build_id: str, *names: str | None, publisher: AgentName = AUTHOR) -> list[Step]:
    """A build whose packages bring a file each, in which the build's id stands."""
    return [
        Step(name, build_id, BulkPart(BuildId(build_id), number, len(names)), publisher)
        for number, name in enumerate(names)
    ]


@dataclass
class Author:
    """Appends packages to an engine's log.

    Attributes:
        engine: Whose log it is.
        files: The tree so far: text by name.
        whole: The digests of the trees that readers may see, in order; first that of the empty tree.
    """

    engine: Engine
    files: dict[str, str] = field(default_factory=dict)
    whole: list[str] = field(default_factory=lambda: [digest_of_files({})])
    _has_site: bool = False
    _open: set[tuple[AgentName, BuildId]] = field(default_factory=set)

    def publish(self, steps: Sequence[Step]) -> None:
        """Append a package for each."""
        for step in steps:
            self.engine.send(PACKAGES, message_of(step))
            self._note(step)

    def _note(self, step: Step) -> None:
        self._has_site = self._has_site or (step.name is not None and step.text is not None)
        if step.name is not None and step.text is None:
            self.files.pop(step.name, None)
        elif step.name is not None and step.text is not None:
            self.files[step.name] = step.text
        if step.part is not None:
            key = (step.publisher, step.part.build_id)
            self._open = self._open - {key} if step.part.is_last else self._open | {key}
        if not self._open:
            self.whole.append(digest_of_files(self.files, has_site=self._has_site))


def digest_of_files(files: Mapping[str, str], *, has_site: bool = False) -> str:
    """The canonical digest of the tree that has these files in `/site`, in hexadecimal; it may stay when they go."""
    nodes = [_file(name, text) for name, text in files.items()]
    return tree_digest(MemorySource([folder_node(SITE), *nodes] if nodes or has_site else []).walk(ROOT)).hex()


def digest_seen(folder: Path) -> str:
    """The digest of what a reader of `current` in a target's folder sees; that of the empty tree if it is missing."""
    current = folder / CURRENT
    if not current.exists():
        return digest_of_files({})
    with closing(FolderSource(current.resolve())) as source:
        return tree_digest(source.walk(ROOT)).hex()


def import_all(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Import everything, builds as a whole, three records at a time; die at the n-th time `failpoint` is reached."""
    failpoints = NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)
    with (
        Engine(Path(folder), EngineParts(failpoints=failpoints)) as engine,
        closing(engine.target("generations")) as to,
    ):
        settings = engine.with_settings(max_batch_records=3, expose=Expose.BUILD, expose_seconds=None)
        engine.subscriber(to, settings).run(Until.CAUGHT_UP)


def _file(name: str, text: str) -> Node:
    return file_node(NodePath(f"{SITE}/{name}"), Binary(text.encode()))


def message_of(step: Step) -> PackageMessage:
    """The package of a step, as its publisher sends it."""
    message = PackageMessage(
        SLING_ID, PackageId("dstrpck-0-step"), Action.ADD, "tree", step.publisher, bulk=step.part, paths=(SITE,)
    )
    if step.name is None:
        return message._replace(payload_ref=MISSING_BLOB, package_length_bytes=5)
    path = NodePath(f"{SITE}/{step.name}")
    nodes = [] if step.text is None else [_file(step.name, step.text)]
    into = io.BytesIO()
    contents = PackageContents(filter_for([], [path]), nodes, (folder_node(SITE),) if nodes else ())
    summary = TreeCodec().write(contents, into)
    return message._replace(
        payload=into.getvalue(),
        package_length_bytes=summary.length_bytes,
        package_digest=summary.package_digest,
        paths=(path,),
        deep_paths=(path,),
    )

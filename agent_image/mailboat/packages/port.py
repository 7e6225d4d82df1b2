"""What the engine needs of a package format.

A codec writes a filter and a stream of nodes, and reads them back, both in memory that does not grow with the package.
Everything that a reader gives was checked: paths, limits, structure, coverage. All codecs pass
`mailboat.testing.package_contract`, and carry the same trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from mailboat.config.document import LimitsConfig
from mailboat.errors import LimitExceededError, UnknownRequiredFeatureError, UntrustedInputError
from mailboat.model.changes import Subtrees, TreeChange
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.wire.node_bodies import OpenBinary

NAMESPACE_KEY: Final = "xmlns:"
"""Keys of `PackageContents.properties` that begin so name the namespace of a prefix."""
AC_HANDLING: Final = "acHandling"
"""The key of how an importer treats access control lists."""


@dataclass(frozen=True, slots=True)
class PackageContents:
    """What is to be written.

    Attributes:
        filter: What the package will own.
        nodes: Covered nodes, parents first. Read once.
        ancestors: The nodes above the roots that a target may have to make, from the top down.
        directories: Paths above covered nodes that a target may have to make, of whatever type fits there.
        inline_binary_bytes: Binaries up to this size travel inside the node; None means all travel in the package.
            Larger ones are named by digest and must be in the blob store already, unless `is_self_contained`.
        is_self_contained: Carry every binary in the package: for export, or where there is no blob store.
        refuse_collisions: Refuse two names in one folder as readers do, see `LimitsConfig`.
        properties: What the format may note of the package: `name`, `group`, `version`, …; and
            `xmlns:<prefix>`, the namespace of a prefix.
        namespaces: What the source says of prefixes that are not generally known; may grow while `nodes` are read.
            None if it makes none known, and will not.
        is_for_repositories: Refuse names and values that a JCR repository can't hold.
        node_types: Files that define node types, by entry; in formats that have them.
        limits: What readers of the same configuration accept: nothing beyond it is written.
        spool: The folder for what a format has to pack before it is written; None: that of the system.
    """

    filter: WorkspaceFilter
    nodes: Iterable[Node]
    ancestors: tuple[Node, ...] = ()
    inline_binary_bytes: int = 64 * 1024
    is_self_contained: bool = False
    refuse_collisions: bool = False
    properties: dict[str, str] = field(default_factory=dict)
    namespaces: NamespaceTable | None = None
    is_for_repositories: bool = False
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    directories: Sequence[NodePath] = ()
    node_types: Mapping[str, bytes] = field(default_factory=dict)
    spool: str | None = None


@dataclass(frozen=True, slots=True)
class PackageSummary:
    """What was written.

    Attributes:
        length_bytes: Size of the package.
        package_digest: SHA-256 of its bytes.
        tree_digest: Canonical digest of the nodes, the same in every format.
        node_count: Covered nodes.
        content_bytes: Bytes of values and binaries, wherever they travel.
        name: What a self-contained package calls itself; None in formats without names.
    """

    length_bytes: int
    package_digest: bytes
    tree_digest: bytes
    node_count: int
    content_bytes: int
    name: str | None = None


_CORRECT: Final = "correct it in the package or its source, then repeat the command"
_RAISE: Final = "if you trust the package, raise that limit in the configuration of the home"


@contextmanager
def refusals_of(file: Path | str) -> Iterator[None]:
    """Name the package, checkout or source in what is refused of it, and what to do about it."""
    try:
        yield
    except UnknownRequiredFeatureError as error:
        error.with_facts(file=str(file))
        raise
    except UntrustedInputError as error:
        is_limit = isinstance(error, LimitExceededError) and "limits." in error.message
        error.with_facts(file=str(file)).with_next_step(_RAISE if is_limit else _CORRECT)
        raise


def beyond_limits(what: str, limit: int, **facts: object) -> LimitExceededError:
    """The error for contents beyond a limit that subscribers of the same configuration have: none is written."""
    return LimitExceededError(
        what,
        next_step="publish in several requests, or raise the limit at publisher and subscribers",
        limit=limit,
        **facts,
    )


class PackageReader(Protocol):
    """An open package."""

    @property
    def filter(self) -> WorkspaceFilter:
        """What the package owns."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What the package says of itself, in formats that have properties."""

    def change(self) -> TreeChange:
        """The content, to apply. The records are a stream that is read once; reading it checks it.

        Raises: (also while the records are read)
            PackageCorruptError, LimitExceededError, PathRefusedError, UnknownRequiredFeatureError.
        """

    def close(self) -> None:
        """Release spooled files."""


ReadTogether = Callable[[Sequence[bytes], Sequence[NodePath], LimitsConfig], Subtrees | None]
"""See `PackageCodec.read_together`."""


class PackageCodec(Protocol):
    """One package format."""

    @property
    def package_type(self) -> str:
        """The name in the message: `tree`, `filevault`."""

    def write(self, contents: PackageContents, into: BinaryIO) -> PackageSummary:
        """Write a package to a seekable stream, from its current position on. The bytes depend on the contents only."""

    def check(self, contents: PackageContents) -> None:
        """Refuse contents that `write` would refuse. Reads the nodes, and of their binaries no more than the beginning.

        Raises: as `write`, but for what only the bytes of binaries show.
        """

    def read_bytes(
        self,
        payload: bytes,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> TreeChange:
        """Read a small package at once: the hot path of subscribers. Every record is checked before the first is given.

        Args:
            payload: The whole package.
            limits: What is accepted.
            open_blob: Opens binaries that the package names by digest; None leaves them without content.
            are_bytes_checked: The caller has compared the bytes with a digest from elsewhere (the message's), so a
                checksum that the format carries itself needn't be computed again. All else is checked.

        Raises: as `PackageReader.change`.
        """

    @property
    def read_together(self) -> ReadTogether | None:
        """Reads several small packages at once; None in formats that have no faster way for a whole batch.

        Gives None unless each package owns just the subtree of its root and brings all of it inline, and everything in
        all of them is right. The caller then reads them one by one, which accepts the same and says what is wrong.

        Takes whole packages, whose bytes the caller has compared with digests from elsewhere, for each the checked path
        that it must own, and what is accepted.
        """

    def open(
        self,
        stream: BinaryIO,
        limits: LimitsConfig,
        open_blob: OpenBinary | None,
        *,
        are_bytes_checked: bool = False,
    ) -> PackageReader:
        """Open a package of any size from a seekable stream, from its current position to its end.

        The stream must stay open and unchanged until the reader and all binaries it gave are closed; one thread at a
        time may use them. Arguments and errors are those of `read_bytes`.
        """

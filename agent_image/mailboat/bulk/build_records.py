"""The records of a bulk build that travel between driver and executors, and are kept in its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec

from mailboat.blobs.references import BlobReference
from mailboat.bulk.cutter import Bin, BinKind, Budget, Order, order_of
from mailboat.errors import MailboatError
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import FileIdentity
from mailboat.model.paths import NodePath

COUNTED: Final = msgspec.Meta(ge=0, le=2**63 - 1)
"""Of a number in a document: it may be stored in SQLite."""

Count = Annotated[int, COUNTED]


class BuildRequest(NamedTuple):
    """What is to be built, as a user says it; of a FileVault source no more than its filter has."""

    source: str
    roots: Sequence[NodePath]
    budget: Budget = Budget()
    file_identity: FileIdentity = FileIdentity.INODE


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the packages of a build are made: everything that decides about their bytes but the content.

    A document with further fields is refused: a later version would build something else.

    Attributes:
        source: As a user gives it, made absolute.
        roots: What is built, outermost and in walk order.
        budget: How it is cut.
        package_type: The codec, as messages call it.
        inline_binary_bytes: Binaries up to this size travel in the package.
        inline_package_bytes: Packages up to this size stand in the manifest and travel in the message.
        are_collisions_refused: See `PackageContents`.
        log: The identity of the log: whose packages are stored, for the blob store.
        publisher: The publisher; empty in documents of builds without one.
        file_identity: What files of a plain folder are recognised by.
    """

    source: str
    roots: tuple[NodePath, ...]
    budget: Budget = msgspec.field(default_factory=Budget)
    package_type: str = "tree"
    inline_binary_bytes: int = 64 * 1024
    inline_package_bytes: int = 16 * 1024
    are_collisions_refused: bool = True
    log: str = ""
    publisher: str = ""
    file_identity: FileIdentity = FileIdentity.INODE

    @property
    def subject(self) -> tuple[str, tuple[NodePath, ...], str, str]:
        """What is built, where to, and by whom: of builds that agree in it, each replaces the one before."""
        return self.source, self.roots, self.log, self.publisher


class BuildProblem(NamedTuple):
    """Something that could not be listed or built: the error's name, its message, and where."""

    path: NodePath
    name: str
    message: str


def problem_of(path: NodePath, error: MailboatError) -> BuildProblem:
    """What an error is in a report."""
    return BuildProblem(path, error.name, error.message)


class BuiltNode(NamedTuple):
    """A node of a package: its path and its digest, see `ChangeDigests`."""

    path: NodePath
    digest: bytes


@dataclass(frozen=True, slots=True)
class BuiltBin:
    """A package of a build, as in its manifest.

    Attributes:
        kind: See `BinKind`.
        roots: What the package owns; of `CONTENT` with the subtrees, of `SKELETON` alone.
        signature: Of what was listed; see `Bin`.
        deep_roots: Those of the roots that are owned with their subtrees.
        content_bytes: Bytes of values and binaries.
        package_bytes: Size of the package.
        package_digest: SHA-256 of its bytes.
        tree_digest: Canonical digest of its nodes.
        payload: The package where it is small; otherwise it is in the blob store.
        binaries: What it refers to in the blob store.
        nodes: What is in it, in its order.
        stored_bytes: Bytes that were given to the blob store while it was built.
        is_present: The log has it from an earlier build, so that it isn't published again.
    """

    kind: BinKind
    roots: tuple[NodePath, ...]
    signature: bytes
    deep_roots: frozenset[NodePath]
    content_bytes: int
    package_bytes: int
    package_digest: bytes
    tree_digest: bytes
    payload: bytes | None = None
    binaries: tuple[BlobReference, ...] = ()
    nodes: tuple[BuiltNode, ...] = ()
    stored_bytes: int = 0
    is_present: bool = False

    @property
    def order(self) -> Order:
        """Where it stands in the order of publication."""
        return order_of(self.kind, self.roots[0])


BinResult = BuiltBin | BuildProblem
"""The result of a bin."""


def filter_of(one: Bin | BuiltBin) -> WorkspaceFilter:
    """What a bin's package owns, the most specific root first."""
    deep = one.deep_roots if isinstance(one, BuiltBin) else set(one.roots if one.kind is BinKind.CONTENT else ())
    ordered = sorted(one.roots, key=lambda root: (root == "/", -root.count("/"), root))
    return WorkspaceFilter(tuple(FilterSet(root, is_shallow=root not in deep) for root in ordered))

"""Dividing a source among tasks, and listing and cutting one branch of it.

Branches are single nodes near the top and the subtrees below them; together they are the tree, each node once. However
it is divided, the bins are the same (`cutter.py`): so a plan may ask for as many branches as there are tasks to feed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from mailboat.bulk.cutter import Bin, Budget, Cut, Cutter, Loose, finish_cut
from mailboat.content.binaries import content_bytes_of
from mailboat.content.keys import key_of
from mailboat.content.listed_nodes import BranchingSource, ListedNode, ListedSource, UnlistedEntry, children_of
from mailboat.content.port import Source
from mailboat.content.watched_sources import namespaces_of
from mailboat.errors import MailboatError, SourceMissingError, UsageError
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath, child_of, is_within
from mailboat.publisher.published import ChangeDigests

_MOST_CHILDREN: Final = 4096
"""Of a wider folder no child is a branch of its own: the plan would be as long as the listing."""


Watch = Callable[[ListedNode | UnlistedEntry], ListedNode | UnlistedEntry]
"""Is given each item of a listing, and gives it on."""


class Branch(NamedTuple):
    """A part of a tree: the subtree at `path`, or that node alone."""

    path: NodePath
    is_deep: bool


def outermost(roots: Iterable[NodePath]) -> tuple[NodePath, ...]:
    """The roots in walk order, each once, without those that lie below another. Raises: UsageError for none."""
    found = list[NodePath]()
    for root in sorted(set(roots), key=key_of):
        if not found or not is_within(root, found[-1]):
            found.append(root)
    if not found:
        raise UsageError("a build needs at least one path", next_step="write / when all of the source is meant")
    return tuple(found)


def plan_branches(source: Source, roots: Sequence[NodePath], wanted: int) -> list[Branch]:
    """Divide the tree below some outermost roots into about `wanted` branches or more, in walk order.

    Raises:
        SourceMissingError: A root is not in the source.
    """
    deep = list(roots)
    alone = list[Branch]()
    for root in roots:
        _check_present(source, root)
    while deep and len(deep) < wanted and isinstance(source, BranchingSource):
        further = list[NodePath]()
        whole = list[NodePath]()
        for path in deep:
            names = _child_names(source, path)
            if names is None:
                whole.append(path)
            else:
                alone.append(Branch(path, is_deep=False))
                further += [child_of(path, name) for name in names]
        if not further:
            return _ordered([*alone, *(Branch(path, is_deep=True) for path in whole)])
        alone += [Branch(path, is_deep=True) for path in whole]
        deep = further
    return _ordered([*alone, *(Branch(path, is_deep=True) for path in deep)])


def _ordered(branches: list[Branch]) -> list[Branch]:
    return sorted(branches, key=lambda branch: key_of(branch.path))


def _check_present(source: Source, root: NodePath) -> None:
    if next(listed_nodes(source, root, is_deep=root == "/"), None) is None:
        raise SourceMissingError(
            f"{source.uri} has nothing at {root}",
            next_step="name other paths; mailboat publish removes what has no content at a root of a FileVault filter",
            path=root,
        )


def _child_names(source: Source, path: NodePath) -> Sequence[str] | None:
    """The children of a path; None where it has none, too many, or can't be read: then it is listed as a whole."""
    try:
        names = children_of(source, path)
    except MailboatError:
        return None
    return names if 0 < len(names) <= _MOST_CHILDREN else None


def cut_branch(source: Source, branch: Branch, budget: Budget, watch: Watch | None = None) -> Iterator[Cut]:
    """Cut a branch. What is no `Bin` is for `finish_cut`, with that of all other branches.

    Raises: as `Source.walk`, where the source can't list around what is wrong.
    """
    items = listed_nodes(source, branch.path, is_deep=branch.is_deep)
    if watch is not None:
        items = map(watch, items)
    return iter(items) if not branch.is_deep else Cutter(budget).cut(items)


def cut_whole(
    source: Source, roots: Sequence[NodePath], budget: Budget, watch: Watch | None = None
) -> Iterator[Bin | UnlistedEntry]:
    """Cut everything below some outermost roots here and now. `watch` is given what is listed, and gives it back.

    Raises: SourceMissingError; as `Source.walk`.
    """
    loose = list[Loose]()
    for branch in plan_branches(source, roots, 1):
        for item in cut_branch(source, branch, budget, watch):
            if isinstance(item, Bin):
                yield item
            else:
                loose.append(item)
    yield from finish_cut(loose, budget)


def cut_if_small(
    source: Source, roots: Sequence[NodePath], budget: Budget, most_nodes: int
) -> list[Bin | UnlistedEntry] | None:
    """As `cut_whole`; None when there are more nodes than that, of which no further ones were listed.

    Raises: SourceMissingError; as `Source.walk`.
    """
    found, loose, rest = list[Bin | UnlistedEntry](), list[Loose](), most_nodes
    for branch in plan_branches(source, roots, 1):
        # one more than may be: with it there are too many, and no further ones are listed
        items = list(islice(listed_nodes(source, branch.path, is_deep=branch.is_deep), rest + 1))
        rest -= len(items)
        if rest < 0:
            return None
        for item in Cutter(budget).cut(items) if branch.is_deep else items:
            if isinstance(item, Bin):
                found.append(item)
            else:
                loose.append(item)
    return [*found, *finish_cut(loose, budget)]


def items_of(source: Source, roots: Iterable[NodePath], *, is_deep: bool) -> Iterator[ListedNode | UnlistedEntry]:
    """The listing of several roots, one after the other."""
    for root in roots:
        yield from listed_nodes(source, root, is_deep=is_deep)


def listed_nodes(source: Source, path: NodePath, *, is_deep: bool = True) -> Iterator[ListedNode | UnlistedEntry]:
    """What is at and below a path, by the fastest way that the source offers; a namespace that changed is a change.

    A source that lists without reading does not know which prefixes a node uses, so all of its namespaces count there.

    Raises: as `Source.walk`.
    """
    namespaces = namespaces_of(source)
    if not isinstance(source, ListedSource):
        digests = ChangeDigests(source)
        for node in source.walk(path, is_deep=is_deep):
            yield listed_as(node, digests)
    elif not namespaces:
        yield from source.listed(path, is_deep=is_deep)
    else:
        salt = repr(sorted(namespaces.items())).encode()
        for item in source.listed(path, is_deep=is_deep):
            yield item if isinstance(item, UnlistedEntry) else _salted(item, salt)


def listed_as(node: Node, digests: ChangeDigests) -> ListedNode:
    """How a node that was read is listed where the source lists none itself."""
    return ListedNode(node.path, content_bytes_of(node), digests.of(node))


def _salted(node: ListedNode, salt: bytes) -> ListedNode:
    return node._replace(signature=hashlib.sha256(node.signature + salt).digest())

"""Verification: whether targets hold what the source has, node by node, by canonical digests.

One stage over the branches of the source: each task compares its part with every target, in bounded memory, and gives
what differs. So the differences are a DataFrame, as long as there are differences and not as the trees are large.
Executors read the targets where they are; each can be read there, by a path that is the same for all of them. Called by
`mailboat bulk verify` and from notebooks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import pyarrow as pa

from mailboat.bulk.source_branches import Branch, plan_branches
from mailboat.bulk.spark.arrow_columns import ArrowColumn
from mailboat.bulk.spark.stages import BRANCHES_PER_CORE, TASKS_PER_CORE, Stage, StageRunner, runs_of
from mailboat.composition.source_openers import open_source
from mailboat.content.differences import changed_parts, differences
from mailboat.content.listed_nodes import children_of
from mailboat.content.port import Source
from mailboat.errors import MailboatError
from mailboat.json_decoder import decoder_of
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath, child_of
from mailboat.wire.node_bodies import node_digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KINDS: Final = {"added": "missing", "removed": "extra", "changed": "changed"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared.

    Attributes:
        source: As a user gives it.
        targets: What should equal it, each as a user gives it: anything that can be a source.
        roots: Content paths; what is at and below them is compared.
    """

    source: str
    targets: tuple[str, ...]
    roots: tuple[NodePath, ...]


@dataclass(frozen=True, slots=True)
class CompareWork:
    """Branches for one task to compare."""

    comparison: Comparison
    branches: tuple[Branch, ...]


class TargetDifference(NamedTuple):
    """A node of a target that is not as in the source.

    Attributes:
        target: Which one.
        path: Where.
        kind: `missing` in the target, `extra` there, `changed`, or `failed`: it could not be compared from here on.
        details: Of a changed node what changed; of a failure what failed.
    """

    target: str
    path: str
    kind: str
    details: tuple[str, ...] = ()


DIFFERENCE_COLUMNS: Final[dict[str, ArrowColumn[TargetDifference]]] = {
    "target": ArrowColumn("STRING", pa.string(), lambda row: row.target),
    "path": ArrowColumn("STRING", pa.string(), lambda row: row.path),
    "kind": ArrowColumn("STRING", pa.string(), lambda row: row.kind),
    "details": ArrowColumn("ARRAY<STRING>", pa.list_(pa.string()), lambda row: row.details),
}


def difference_frame(runner: StageRunner, comparison: Comparison) -> DataFrame:
    """The differences as a DataFrame with `target`, `path`, `kind` and `details`, which is computed when it is used.

    Raises:
        SourceMissingError: A root is not in the source.
    """
    return runner.frame(*compare_stage(runner, comparison)).select(*DIFFERENCE_COLUMNS)


def find_differences(runner: StageRunner, comparison: Comparison) -> Iterator[TargetDifference]:
    """The differences, in no order. Raises: SourceMissingError, SparkJobFailedError."""
    for row in runner.run(*compare_stage(runner, comparison)):
        yield TargetDifference(row.target, row.path, row.kind, tuple(row.details))


def compare_stage(runner: StageRunner, comparison: Comparison) -> tuple[Stage, list[bytes]]:
    """The stage that compares, and its work. Raises: SourceMissingError."""
    with closing(open_source(comparison.source)) as source:
        branches = plan_branches(source, comparison.roots, runner.parallelism * BRANCHES_PER_CORE)
    opened = tuple(target for target in comparison.targets if _opens(target))
    runs = runs_of(branches, runner.parallelism * TASKS_PER_CORE) if opened else []
    works = [CompareWork(replace(comparison, targets=opened), tuple(run)) for run in runs]
    # one task each, not one for each run of branches: its error is reported once
    whole = tuple(Branch(root, is_deep=True) for root in comparison.roots)
    works += [
        CompareWork(replace(comparison, targets=(target,)), whole)
        for target in comparison.targets
        if target not in opened
    ]
    return Stage("compare", DIFFERENCE_COLUMNS, compare_work), list(map(msgspec.json.encode, works))


def _opens(target: str) -> bool:
    try:
        open_source(target).close()
    except MailboatError:
        return False
    return True


def compare_work(work: bytes) -> Iterator[TargetDifference]:
    """Compare some branches with every target: what a task does."""
    given = decoder_of(CompareWork).decode(work)
    comparison, branches = given.comparison, given.branches
    with closing(open_source(comparison.source)) as source:
        for target in comparison.targets:
            try:
                with closing(open_source(target)) as other:
                    for branch in branches:
                        yield from _compared(source, target, other, branch)
            except MailboatError as error:
                yield TargetDifference(target, branches[0].path, "failed", (error.name, error.message))


def _compared(source: Source, target: str, other: Source, branch: Branch) -> Iterator[TargetDifference]:
    if branch.is_deep:
        yield from _below(source, target, other, branch.path)
        return
    path = branch.path
    kind, details = _node_difference(other.node(path), source.node(path))
    if kind is not None:
        yield TargetDifference(target, path, kind, details)
    known = frozenset(children_of(source, path))  # these are branches of their own
    for name in children_of(other, path):
        if name not in known:
            yield from _below(source, target, other, child_of(path, name))


def _below(source: Source, target: str, other: Source, path: NodePath) -> Iterator[TargetDifference]:
    for difference in differences(other, source, path):
        yield TargetDifference(target, difference.path, _KINDS[difference.kind], difference.details)


def _node_difference(held: Node | None, wanted: Node | None) -> tuple[str | None, tuple[str, ...]]:
    if held is None or wanted is None:
        return None if held is wanted else "missing" if held is None else "extra", ()
    if node_digest(held) == node_digest(wanted):
        return None, ()
    return "changed", changed_parts(held, wanted)

"""`mailboat content`: list, read, digest and compare sources and targets; `snapshots` copies targets."""

from __future__ import annotations

import shlex
import shutil
import sys
from contextlib import closing
from itertools import islice
from typing import Annotated, Any

import typer

from mailboat.cli import snapshots
from mailboat.cli.help_page import command_group
from mailboat.cli.options import command, content_paths
from mailboat.cli.output import Output, Report, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.cli.tables import Column, Table
from mailboat.composition.source_openers import open_source
from mailboat.content.binaries import binaries_of
from mailboat.content.differences import Difference, differences
from mailboat.content.digest import source_digest
from mailboat.content.port import Source
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.nodes import Binary, Node
from mailboat.model.paths import NodePath

LocationArgument = Annotated[
    str,
    typer.Argument(
        metavar="LOCATION",
        help="A source or target: a folder, a FileVault checkout or zip, files:DIR, generations:DIR, sqlite:FILE.",
    ),
]
PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="A content path.")]
DIFFERENT_EXIT_CODE = 1

app = command_group("content")
app.add_typer(snapshots.app)


@app.command("ls")
@command
def list_nodes(
    session: Session,
    location: LocationArgument,
    path: PathArgument = "/",
    deep: Annotated[bool, typer.Option("--deep", "-R", help="Everything below the path.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of nodes.")] = None,
) -> None:
    """List nodes: type, size of their binaries, path."""
    (root,) = content_paths([path])
    with closing(open_source(location)) as source:
        found = source.walk(root)
        if not deep:  # the node at the root and its children
            depth = 0 if root == "/" else root.count("/")
            found = (node for node in found if node.path == "/" or node.path.count("/") <= depth + 1)
        rows = [node_document(node) for node in islice(found, limit)]
        if not rows and root != "/":
            raise SourceMissingError(f"{location} has no {root}")
    columns = (Column("TYPE"), Column("SIZE", is_number=True), Column("PATH"))
    session.show(
        Report(
            rows,
            [row["path"] for row in rows],
            lambda: [
                Table(columns, [(row["type"], bytes_text(row["bytes"]), row["path"]) for row in rows], empty="no nodes")
            ],
        )
    )


def node_document(node: Node) -> dict[str, Any]:
    """A node for a list."""
    size = sum(binary.length_bytes for binary in binaries_of(node))
    return {"path": node.path, "type": node.primary_type, "bytes": size, "properties": len(node.properties)}


@app.command("cat")
@command
def cat(session: Session, location: LocationArgument, path: PathArgument = "/") -> None:
    """Print a file's bytes, or the properties of any other node (and of a file with -o)."""
    (where,) = content_paths([path])
    with closing(open_source(location)) as source:
        node = source.node(where)
        if node is None:
            raise SourceMissingError(f"{location} has no {where}", next_step=_listing(location))
        data = node.data if node.is_plain_file and session.output is Output.TABLE else None
        if data is None:
            session.show(_node_report(node))
            return
        sys.stdout.flush()
        with data.open() as stream:
            shutil.copyfileobj(stream, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _node_report(node: Node) -> Report:
    document = {
        "path": node.path,
        "primary_type": node.primary_type,
        "mixin_types": list(node.mixin_types),
        "properties": {
            prop.name: {
                "type": prop.type.name.lower(),
                "value": [_value(value) for value in prop.values] if prop.is_multiple else _value(prop.values[0]),
            }
            for prop in node.properties
        },
        "child_order": None if node.child_order is None else list(node.child_order),
    }
    rows = [("jcr:primaryType", "name", node.primary_type)]
    rows += [("jcr:mixinTypes", "name", ", ".join(node.mixin_types))] if node.mixin_types else []
    for prop in node.properties:
        rows.append((prop.name, prop.type.name.lower(), ", ".join(str(_value(value)) for value in prop.values)))
    columns = (Column("PROPERTY"), Column("TYPE"), Column("VALUE", can_fold=True))
    return Report(document, [node.path], lambda: [Table(columns, rows)])


def _value(value: str | Binary) -> str:
    return f"{value.digest.hex()}:{value.length_bytes}" if isinstance(value, Binary) else value


@app.command("digest")
@command
def digest(session: Session, location: LocationArgument, path: PathArgument = "/") -> None:
    """Print the canonical digest of a subtree: equal for equal content, wherever it is."""
    (root,) = content_paths([path])
    with closing(open_source(location)) as source:
        if not _holds(source, root):
            raise SourceMissingError(f"{location} has no {root}", next_step=_listing(location))
        found = source_digest(source, root)
    document = {"location": location, "path": root, "digest": found.hex()}
    session.show(Report(document, [found.hex()], lambda: [found.hex()]))


def _listing(location: str) -> str:
    return f"mailboat content ls {shlex.quote(location)}"


def _holds(source: Source, root: NodePath) -> bool:
    """Whether there is anything at or below a path; a source without content has its root all the same."""
    return root == "/" or source.node(root) is not None or next(iter(source.walk(root)), None) is not None


@app.command("diff")
@command
def diff(
    session: Session,
    left: Annotated[str, typer.Argument(metavar="LEFT", help="A source or target.")],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help="The source or target to compare with.")],
    path: PathArgument = "/",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of differences to print.")] = 1000,
) -> None:
    """Compare two trees. Exit code 1 when they differ."""
    (root,) = content_paths([path])
    if left == right:
        raise UsageError("a tree is compared with itself")
    with closing(open_source(left)) as one, closing(open_source(right)) as other:
        if not (_holds(one, root) or _holds(other, root)):
            raise SourceMissingError(f"neither {left} nor {right} has {root}", next_step=_listing(left))
        found = list(islice(differences(one, other, root), limit + 1))
    shown, is_complete = found[:limit], len(found) <= limit
    rows = [
        {"path": change.path, "change": change.kind}
        | ({"prefixes": list(change.details)} if change.kind == "namespaces" else {})
        for change in shown
    ]
    total = count_text(len(shown), "difference") if shown else "no difference"
    session.show(
        Report(
            {"differences": rows, "complete": is_complete},
            [change.path for change in shown],
            lambda: [
                *map(_difference_line, shown),
                total if is_complete else f"{total} shown, more left out: see --limit",
            ],
        )
    )
    if found:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


def _difference_line(change: Difference) -> str:
    if change.kind == "namespaces":
        return f"{SIGNS['changed']} namespaces of {', '.join(change.details)}"
    return f"{SIGNS[change.kind]} {change.path}"


SIGNS = {"added": "+", "removed": "-", "changed": "~"}

"""`mailboat packages`: packages by hand, FileVault zips that others made among them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mailboat.cli.help_page import command_group
from mailboat.cli.options import OptionalPaths, ShallowOption, SourceArgument, command, content_paths
from mailboat.cli.output import Report, bytes_text, count_text
from mailboat.cli.publish_requests import left_out_lines
from mailboat.cli.session import Session
from mailboat.cli.transfer import TransferProgress, folder_bytes
from mailboat.composition.home import Home, HomeMissingError
from mailboat.composition.package_formats import namespaces_of, package_registry
from mailboat.composition.places import check_file_place, open_target
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace
from mailboat.config.document import LimitsConfig, PackageType
from mailboat.content.port import Source
from mailboat.content.watched_sources import WatchedSource
from mailboat.errors import UsageError
from mailboat.model.paths import NodePath
from mailboat.model.requests import add_request
from mailboat.operations.package_files import PackageFacts, PackageFiles, parse_properties
from mailboat.publisher.builder import unpublished_of
from mailboat.publisher.publisher import own_roots

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A package: a FileVault zip, or a tree package.")]
TypeOption = Annotated[PackageType, typer.Option("--type", help="The format to write.")]

app = command_group("packages")


@contextmanager
def _package_files(session: Session) -> Iterator[PackageFiles]:
    """With the blobs and limits of the home; without one, unless an option names it. Raises: HomeMissingError."""
    try:
        home = Home(session.home_path)
    except HomeMissingError:
        if session.is_home_given:
            raise
        yield PackageFiles(package_registry(), LimitsConfig())
        return
    with Workspace(home) as workspace:
        yield PackageFiles(package_registry(namespaces_of(home.config)), workspace.limits, workspace.open_blob)


@app.command("build")
@command
def build(
    session: Session,
    source: SourceArgument,
    into: Annotated[Path, typer.Option("--into", metavar="FILE", help="The package to write.")],
    paths: OptionalPaths = None,
    package_type: TypeOption = PackageType.FILEVAULT,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    shallow: ShallowOption = False,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="Property of a FileVault package, such as version=2.0; repeatable. Default: those of the source.",
        ),
    ] = None,
) -> None:
    """Write paths of a source into a package that carries everything it needs."""
    given = parse_properties(properties or ())
    chosen = content_paths(paths or ())
    check_file_place(into)
    if into.exists() and not force:
        raise UsageError(f"{into} is there already", next_step=f"another name, or --force to replace {into}")
    with (
        _package_files(session) as files,
        closing(open_source(source)) as opened,
        TransferProgress(sys.stderr) as transfer,
    ):
        request = add_request(chosen or _all_of(opened), is_deep=not shallow)
        transfer.begin("building", folder_bytes(source, request.paths) if transfer.is_shown else None)
        shown = WatchedSource(opened, transfer.advance) if transfer.is_shown else opened
        summary = files.build(request, shown, into, package_type, given)
        left_out = unpublished_of(opened, package_type).files
    document = {
        "file": str(into),
        "type": str(package_type),
        "name": summary.name,
        "bytes": summary.length_bytes,
        "nodes": summary.node_count,
        "content_bytes": summary.content_bytes,
        "sha256": summary.package_digest.hex(),
        "tree_digest": summary.tree_digest.hex(),
        "left_out": list(left_out),
    }
    size = f"{count_text(summary.node_count, 'node')}, {bytes_text(summary.length_bytes)}"
    name = "" if summary.name is None else f"{summary.name}  "
    line = f"{into}  {name}{size}  {summary.tree_digest.hex()}"
    session.show(Report(document, [str(into)], lambda: [line, *left_out_lines(left_out)]))


def _all_of(source: Source) -> tuple[NodePath, ...]:
    """The roots of the source's own filter. Raises: UsageError without a filter; `/` is never assumed."""
    roots = own_roots(source)
    if not roots:
        raise UsageError(
            f"no path is given, and {source.uri} has no filter with a root",
            next_step="name the paths; / stands for all content",
        )
    return roots


@app.command("inspect")
@command
def inspect_package(session: Session, file: FileArgument) -> None:
    """Show a package's format, id, properties, filter, namespaces and nodes."""
    with _package_files(session) as files:
        facts = files.inspect(file, reads_binaries=False)
    session.show(Report(_facts(file, facts), [str(file)], lambda: list(_facts_lines(file, facts))))


@app.command("verify")
@command
def verify(session: Session, file: FileArgument) -> None:
    """Verify a package: read every byte as an import would. Changes nothing."""
    with _package_files(session) as files:
        facts = files.verify(file)
    session.show(
        Report(
            _facts(file, facts),
            [str(file)],
            lambda: [f"{file}  {count_text(facts.nodes, 'node')}  {facts.tree_digest.hex()}  can be imported"],
        )
    )


@app.command("install")
@command
def install(
    session: Session,
    file: FileArgument,
    into: Annotated[str, typer.Option("--into", metavar="TARGET", help="files:DIR, generations:DIR or sqlite:FILE.")],
) -> None:
    """Import a package into a target that belongs to no subscriber."""
    with (
        _package_files(session) as files,
        closing(open_target(into)) as target,
        TransferProgress(sys.stderr) as transfer,
    ):
        transfer.begin("installing")
        count = files.install(file, target, transfer.advance)
    document = {"file": str(file), "target": into, "put": count.put, "removed": count.removed}
    session.show(
        Report(document, [into], lambda: [f"{into}  {count_text(count.put, 'node')} put, {count.removed} removed"])
    )


def _facts(file: Path, facts: PackageFacts) -> dict[str, Any]:
    return {
        "file": str(file),
        "type": facts.package_type,
        "id": facts.id,
        "properties": dict(facts.properties),
        "bytes": facts.length_bytes,
        "nodes": facts.nodes,
        "ancestors": facts.ancestors,
        "large_binaries": facts.binaries,
        "large_binary_bytes": facts.binary_bytes,
        "tree_digest": facts.tree_digest.hex(),
        "filter": [
            {
                "root": filter_set.root,
                "shallow": filter_set.is_shallow,
                "mode": str(filter_set.mode),
                "rules": len(filter_set.rules),
            }
            for filter_set in facts.filter.sets
        ],
        "namespaces": {prefix: list(uris) for prefix, uris in sorted(facts.namespaces.items())},
        "first_paths": list(facts.first_paths),
    }


def _facts_lines(file: Path, facts: PackageFacts) -> Iterator[str]:
    yield f"package  {file}   {facts.package_type}   {bytes_text(facts.length_bytes)}"
    yield f"digest   {facts.tree_digest.hex()}"
    if facts.id is not None:
        yield f"id       {facts.id}"
    yield from (f"property {key} = {' '.join(text.split())}" for key, text in sorted(facts.properties.items()))
    for filter_set in facts.filter.sets:
        rules = f"   {count_text(len(filter_set.rules), 'rule')}" if filter_set.rules else ""
        depth = "shallow" if filter_set.is_shallow else "deep"
        yield f"filter   {filter_set.root}   {depth}   {filter_set.mode}{rules}"
    for prefix, uris in sorted(facts.namespaces.items()):
        yield f"prefix   {prefix}   {', '.join(uris)}"
    yield f"nodes    {facts.nodes}   large binaries {facts.binaries}, {bytes_text(facts.binary_bytes)}"
    yield from (f"  {path}" for path in facts.first_paths)
    if facts.nodes > len(facts.first_paths):
        yield f"  … {facts.nodes - len(facts.first_paths)} more"

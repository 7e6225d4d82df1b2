"""`mailboat plan`, `publish`, `delete`, `invalidate` and `ping`: requests to a publisher of a home or an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mailboat.api.control import Control
from mailboat.api.records import DistributionView, PublicationPlan, SubscriberStatusView, document_of
from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import OptionalPaths, PublisherOption, ShallowOption, content_paths, remote_command
from mailboat.cli.output import Report, bytes_text, cause_text, count_text
from mailboat.cli.publish_requests import RequestOptions, publish_through, unpublished_lines
from mailboat.cli.session import Session
from mailboat.cli.transfer import TransferProgress, folder_bytes
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.filters import FilterSet, ImportMode, WorkspaceFilter
from mailboat.model.identifiers import parse_request_id
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, add_request

if TYPE_CHECKING:
    from mailboat.cli.home_publisher import HomePublisher
    from mailboat.publisher.builder import Unpublished

Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Content paths such as /en/news.")]


class ContentOptions(NamedTuple):
    """What of which source is published."""

    words: OptionalPaths = None
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="SOURCE",
            help="Folder, FileVault checkout or zip, or sqlite:FILE. Not with --url: an agent publishes its own.",
        ),
    ] = None
    shallow: ShallowOption = False
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Only what changed since the last publish of this source, deletes included."),
    ] = False

    def source_and_paths(self) -> tuple[str, tuple[NodePath, ...]]:
        """The source, and the paths, which may be none.

        Without `--source` the first word is the source, as it was before the option came (decision 0017).

        Raises: UsageError where there is no source.
        """
        if self.source is not None:
            return self.source, content_paths(self.words or ())
        if not self.words:
            raise UsageError("no source is given", next_step="add --source SOURCE: a folder, for example ./site")
        first, *rest = self.words
        if first.startswith("/") and not Path(first).exists():
            raise SourceMissingError(
                f"there is nothing at {first} on this machine, and --source is not given",
                next_step=f"where {first} is a content path: add --source SOURCE, for example --source ./site",
            )
        return first, content_paths(rest)


app = PagedTyper()


@app.command("plan")
@remote_command
def plan(session: Session, selected: ContentOptions, publisher: PublisherOption = None) -> None:
    """Show what a publish would send, and the lag of subscribers. Changes nothing."""
    _refuse_both(changed=selected.changed, shallow=selected.shallow)
    paths, home = _chosen(session, selected, "plan")
    name = session.default_publisher(publisher)
    request = None if selected.changed else add_request(paths, is_deep=not selected.shallow)
    with session.control() if home is None else home.control(name, is_dry_run=True) as control:
        found = control.plan_changed(name, paths) if request is None else control.plan(name, request)
        members = control.status().subscribers
    owned = None if request is None else request.filter if home is None else home.owned(request)
    session.show(_plan_report(found, owned, None if home is None else home.unpublished, members))


def _plan_report(
    found: PublicationPlan,
    owned: WorkspaceFilter | None,
    unpublished: Unpublished | None,
    members: Sequence[SubscriberStatusView],
) -> Report:
    sets = () if owned is None else owned.sets
    replaced = [each for each in sets if each.mode is ImportMode.REPLACE and not each.is_shallow]
    document = {
        "packages": found.packages,
        "nodes": found.nodes,
        "files": found.files,
        "deletes": found.deletes,
        "content_bytes": found.content_bytes,
        "largest_package_bytes": found.largest_package_bytes,
        "first_paths": list(found.first_paths),
        "first_removals": sorted(found.first_removals),
        "replaces": sorted(filter_set.root for filter_set in replaced),
        "unpublished_properties": list(unpublished.properties if unpublished else ()),
        "unpublished_files": list(unpublished.files if unpublished else ()),
        "behind": {member.name: member.lag for member in members},
        "errors": {member.name: document_of(member.error) for member in members if member.error is not None},
    }
    parts = [count_text(found.files, "file"), count_text(found.nodes, "node"), count_text(found.deletes, "delete")]
    parts += [f"{bytes_text(found.content_bytes)} content", count_text(found.packages, "package")]
    paths = [f"  {'-' if path in found.first_removals else '+'} {path}" for path in found.first_paths]
    lines = [", ".join(parts), *paths, *_replaced_lines(replaced)]
    lines += [*unpublished_lines(unpublished), *_member_lines(members)]
    return Report(document, list(found.first_paths), lambda: lines if found.packages else ["nothing to publish"])


def _member_lines(members: Sequence[SubscriberStatusView]) -> Iterator[str]:
    """How many subscribers are up to date or behind, and one line for each that cannot import now."""
    fine = [member for member in members if member.error is None]
    parts = [f"{member.name}: {_lag_text(member.lag)}" for member in fine] if members else ["no subscriber is known"]
    yield from (["; ".join(parts)] if parts else [])
    for member in members:
        if member.error is not None:
            yield f"{member.name}: {member.state}, {_lag_text(member.lag)}: {cause_text(member.error)}"


def _lag_text(lag: int | None) -> str:
    if lag is None:
        return "no position"
    return f"{count_text(lag, 'package')} behind" if lag else "up to date"


def _replaced_lines(replaced: Sequence[FilterSet]) -> Iterator[str]:
    if replaced:
        first = min(filter_set.root for filter_set in replaced)
        more = f" and {count_text(len(replaced) - 1, 'path')} more" if len(replaced) > 1 else ""
        ruled = "" if all(filter_set.is_simple for filter_set in replaced) else ", but for what the filter leaves out"
        yield f"replaces {first}{more}: what subscribers have below and the source has not is removed{ruled}"


@app.command("publish")
@remote_command
def publish(
    session: Session,
    selected: ContentOptions,
    delivery: RequestOptions,
    each: Annotated[bool, typer.Option("--each", help="One package for each path.")] = False,
) -> None:
    """Publish paths of a source, or what changed in it. Prints package and offset."""
    _refuse_both(
        changed=selected.changed, shallow=selected.shallow, each=each, request_id=delivery.request_id is not None
    )
    transfer = TransferProgress(sys.stderr)
    paths, home = _chosen(session, selected, "publish", transfer)
    requests = list(_adds(paths, shallow=selected.shallow, each=each, first_id=delivery.request_id))

    def ship(control: Control, name: str) -> Iterator[DistributionView]:
        return control.publish_changed(name, paths) if selected.changed else control.distribute_all(name, requests)

    def ship_shown(control: Control, name: str) -> Iterator[DistributionView]:
        with transfer:
            total = folder_bytes(home.place, paths) if home is not None and transfer.is_shown else None
            transfer.begin("comparing" if selected.changed else "publishing", total)
            yield from ship(control, name)

    publish_through(session, ship if home is None else ship_shown, delivery, home)


def _chosen(
    session: Session, selected: ContentOptions, verb: str, transfer: TransferProgress | None = None
) -> tuple[tuple[NodePath, ...], HomePublisher | None]:
    """The content paths, and what publishes them from a source of this machine; an agent has its own of both.

    Raises: UsageError.
    """
    if session.url is not None:
        return _paths_of_agent(session, selected, verb) or (ROOT,), None
    place, given = selected.source_and_paths()
    home = session.publisher(place, transfer, is_compared=selected.changed)
    return given or ((ROOT,) if selected.changed else home.roots()), home


def _paths_of_agent(session: Session, selected: ContentOptions, verb: str) -> tuple[NodePath, ...]:
    """The content paths of an agent's source; none only with `--changed`. Raises: UsageError."""
    words = selected.words or ()
    wrong = "with --source" if selected.source is not None else None
    wrong = wrong or next((f"of {word}" for word in words if not word.startswith("/")), None)
    wrong = wrong or (None if words or selected.changed else "without PATH")
    if wrong is not None:
        if verb == "plan":
            on_agent, on_home = f"mailboat --url {session.url} plan /PATH", "mailboat --home DIR plan"
        else:
            on_agent, on_home = f"mailboat --url {session.url} publish /PATH", "mailboat --home DIR publish"
        raise UsageError(
            f"the agent at {session.url} can't {verb} {wrong}: it publishes content paths of its own source",
            next_step=on_agent + "   (a path of the agent's source)\n"
            f"{on_home} --source SOURCE …   (a folder of this machine, with a home on it)",
        )
    return content_paths(words)


@app.command("delete")
@remote_command
def delete(session: Session, paths: Paths, delivery: RequestOptions) -> None:
    """Remove paths, with everything below them, from all subscribers."""
    _request(session, Action.DELETE, content_paths(paths), delivery)


@app.command("invalidate")
@remote_command
def invalidate(session: Session, paths: Paths, delivery: RequestOptions) -> None:
    """Invalidate caches of these paths on all subscribers."""
    _request(session, Action.INVALIDATE, content_paths(paths), delivery)


@app.command("ping")
@remote_command
def ping(session: Session, delivery: RequestOptions) -> None:
    """Send a test message that changes no content."""
    _request(session, Action.TEST, (), delivery)


def _refuse_both(*, changed: bool, **others: bool) -> None:
    """Raises: UsageError when `--changed`, which splits the content, comes with an option about cutting."""
    given = [name.replace("_", "-") for name, is_given in others.items() if is_given]
    if changed and given:
        raise UsageError(
            f"--changed decides itself what to publish, in how many packages: it can't be combined with --{given[0]}"
        )


def _adds(
    paths: Sequence[NodePath], *, shallow: bool, each: bool, first_id: str | None
) -> Iterator[DistributionRequest]:
    """One request, or one for each path; then the given id is that of the first, and the others count on from it."""
    named = None if first_id is None else parse_request_id(first_id)
    if not each:
        yield add_request(paths, is_deep=not shallow, request_id=named)
        return
    for number, path in enumerate(paths):
        request_id = named if named is None or number == 0 else parse_request_id(f"{named}.{number}")
        yield add_request([path], is_deep=not shallow, request_id=request_id)


def _request(session: Session, action: Action, paths: tuple[NodePath, ...], delivery: RequestOptions) -> None:
    named = None if delivery.request_id is None else parse_request_id(delivery.request_id)
    request = DistributionRequest(action, tuple(dict.fromkeys(paths)), request_id=named)
    home = session.publisher() if session.url is None else None
    publish_through(session, lambda control, name: control.distribute_all(name, [request]), delivery, home)

"""`mailboat plan`, `publish`, `delete`, `invalidate` and `ping`: requests to a publisher of this home."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mailboat.cli.declaring import PublisherOption, command, remote_command
from mailboat.cli.distributions import Followed, end_by, followed, followed_lines, waited_for
from mailboat.cli.failures import print_warning
from mailboat.cli.ordering import order_all, request_text
from mailboat.cli.rendering import Report, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.errors import MailboatError, UsageError
from mailboat.model.identifiers import RequestId, parse_agent_name, parse_request_id
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath, parse_path

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.content.port import Source
    from mailboat.publisher.plan import PublicationPlan
    from mailboat.publisher.publication import Publisher
    from mailboat.publisher.receipts import Receipt
    from mailboat.publisher.requests import DistributionRequest


SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A folder, a FileVault checkout or zip, or sqlite:FILE.")
]
Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Content paths such as /en/news.")]
ShallowOption = Annotated[bool, typer.Option("--shallow", help="The paths alone, without what is below them.")]


class Selection(NamedTuple):
    """What of a source is meant."""

    source: SourceArgument
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Content paths; what the filter of a checkout or zip names when left out."),
    ] = None
    shallow: ShallowOption = False
    changed: Annotated[
        bool, typer.Option("--changed", help="What changed since the last publish of this source, deletes included.")
    ] = False


class Delivery(NamedTuple):
    """Who publishes, under which id, and how long the subscribers are waited for."""

    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="The same id again is the same request, published once."),
    ] = None
    publisher: PublisherOption = None
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Wait until the known subscribers imported it; exit code 3 when time is over or none is known.",
        ),
    ] = None


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("publish")(publish)
    app.command("delete")(delete)
    app.command("invalidate")(invalidate)
    app.command("ping")(ping)


@command
def plan(session: Session, selected: Selection, publisher: PublisherOption = None) -> None:
    """Tell what a publish would ship, and who is behind. Changes nothing."""
    from mailboat.agent.locations import open_source

    given, changed = content_paths(selected.paths or ()), selected.changed
    _refuse_both(changed=changed, shallow=selected.shallow)
    with (
        session.workspace() as workspace,
        closing(open_source(selected.source, workspace.home.known_files_path)) as opened,
    ):
        agent = workspace.publisher(publisher)
        request = None if changed else _add(given or _roots_of(opened), selected.shallow)
        found = agent.plan_changed(opened, given or (ROOT,)) if request is None else agent.plan(request, opened)
    with session.control() as control:
        behind = {one.name: one.lag or 0 for one in control.status().subscribers}
    session.show(_plan_report(found, [] if request is None else sorted(request.deep_paths), behind))


def _plan_report(found: PublicationPlan, replaced: Sequence[NodePath], behind: dict[str, int]) -> Report:
    document = {
        "packages": found.packages,
        "nodes": found.nodes,
        "files": found.files,
        "deletes": found.deletes,
        "content_bytes": found.content_bytes,
        "largest_package_bytes": found.largest_package_bytes,
        "first_paths": list(found.first_paths),
        "first_removals": sorted(found.first_removals),
        "replaces": list(replaced),
        "behind": behind,
    }
    parts = [count_text(found.files, "file"), count_text(found.nodes, "node"), count_text(found.deletes, "delete")]
    parts += [bytes_text(found.content_bytes), count_text(found.packages, "package")]
    others = [f"{name} is {lag} behind" for name, lag in behind.items()] or ["no subscriber is known"]
    paths = [f"  {'-' if path in found.first_removals else '+'} {path}" for path in found.first_paths]
    lines = [", ".join(parts), *paths, *_replaced_lines(replaced)]
    lines.append("; ".join(others))
    return Report(document, list(found.first_paths), lambda: lines if found.packages else ["nothing to publish"])


def _replaced_lines(replaced: Sequence[NodePath]) -> Iterator[str]:
    if replaced:
        more = f" and {count_text(len(replaced) - 1, 'path')} more" if len(replaced) > 1 else ""
        yield f"replaces {replaced[0]}{more}: what subscribers have below and the source has not is removed"


@remote_command
def publish(
    session: Session,
    selected: Selection,
    delivery: Delivery,
    each: Annotated[bool, typer.Option("--each", help="One package for each path.")] = False,
) -> None:
    """Publish paths of a source, or what changed in it. Prints package and offset."""
    _refuse_both(
        changed=selected.changed, shallow=selected.shallow, each=each, request_id=delivery.request_id is not None
    )
    if session.url is not None:
        _publish_own(session, selected, delivery, each=each)
        return
    from mailboat.agent.locations import open_source

    given = content_paths(selected.paths or ())
    with (
        session.workspace() as workspace,
        closing(open_source(selected.source, workspace.home.known_files_path)) as opened,
    ):
        roots = given or ((ROOT,) if selected.changed else _roots_of(opened))
        requests = list(_adds(roots, shallow=selected.shallow, each=each, request_id=delivery.request_id))

        def ship(agent: Publisher) -> Iterator[Receipt]:
            return agent.publish_changed(opened, roots) if selected.changed else _ship(agent, requests, opened)

        _publish(session, workspace, ship, delivery)


def _publish_own(session: Session, selected: Selection, delivery: Delivery, *, each: bool) -> None:
    """Have an agent publish paths of its own source: the word where a source stands on a home is a path as well."""
    texts = (selected.source, *(selected.paths or ()))
    if selected.changed or not all(text.startswith("/") for text in texts):
        raise UsageError(
            f"the agent at {session.url} publishes paths of its own source, such as /en/news",
            next_step="to publish a folder of this machine, leave --url out",
        )
    requests = list(_adds(content_paths(texts), shallow=selected.shallow, each=each, request_id=delivery.request_id))
    order_all(session, requests, delivery)


@remote_command
def delete(session: Session, paths: Paths, delivery: Delivery) -> None:
    """Remove paths, with everything below them, from all subscribers."""
    _request(session, Action.DELETE, content_paths(paths), delivery)


@remote_command
def invalidate(session: Session, paths: Paths, delivery: Delivery) -> None:
    """Tell all subscribers that what they cache of these paths is no longer valid."""
    _request(session, Action.INVALIDATE, content_paths(paths), delivery)


@remote_command
def ping(session: Session, delivery: Delivery) -> None:
    """Send a message that changes nothing, to see that messages come through."""
    _request(session, Action.TEST, (), delivery)


def content_paths(texts: Iterable[str]) -> tuple[NodePath, ...]:
    """Content paths as users type them: a missing first slash is added, a last one dropped.

    Raises:
        UsageError: One is empty, as an unset variable of a shell gives it: that must not be taken for the root.
        PathRefusedError: One is no path.
    """
    return tuple(map(_content_path, texts))


def _content_path(text: str) -> NodePath:
    if not text:
        raise UsageError("a path is empty", next_step="write / when the root is meant")
    return parse_path("/" + text.strip("/"))


def _roots_of(source: Source) -> tuple[NodePath, ...]:
    """What a source says itself that it is of. Raises: UsageError when it says nothing: all is never just assumed."""
    from mailboat.agent.locations import own_roots

    roots = own_roots(source)
    if roots:
        return roots
    text = shlex.quote(source.uri)
    raise UsageError(
        f"no path is given, and all of {source.uri} would replace everything that subscribers have",
        next_step=f"to publish what changed: mailboat publish {text} --changed\n"
        f"some paths:              mailboat publish {text} /PATH\n"
        f"to replace everything:   mailboat publish {text} /",
    )


def _refuse_both(*, changed: bool, **others: bool) -> None:
    """Raises: UsageError when `--changed`, which cuts by itself, comes with an option about cutting."""
    given = [name.replace("_", "-") for name, is_given in others.items() if is_given]
    if changed and given:
        raise UsageError(f"--changed cuts packages by itself and can't be combined with --{given[0]}")


def _add(paths: Sequence[NodePath], shallow: bool, request_id: RequestId | None = None) -> DistributionRequest:
    from mailboat.publisher.requests import add_request

    return add_request(paths, is_deep=not shallow, request_id=request_id)


def _adds(
    paths: Sequence[NodePath], *, shallow: bool, each: bool, request_id: str | None
) -> Iterator[DistributionRequest]:
    """One request, or one for each path; then the given id is that of the first, and the others count on from it."""
    named = None if request_id is None else parse_request_id(request_id)
    if not each:
        yield _add(paths, shallow, named)
        return
    for number, path in enumerate(paths):
        yield _add([path], shallow, named if named is None or number == 0 else parse_request_id(f"{named}.{number}"))


def _ship(agent: Publisher, requests: Sequence[DistributionRequest], source: Source | None) -> Iterator[Receipt]:
    if len(requests) == 1:
        yield agent.publish(requests[0], source)
    else:
        yield from agent.publish_all(requests, source)


def _request(session: Session, action: Action, paths: tuple[NodePath, ...], delivery: Delivery) -> None:
    from mailboat.publisher.requests import DistributionRequest

    named = None if delivery.request_id is None else parse_request_id(delivery.request_id)
    order_all(session, [DistributionRequest(action, tuple(dict.fromkeys(paths)), request_id=named)], delivery)


def _publish(
    session: Session, workspace: Workspace, ship: Callable[[Publisher], Iterator[Receipt]], delivery: Delivery
) -> None:
    """Ship, wait when asked to, print, and say by the exit code whether everybody has it."""
    name = parse_agent_name(delivery.publisher or workspace.home.config.publisher.name)
    clock = workspace.clock
    started = clock.monotonic()
    receipts: list[Receipt] = []
    try:
        receipts.extend(ship(workspace.publisher(name)))
    except MailboatError as error:
        if receipts:  # they stand in the journal, whatever became of the next
            session.show(_receipts_report(receipts, None))
            error.where = {**error.where, "published_before": len(receipts)}
        raise
    outcome = None
    if delivery.wait is not None and receipts:
        with session.control() as control:
            views = waited_for(control, name, [one.package_id for one in receipts], clock, delivery.wait)
            outcome = followed(control, views, clock.monotonic() - started)
    session.show(_receipts_report(receipts, outcome))
    _maintain(session, workspace)
    if outcome is not None:
        end_by([outcome.view])


def _maintain(session: Session, workspace: Workspace) -> None:
    """Do the upkeep whose turn has come. Its failure is no failure to publish, or people would publish again."""
    from mailboat.agent.upkeep import maintain

    try:
        maintain(workspace)
    except MailboatError as error:
        what = "what was published stands; retention or sweep failed, and is due again within the hour"
        print_warning(error, sys.stderr, what, is_verbose=session.is_verbose)


def _receipts_report(receipts: Sequence[Receipt], outcome: Followed | None) -> Report:
    document: dict[str, Any] = {"packages": [receipt_document(one) for one in receipts]}
    if outcome is not None:
        view = asdict(outcome.view)
        document["followers"] = {
            **{name: view[name] for name in ("state", "imported", "waiting", "removed", "failed")},
            "states": dict(outcome.states),
            "seconds": round(outcome.seconds, 3),
        }
    return Report(document, [one.package_id for one in receipts], lambda: list(_receipt_lines(receipts, outcome)))


def receipt_document(one: Receipt) -> dict[str, Any]:
    """A receipt for JSON and YAML. Of a request that was published before, the figures are not known: null."""
    return {
        "package_id": one.package_id,
        "offset": one.offset,
        "action": str(one.action),
        "paths": list(one.paths),
        "request_id": one.request_id,
        "is_repeat": one.is_repeat,
        "nodes": None if one.is_repeat else one.nodes,
        "removed": None if one.is_repeat and one.action is Action.ADD else one.removed,
        "package_bytes": None if one.is_repeat else one.package_bytes,
        "content_bytes": None if one.is_repeat else one.content_bytes,
        "is_inline": None if one.is_repeat else one.is_inline,
    }


def _receipt_lines(receipts: Sequence[Receipt], outcome: Followed | None) -> Iterator[str]:
    if not receipts:
        yield "nothing to publish"
    for one in receipts:
        yield f"{one.package_id}  offset {one.offset}  {request_text(_action_text(one), one.paths)}{_counts_text(one)}"
    if outcome is not None:
        yield from followed_lines(outcome)


def _action_text(one: Receipt) -> str:
    """What was sent, for people: an ADD that carries nothing removes what it covers."""
    return "removes" if one.action is Action.ADD and one.removed and not one.nodes else str(one.action)


def _counts_text(one: Receipt) -> str:
    if one.is_repeat:
        return "  published before, nothing sent"
    counts = [count_text(one.nodes, "node")] if one.nodes else []
    counts += [count_text(one.removed, "delete")] if one.removed else []
    counts += [bytes_text(one.package_bytes)] if one.package_bytes else []
    return f"  {', '.join(counts)}" if counts else ""

"""`mailboat plan`, `publish`, `delete`, `invalidate` and `ping`: requests to a publisher of this home."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.cli.declaring import command
from mailboat.cli.rendering import Report, bytes_text, count_text, seconds_text
from mailboat.cli.session import Session
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, RequestId, parse_agent_name, parse_request_id
from mailboat.model.messages import Action
from mailboat.model.paths import ROOT, NodePath, parse_path

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.following import Following
    from mailboat.content.port import Source
    from mailboat.publisher.plan import PublicationPlan
    from mailboat.publisher.publication import Publisher
    from mailboat.publisher.receipts import Receipt
    from mailboat.publisher.requests import DistributionRequest

NOT_IMPORTED_EXIT_CODE = 3
DIFFERENCE_EXIT_CODE = 1

SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A folder, a FileVault checkout or zip, or sqlite:FILE.")
]
SomePaths = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH", help="Content paths; what the filter of a checkout or zip names when left out."),
]
Paths = Annotated[list[str], typer.Argument(metavar="PATH", help="Content paths such as /en/news.")]
ShallowOption = Annotated[bool, typer.Option("--shallow", help="The paths alone, without what is below them.")]
EachOption = Annotated[bool, typer.Option("--each", help="One package for each path.")]
ChangedOption = Annotated[
    bool, typer.Option("--changed", help="What changed since the last publish of this source, deletes included.")
]
RequestOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="The same id again is the same request, published once."),
]
PublisherOption = Annotated[
    str | None, typer.Option("--publisher", metavar="NAME", help="Which publisher; the configured one when left out.")
]
WaitOption = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="Wait until the known subscribers imported it; exit code 3 when time is over or none is known.",
    ),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the options of a publication ask for."""

    publisher: str | None = None
    wait_seconds: float | None = None


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("publish")(publish)
    app.command("delete")(delete)
    app.command("invalidate")(invalidate)
    app.command("ping")(ping)


@command
def plan(
    session: Session,
    source: SourceArgument,
    paths: SomePaths = None,
    shallow: ShallowOption = False,
    changed: ChangedOption = False,
    publisher: PublisherOption = None,
) -> None:
    """Tell what a publish would ship, and who is behind. Changes nothing."""
    from mailboat.agent.locations import open_source
    from mailboat.agent.subscribers import subscriber_views

    given = content_paths(paths or ())
    _refuse_both(changed=changed, shallow=shallow)
    with session.workspace() as workspace, closing(open_source(source)) as opened:
        agent = workspace.publisher(publisher)
        request = None if changed else _add(given or _roots_of(opened), shallow)
        found = agent.plan_changed(opened, given or (ROOT,)) if request is None else agent.plan(request, opened)
        end = workspace.journal.bounds(workspace.package_topic).next_offset
        behind = {view.name: view.lag(end) or 0 for view in subscriber_views(workspace)}
    session.show(_plan_report(found, [] if request is None else sorted(request.deep_paths), behind))


def _plan_report(found: PublicationPlan, replaced: Sequence[NodePath], behind: dict[AgentName, int]) -> Report:
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


@command
def publish(
    session: Session,
    source: SourceArgument,
    paths: SomePaths = None,
    shallow: ShallowOption = False,
    each: EachOption = False,
    changed: ChangedOption = False,
    request_id: RequestOption = None,
    publisher: PublisherOption = None,
    wait: WaitOption = None,
) -> None:
    """Publish paths of a source, or what changed in it. Prints package and offset."""
    from mailboat.agent.locations import open_source

    given = content_paths(paths or ())
    _refuse_both(changed=changed, shallow=shallow, each=each, request_id=request_id is not None)
    with session.workspace() as workspace, closing(open_source(source)) as opened:
        roots = given or ((ROOT,) if changed else _roots_of(opened))
        requests = list(_adds(roots, shallow=shallow, each=each, request_id=request_id))

        def ship(agent: Publisher) -> Iterator[Receipt]:
            return agent.publish_changed(opened, roots) if changed else _ship(agent, requests, opened)

        _publish(session, workspace, ship, Asked(publisher, wait))


@command
def delete(
    session: Session,
    paths: Paths,
    request_id: RequestOption = None,
    publisher: PublisherOption = None,
    wait: WaitOption = None,
) -> None:
    """Remove paths, with everything below them, from all subscribers."""
    _request(session, Action.DELETE, content_paths(paths), request_id, Asked(publisher, wait))


@command
def invalidate(
    session: Session,
    paths: Paths,
    request_id: RequestOption = None,
    publisher: PublisherOption = None,
    wait: WaitOption = None,
) -> None:
    """Tell all subscribers that what they cache of these paths is no longer valid."""
    _request(session, Action.INVALIDATE, content_paths(paths), request_id, Asked(publisher, wait))


@command
def ping(
    session: Session,
    request_id: RequestOption = None,
    publisher: PublisherOption = None,
    wait: WaitOption = None,
) -> None:
    """Send a message that changes nothing, to see that messages come through."""
    _request(session, Action.TEST, (), request_id, Asked(publisher, wait))


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


def _request(
    session: Session, action: Action, paths: tuple[NodePath, ...], request_id: str | None, asked: Asked
) -> None:
    from mailboat.publisher.requests import DistributionRequest

    named = None if request_id is None else parse_request_id(request_id)
    request = DistributionRequest(action, tuple(dict.fromkeys(paths)), request_id=named)
    with session.workspace() as workspace:
        _publish(session, workspace, lambda agent: _ship(agent, [request], None), asked)


def _publish(
    session: Session, workspace: Workspace, ship: Callable[[Publisher], Iterator[Receipt]], asked: Asked
) -> None:
    """Ship, wait when asked to, print, and say by the exit code whether everybody has it."""
    from mailboat.agent.following import Followers
    from mailboat.agent.upkeep import maintain

    name = parse_agent_name(workspace.home.config.publisher.name if asked.publisher is None else asked.publisher)
    agent = workspace.publisher(name)
    followers = None if asked.wait_seconds is None else Followers(workspace, name)
    try:
        receipts = list(ship(agent))
        followed = None
        if followers is not None and asked.wait_seconds is not None and receipts:
            followed = followers.wait([one.offset for one in receipts], asked.wait_seconds)
    finally:
        if followers is not None:
            followers.close()
    maintain(workspace)
    session.show(_receipts_report(receipts, followed))
    if followed is not None and (followed.failed or followed.waiting or not followed.total):
        raise typer.Exit(DIFFERENCE_EXIT_CODE if followed.failed else NOT_IMPORTED_EXIT_CODE)


def _receipts_report(receipts: Sequence[Receipt], followed: Following | None) -> Report:
    document: dict[str, Any] = {"packages": [receipt_document(one) for one in receipts]}
    if followed is not None:
        document["followers"] = {
            "imported": sorted(followed.imported),
            "failed": followed.failed,
            "waiting": {name: view.state for name, view in sorted(followed.waiting.items())},
            "seconds": round(followed.seconds, 3),
            "unreadable": followed.unreadable,
        }
    return Report(document, [one.package_id for one in receipts], lambda: list(_receipt_lines(receipts, followed)))


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


def _receipt_lines(receipts: Sequence[Receipt], followed: Following | None) -> Iterator[str]:
    if not receipts:
        yield "nothing to publish"
    for one in receipts:
        yield f"{one.package_id}  offset {one.offset}  {_action_text(one)} {_paths_text(one)}{_counts_text(one)}"
    if followed is not None and not followed.total:
        yield "no subscriber is known: nobody was waited for"
    elif followed is not None:
        yield f"imported by {len(followed.imported)}/{followed.total} in {seconds_text(followed.seconds)}"
        yield from (f"  given up by {name}: {why}" for name, why in sorted(followed.failed.items()))
        yield from (f"  not yet by {name}: {view.state}" for name, view in sorted(followed.waiting.items()))
        if followed.unreadable:
            yield f"  {count_text(followed.unreadable, 'answer')} can't be understood: see mailboat journal verify"


def _action_text(one: Receipt) -> str:
    """What was sent, for people: an ADD that carries nothing removes what it covers."""
    return "removes" if one.action is Action.ADD and one.removed and not one.nodes else str(one.action)


def _paths_text(one: Receipt) -> str:
    first = " ".join(one.paths[:3])
    return f"{first} … {len(one.paths)} paths" if len(one.paths) > 3 else first


def _counts_text(one: Receipt) -> str:
    if one.is_repeat:
        return "  published before, nothing sent"
    counts = [count_text(one.nodes, "node")] if one.nodes else []
    counts += [count_text(one.removed, "delete")] if one.removed else []
    counts += [bytes_text(one.package_bytes)] if one.package_bytes else []
    return f"  {', '.join(counts)}" if counts else ""

"""Publishes through the control port of a home or an agent, reports the packages, and waits for the subscribers.

What was published, for people and programs: the same report for a home and for an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from mailboat.api.control import Control
from mailboat.api.records import DistributionView, document_of
from mailboat.cli.distributions import Followed, end_by, followed, followed_lines, waited_for
from mailboat.cli.options import PublisherOption, WaitOption
from mailboat.cli.output import Output, Report, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.clock import SystemClock
from mailboat.errors import MailboatError
from mailboat.model.messages import Action

if TYPE_CHECKING:
    from mailboat.cli.home_publisher import HomePublisher
    from mailboat.publisher.builder import Unpublished

_PACKAGE_FIELDS = (
    *("package_id", "offset", "action", "paths", "request_id", "repeated"),
    *("nodes", "package_bytes", "content_bytes", "inline"),
)
_SHOWN_FILES: Final = 10
_FOLLOWER_FIELDS = ("state", "imported", "waiting", "removed", "failed", "skipped", "unknown")


def published_report(
    packages: Sequence[DistributionView], outcome: Followed | None = None, unpublished: Unpublished | None = None
) -> Report:
    """The packages, their outcomes where the command waited for them, and the source's metadata left out."""
    document: dict[str, Any] = {"packages": [_document(package) for package in packages]}
    if unpublished is not None and unpublished.properties:
        document["unpublished_properties"] = list(unpublished.properties)
    if unpublished is not None and unpublished.files:
        document["unpublished_files"] = list(unpublished.files)
    if outcome is not None:
        view = document_of(outcome.view)
        document["followers"] = {
            **{name: view[name] for name in _FOLLOWER_FIELDS},
            "states": dict(outcome.states),
            "seconds": round(outcome.seconds, 3),
        }

    def lines() -> list[str]:
        followers = [] if outcome is None else followed_lines(outcome)
        return [*published_lines(packages), *unpublished_lines(unpublished), *followers]

    return Report(document, [package.package_id for package in packages], lines)


def _document(one: DistributionView) -> dict[str, Any]:
    """What is known at the moment of the publish; figures of a repeat are not."""
    document = {name: getattr(one, name) for name in _PACKAGE_FIELDS}
    document["removed"] = one.removed_paths
    return document | {"paths": list(one.paths), "package_bytes": None if one.repeated else one.package_bytes}


def published_lines(packages: Sequence[DistributionView]) -> Iterator[str]:
    """A line for each package."""
    if not packages:
        yield "nothing to publish"
    for package in packages:
        remark = "published before, nothing sent" if package.repeated else _figures_text([package])
        first = " ".join(package.paths[:3])
        paths = f"{first} … {len(package.paths)} paths" if len(package.paths) > 3 else first
        line = (
            f"{package.package_id}  offset {package.offset}  {_action_text(package)} {paths}".rstrip()
        )  # TEST names none
        yield f"{line}  {remark}" if remark else line
    if len(packages) > 1:
        yield f"{count_text(len(packages), 'package')} in total: {_figures_text(packages) or 'no content'}"


def unpublished_lines(unpublished: Unpublished | None) -> Iterator[str]:
    """What of the source's metadata stays behind, a line for properties and one for files."""
    if unpublished is None:
        return
    if unpublished.properties:
        yield f"not published, as importers of content read none of them: {', '.join(unpublished.properties)}"
    yield from left_out_lines(unpublished.files)


def left_out_lines(files: Sequence[str]) -> Iterator[str]:
    """The files of `META-INF` that a package does not have, in at most one line."""
    if files:
        more = f", and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
        yield f"left out: {', '.join(files[:_SHOWN_FILES])}{more}"


def _action_text(one: DistributionView) -> str:
    """What was sent, for people: an ADD also removes what it covers and does not carry."""
    if one.action != Action.ADD or not one.removed_paths:
        return one.action
    return "ADD and DELETE" if one.nodes else "removes"


def _figures_text(packages: Sequence[DistributionView]) -> str:
    """Sizes of content and package; they differ, as large binaries travel outside their package."""
    nodes = sum(package.nodes or 0 for package in packages)
    removed = sum(package.removed_paths or 0 for package in packages if package.action == Action.ADD)
    content = sum(package.content_bytes or 0 for package in packages)
    sent = sum(0 if package.repeated else package.package_bytes for package in packages)
    figures = [count_text(nodes, "node")] if nodes else []
    figures += [count_text(removed, "delete")] if removed else []
    figures += [f"{bytes_text(content)} content"] if content else []
    figures += [f"{bytes_text(sent)} {'package' if len(packages) == 1 else 'packages'}"] if sent else []
    return ", ".join(figures)


class RequestOptions(NamedTuple):
    """The publisher, the request id, and how long to wait for the subscribers."""

    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="Idempotency key: reusing it never publishes twice."),
    ] = None
    publisher: PublisherOption = None
    new_publisher: Annotated[
        bool, typer.Option("--new-publisher", help="Allow a --publisher that has not published from this home before.")
    ] = False
    wait: WaitOption = None


def publish_through(
    session: Session,
    publish: Callable[[Control, str], Iterable[DistributionView]],
    delivery: RequestOptions,
    home: HomePublisher | None,
) -> None:
    """Publish through the control port, print the packages, and wait for the subscribers when asked to.

    Without `home`, the agent at the URL publishes.

    Raises: typer.Exit as `distributions get`, and with 3 where no subscriber is known.
    """
    name, clock = session.default_publisher(delivery.publisher), SystemClock()
    outcome: Followed | None = None
    with session.control() if home is None else home.control(name, is_new=delivery.new_publisher) as control:
        started = clock.monotonic()
        packages = _published(session, publish(control, name))
        known = home.unpublished if home is not None and packages else None
        receipts = published_report(packages, unpublished=known)
        # people see the receipts before the wait, programs get one document after it
        is_table = session.output is Output.TABLE
        if delivery.wait is None or not packages or is_table:
            session.show(receipts)
        if delivery.wait is not None and packages:
            try:
                outcome = _await_subscribers(session, control, name, packages, delivery.wait, started)
            except (MailboatError, KeyboardInterrupt):
                if not is_table:  # published all the same: a program that gets nothing would publish again
                    session.show(receipts)
                raise
            lines = list(followed_lines(outcome))
            session.show(Report({}, [], lambda: lines) if is_table else published_report(packages, outcome, known))
    if outcome is not None:
        end_by([outcome.view])


def _published(session: Session, publishing: Iterable[DistributionView]) -> Sequence[DistributionView]:
    """The packages. Those before a failure are in the log, so they are printed; then the failure is raised."""
    packages: list[DistributionView] = []
    try:
        packages.extend(publishing)
    except (MailboatError, KeyboardInterrupt) as error:
        if packages:
            session.show(published_report(packages))
        if isinstance(error, KeyboardInterrupt):
            # a package without an answer may have been appended just before
            before = f"{count_text(len(packages), 'package')} published" if packages else "no package was confirmed"
            session.note(f"{before}; whether one more is in the log: mailboat distributions ls")
        raise
    return packages


def _await_subscribers(
    session: Session,
    control: Control,
    publisher: str,
    packages: Sequence[DistributionView],
    seconds: float,
    started: float,
) -> Followed:
    """Wait until the known subscribers have the packages.

    Raises: KeyboardInterrupt, after a note of what is published all the same.
    """
    clock, ids = SystemClock(), [package.package_id for package in packages]
    try:
        views = waited_for(control, publisher, ids, clock, seconds, started)
        return followed(control, views, clock.monotonic() - started)
    except KeyboardInterrupt:
        last = packages[-1]
        session.note(
            f"{count_text(len(packages), 'package')} published, the last one {last.package_id} at offset {last.offset};"
            " the wait for the subscribers ended"
        )
        session.note(f"  next  mailboat distributions get {last.package_id}")
        raise

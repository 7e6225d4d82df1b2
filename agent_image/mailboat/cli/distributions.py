"""`mailboat distributions`: the outcome of requests."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Final, NamedTuple

import typer

from mailboat.api.control import Control
from mailboat.api.records import DistributionView, NotImportedView, document_of
from mailboat.cli.error_report import NOT_IMPORTED_EXIT_CODE, NOT_YET_EXIT_CODE
from mailboat.cli.help_page import command_group
from mailboat.cli.options import PackagePublisherOption, WaitOption, remote_command
from mailboat.cli.output import Block, Report, ago_text, bytes_text, cause_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.tables import ABSENT, Column, Table, state_style
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock, Deadline, SystemClock

_QUEUED = "queued"
_STATES = ("distributed", "incomplete", _QUEUED, "failed")
_NOT_FOLLOWED = "not-followed"
_REASON_TEXTS: Final[Mapping[str, str]] = {
    _NOT_FOLLOWED: "did not follow the publisher",
    "joined-later": "follows the publisher since a later package",
    "before-reports": "the package is older than the subscriber's reports: restored, or gap accepted",
    "statuses-gone": "statuses of that time are not kept, or too many to read",
    "no-reports": "this kind of subscriber does not report what it skips",
}
_GONE = "gone"
_MOST_LINES = 6
_POLL_SECONDS = 0.5
_COLUMNS = (
    Column("OFFSET", is_number=True),
    Column("PUBLISHED"),
    Column("ACTION"),
    Column("PATHS", can_cut=True),
    Column("STATE", style=state_style),
    Column("IMPORTED", is_number=True),
    Column("REQUEST", can_cut=True),
)

app = command_group("distributions")


@app.command("get")
@remote_command
def get(
    session: Session,
    package: Annotated[
        str, typer.Argument(metavar="ID", help="A package id, the request id, or an item or offset from `queues show`.")
    ],
    wait: WaitOption = None,
    publisher: PackagePublisherOption = None,
) -> None:
    """Show the outcome of a request at each subscriber: imported, pending, skipped, dropped, given up."""
    name, clock = session.shown_publisher(publisher), SystemClock()
    with session.control() as control:
        (found,) = waited_for(control, name, [package], clock, wait or 0.0, clock.monotonic())
    session.show(Report(document_of(found), [found.package_id], lambda: list(_lines(found))))
    if wait is not None:
        end_by([found])


@app.command("ls")
@remote_command
def list_distributions(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="Maximum number.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", metavar="OFFSET", min=0, help="Only those before this offset.")
    ] = None,
    publisher: PackagePublisherOption = None,
) -> None:
    """List requests, newest first, with the number of subscribers that imported each."""
    name = session.shown_publisher(publisher)
    with session.control() as control:
        page = control.distributions(name, before, limit)

    now = SystemClock().now()

    def blocks() -> list[Block]:
        found: list[Block] = [
            Table(_COLUMNS, [_row(item, now) for item in page.items], empty=f"{name} has published nothing")
        ]
        whose = "" if publisher is None else f" --publisher {publisher}"
        more = f"older ones: mailboat distributions ls --before {page.next_before}{whose}"
        return found if page.next_before is None else [*found, more]

    session.show(Report(document_of(page), [item.package_id for item in page.items], blocks))


def _row(one: DistributionView, now: datetime) -> list[str]:
    paths, count = one.paths[0] if one.paths else ABSENT, max(one.path_count, len(one.paths))
    return [
        str(one.offset),
        ABSENT if one.published_at is None else ago_text(now - one.published_at),
        one.action,
        f"{paths} … {count} paths" if count > 1 else paths,
        one.state,
        f"{len(one.imported)} of {_follower_count(one)}",
        one.request_id or ABSENT,
    ]


def waited_for(
    control: Control,
    publisher: str,
    package_ids: Sequence[str],
    clock: Clock,
    seconds: float,
    started: float,
) -> list[DistributionView]:
    """Outcomes of packages, given in the order of the log, within one timeout, with a live count on a terminal.

    The last one is asked for first, as its import implies the others. The count says how long it is since `started`.
    """
    line, deadline = TerminalLine(sys.stderr), Deadline(clock, seconds)
    try:
        while seconds and line.can_show():
            view = control.distribution(publisher, package_ids[-1], min(_POLL_SECONDS, deadline.remaining_seconds()))
            waited = f"waited {seconds_text(clock.monotonic() - started)} of {seconds_text(seconds)}"
            line.show(f"imported by {len(view.imported)}/{_follower_count(view)} subscribers; {waited}")
            if not view.waiting or deadline.is_over():
                break
        found = [
            control.distribution(publisher, package_id, deadline.remaining_seconds())
            for package_id in reversed(package_ids)
        ]
    finally:
        line.clear()
    return found[::-1]


def merged(views: Sequence[DistributionView]) -> DistributionView:
    """The last package, with each subscriber under its worst outcome of any of them."""
    failed = {each.subscriber: each for view in views for each in view.failed}
    taken = set(failed)
    waiting = _first_of((name for name in views[-1].waiting), taken)
    removed = _first_of((name for view in views for name in view.removed), taken)
    skipped = _first_reasons((each for view in views for each in view.skipped), taken)
    unknown = _first_reasons((each for view in views for each in view.unknown), taken)
    return replace(
        views[-1],
        failed=tuple(failed.values()),
        waiting=waiting,
        removed=removed,
        skipped=skipped,
        unknown=unknown,
        imported=tuple(name for name in views[-1].imported if name not in taken),
        state=_QUEUED if waiting else max((view.state for view in views), key=_STATES.index),
    )


def _first_of(names: Iterable[str], taken: set[str]) -> tuple[str, ...]:
    """The names that were not taken before; they are now."""
    found = tuple(name for name in dict.fromkeys(names) if name not in taken)
    taken.update(found)
    return found


def _first_reasons(views: Iterable[NotImportedView], taken: set[str]) -> tuple[NotImportedView, ...]:
    by_name: dict[str, NotImportedView] = {}
    for view in views:
        by_name.setdefault(view.subscriber, view)
    return tuple(by_name[name] for name in _first_of(by_name, taken))


def end_by(views: Sequence[DistributionView]) -> None:
    """Set the exit code by the outcomes of the awaited packages.

    Raises: typer.Exit with 1 where a subscriber that follows the publisher will not import one, or may not have; else
        with 3 where one has still to import it, or none is known.
    """
    if any(len(view.imported) + len(view.waiting) < _follower_count(view) for view in views):
        raise typer.Exit(NOT_IMPORTED_EXIT_CODE)
    if any(view.waiting or not _follower_count(view) for view in views):
        raise typer.Exit(NOT_YET_EXIT_CODE)


def _follower_count(one: DistributionView) -> int:
    """How many subscribers follow the publisher."""
    missed = len(one.removed) + len(one.failed) + len(_passed(one)) + len(one.unknown)
    return len(one.imported) + len(one.waiting) + missed


def _passed(one: DistributionView) -> list[NotImportedView]:
    """The subscribers that skipped the package though they follow the publisher."""
    return [each for each in one.skipped if each.reason != _NOT_FOLLOWED]


def _lines(one: DistributionView) -> Iterator[str]:
    yield f"package    {one.package_id} at offset {one.offset}, from {one.publisher}"
    yield f"request    {one.action} {' '.join(one.paths)}".rstrip()
    yield from ([f"id         {one.request_id}"] if one.request_id else [])
    yield from ([f"requester  {one.user_id}"] if one.user_id else [])
    size = f", {bytes_text(one.package_bytes)}" if one.package_bytes else ""
    yield f"published  {time_text(one.published_at) or ABSENT}{size}"
    yield f"state      {one.state}"
    for title, names in (("imported", one.imported), ("waiting", one.waiting), ("dropped", one.removed)):
        if names:
            yield f"{title:<9}  {len(names)}: {_some(names)}"
    yield from (f"given up   {each.subscriber}: {cause_text(each.cause)}" for each in one.failed)
    yield from (f"skipped    {line}" for line in _reason_lines(one.skipped))
    yield from (f"unknown    {line}" for line in _reason_lines(one.unknown))


def _reason_lines(views: Iterable[NotImportedView]) -> Iterator[str]:
    """One line for each reason, with its subscribers."""
    names: dict[str, list[str]] = {}
    for view in views:
        reason = _REASON_TEXTS.get(view.reason, view.reason)
        if view.reason == "staged":
            reason = f"staged behind {view.golden or 'another subscriber'}, which did not import it"
        names.setdefault(reason, []).append(view.subscriber)
    yield from (f"{len(those)}: {_some(those)} ({reason})" for reason, those in names.items())


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


class Followed(NamedTuple):
    """Outcomes of the published packages.

    Attributes:
        view: The last package, with all subscribers that lack any of them.
        seconds: How long it took to wait.
        states: Of the subscribers that are still waited for.
    """

    view: DistributionView
    seconds: float
    states: Mapping[str, str]


def followed(control: Control, views: Sequence[DistributionView], seconds: float) -> Followed:
    """Put it together; who is still waited for is asked for its state."""
    view = merged(views)
    members = control.status().subscribers if view.waiting else ()
    return Followed(view, seconds, {member.name: member.state for member in members if member.name in view.waiting})


def followed_lines(found: Followed) -> Iterator[str]:
    """The subscribers that have a package and those that lack it, for the command that published it."""
    one, total = found.view, _follower_count(found.view)
    if not total:
        yield "no subscriber is known; nothing to wait for"
        return
    took = f"after waiting {seconds_text(found.seconds)}" if one.waiting else f"in {seconds_text(found.seconds)}"
    yield f"imported by {len(one.imported)}/{total} {took}"
    yield from (f"  given up by {each.subscriber}: {cause_text(each.cause)}" for each in one.failed)
    yield from (f"  dropped by {name}" for name in one.removed)
    yield from (f"  skipped by {line}" for line in _reason_lines(_passed(one)))
    yield from (f"  unknown of {line}" for line in _reason_lines(one.unknown))
    yield from _waiting_lines(found)


def _waiting_lines(found: Followed) -> Iterator[str]:
    """One line for each that is waited for; of many, one for each state."""
    names = found.view.waiting
    if len(names) <= _MOST_LINES:
        yield from (f"  not yet by {name}: {found.states.get(name, _GONE)}" for name in names)
        return
    for state in sorted({found.states.get(name, _GONE) for name in names}):
        those = [name for name in names if found.states.get(name, _GONE) == state]
        yield f"  not yet by {len(those)}: {state}: {_some(those, most=4)}"

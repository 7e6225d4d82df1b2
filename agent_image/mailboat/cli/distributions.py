"""`mailboat distributions`: what became of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mailboat.cli.completion import publisher_names
from mailboat.cli.declaring import remote_command
from mailboat.cli.failures import GIVEN_UP_EXIT_CODE, NOT_YET_EXIT_CODE
from mailboat.cli.help_page import command_group
from mailboat.cli.rendering import ABSENT, Block, Column, Report, Table, bytes_text, seconds_text, time_text
from mailboat.cli.session import Session
from mailboat.cli.status_board import error_text
from mailboat.clock import Clock, Deadline

if TYPE_CHECKING:
    from mailboat.agent.control.port import Control
    from mailboat.agent.control.views import DistributionView

_FAILED = "failed"
_QUEUED = "queued"
_GONE = "gone"
_MOST_LINES = 6
_LOOK_SECONDS = 0.5
_COLUMNS = (
    Column("OFFSET", is_number=True),
    Column("PUBLISHED"),
    Column("ACTION"),
    Column("PATHS", can_cut=True),
    Column("STATE"),
    Column("HAVE IT", is_number=True),
    Column("REQUEST", can_cut=True),
)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = command_group("distributions", "Show what became of publish requests.")
    group.command("get")(get)
    group.command("ls")(list_distributions)
    app.add_typer(group)


@remote_command
def get(
    session: Session,
    package: Annotated[
        str, typer.Argument(metavar="ID", help="A package id, the request id, or an item or offset from `queues show`.")
    ],
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0,
            help="Wait until every subscriber has it; exit code 3 when time is over, 1 when one gave it up.",
        ),
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            "--publisher",
            metavar="NAME",
            help="Who published it; the configured or only publisher when left out.",
            autocompletion=publisher_names,
        ),
    ] = None,
) -> None:
    """Tell what became of a request: who has imported it, who has not yet, who gave it up."""
    name = session.default_publisher(publisher)
    with session.control() as control:
        found = control.distribution(name, package, wait or 0.0)
    session.show(Report(asdict(found), [found.package_id], lambda: list(_lines(found))))
    if wait is not None:
        end_by([found])


@remote_command
def list_distributions(
    session: Session,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100, help="How many at most.")] = 20,
    before: Annotated[
        int | None, typer.Option("--before", metavar="OFFSET", min=0, help="Only those before this offset.")
    ] = None,
    publisher: Annotated[
        str | None,
        typer.Option(
            "--publisher",
            metavar="NAME",
            help="Who published them; the configured or only publisher when left out.",
            autocompletion=publisher_names,
        ),
    ] = None,
) -> None:
    """List requests, the newest first, with how many subscribers have each."""
    name = session.default_publisher(publisher)
    with session.control() as control:
        page = control.distributions(name, before, limit)

    def blocks() -> list[Block]:
        found: list[Block] = [Table(_COLUMNS, [_row(one) for one in page.items], empty=f"{name} has published nothing")]
        more = f"older ones: mailboat distributions ls --before {page.next_before}"
        return found if page.next_before is None else [*found, more]

    session.show(Report(asdict(page), [one.package_id for one in page.items], blocks))


def _row(one: DistributionView) -> list[str]:
    paths = one.paths[0] if one.paths else ABSENT
    return [
        str(one.offset),
        time_text(one.published_ms) or ABSENT,
        one.action,
        f"{paths} … {len(one.paths)} paths" if len(one.paths) > 1 else paths,
        one.state,
        f"{len(one.imported)} of {_audience(one)}",
        one.request_id or ABSENT,
    ]


def waited_for(
    control: Control,
    publisher: str,
    package_ids: Sequence[str],
    clock: Clock,
    seconds: float,
    look: Callable[[DistributionView], None] | None = None,
) -> list[DistributionView]:
    """What became of packages within the time for all: the last one first, as nobody has it before the others.

    Args:
        control: Whom to ask.
        publisher: Whose packages.
        package_ids: In the order of the log.
        clock: Time.
        seconds: For all of them.
        look: Called about twice a second with how far the last package is.
    """
    deadline = Deadline(clock, seconds)
    while look is not None:
        view = control.distribution(publisher, package_ids[-1], min(_LOOK_SECONDS, deadline.remaining_seconds()))
        look(view)
        if not view.waiting or deadline.remaining_seconds() <= 0:
            break
    found = [control.distribution(publisher, one, deadline.remaining_seconds()) for one in reversed(package_ids)]
    return found[::-1]


def standing_text(one: DistributionView) -> str:
    """How far a package is, in a few words."""
    return f"imported by {len(one.imported)}/{_audience(one)} subscribers"


def merged(views: Sequence[DistributionView]) -> DistributionView:
    """The last package, with everybody who gave up, dropped or lacks any of them."""
    failed = tuple({name: (name, cause) for one in views for name, cause in one.failed}.values())
    removed = tuple(dict.fromkeys(name for one in views for name in one.removed))
    without = {name for name, _ in failed} | set(removed)
    return replace(
        views[-1],
        failed=failed,
        removed=removed,
        imported=tuple(name for name in views[-1].imported if name not in without),
        state=_FAILED if failed and views[-1].state != _QUEUED else views[-1].state,
    )


def end_by(views: Sequence[DistributionView]) -> None:
    """End by what became of packages that were waited for.

    Raises: typer.Exit with 1 where somebody gave one up; 3 where somebody has not got there, or nobody is known.
    """
    if any(one.failed for one in views):
        raise typer.Exit(GIVEN_UP_EXIT_CODE)
    if any(one.state == _QUEUED or not _audience(one) for one in views):
        raise typer.Exit(NOT_YET_EXIT_CODE)


def _audience(one: DistributionView) -> int:
    return len(one.imported) + len(one.waiting) + len(one.removed) + len(one.failed)


def _lines(one: DistributionView) -> Iterator[str]:
    yield f"package    {one.package_id} at offset {one.offset}, from {one.publisher}"
    yield f"request    {one.action} {' '.join(one.paths)}".rstrip()
    yield from ([f"id         {one.request_id}"] if one.request_id else [])
    yield from ([f"asked by   {one.user_id}"] if one.user_id else [])
    size = f", {bytes_text(one.package_bytes)}" if one.package_bytes else ""
    yield f"published  {time_text(one.published_ms) or ABSENT}{size}"
    yield f"state      {one.state}"
    for title, names in (("imported", one.imported), ("waiting", one.waiting), ("dropped", one.removed)):
        if names:
            yield f"{title:<9}  {len(names)}: {_some(names)}"
    yield from (f"given up   {name}: {error_text(cause)}" for name, cause in one.failed)


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


class Followed(NamedTuple):
    """What became of what was published.

    Attributes:
        view: The last package, with everybody who lacks any of them.
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
    return Followed(view, seconds, {one.name: one.state for one in members if one.name in view.waiting})


def followed_lines(found: Followed) -> Iterator[str]:
    """Who has a package, and who has not, for those who have just published it."""
    one, total = found.view, _audience(found.view)
    if not total:
        yield "no subscriber is known: nobody was waited for"
        return
    yield f"imported by {len(one.imported)}/{total} in {seconds_text(found.seconds)}"
    yield from (f"  given up by {name}: {error_text(cause)}" for name, cause in one.failed)
    yield from (f"  dropped by {name}" for name in one.removed)
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

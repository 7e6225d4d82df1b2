"""Publishes through the control port of a home or an agent, reports the packages, and waits for the subscribers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from mailboat.api.control import Control
from mailboat.api.records import DistributionView
from mailboat.cli.distributions import Followed, end_by, followed, followed_lines, waited_for, waiting_text
from mailboat.cli.error_report import print_warning
from mailboat.cli.output import Output, Report, count_text
from mailboat.cli.publish_report import published_report
from mailboat.cli.session import Publishing, Session
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock, SystemClock
from mailboat.composition.workspace import Workspace
from mailboat.control.publisher_service import LocalSource
from mailboat.errors import MailboatError
from mailboat.maintenance.schedule import maintain


class RequestOptions(Protocol):
    """Who publishes, and how long the subscribers are waited for."""

    @property
    def publisher(self) -> str | None:
        """Which publisher; None is the configured or only one."""

    @property
    def new_publisher(self) -> bool:
        """Whether it may be one that has not published before."""

    @property
    def wait(self) -> float | None:
        """Seconds to wait for the subscribers; None does not wait."""


class AwaitedPackages(NamedTuple):
    """Packages whose subscribers are waited for.

    Attributes:
        publisher: Whose packages.
        packages: At least one.
        seconds: How long.
        started: When publishing began, on the clock.
        clock: Time.
    """

    publisher: str
    packages: Sequence[DistributionView]
    seconds: float
    started: float
    clock: Clock


def publish_through(
    session: Session,
    publish: Callable[[Control, str], Iterable[DistributionView]],
    delivery: RequestOptions,
    source: LocalSource | None = None,
) -> None:
    """Publish through the control port, print the packages, and wait for the subscribers when asked to.

    Raises: typer.Exit as `distributions get`, and with 3 where no subscriber is known.
    """
    name = session.default_publisher(delivery.publisher)
    clock = SystemClock()
    outcome = None
    publishing = Publishing(name, delivery.new_publisher, source, partial(_maintain, session))
    with session.control(publishing) as control:
        started = clock.monotonic()
        packages = _published(session, publish(control, name))
        # people see the receipts before the wait, programs get one document after it
        if delivery.wait is None or not packages or session.output is Output.TABLE:
            session.show(published_report(packages))
        if delivery.wait is not None and packages:
            outcome = _await_subscribers(
                session, control, AwaitedPackages(name, packages, delivery.wait, started, clock)
            )
    if outcome is not None:
        end_by([outcome.view])


def _maintain(session: Session, workspace: Workspace) -> None:
    """Run due maintenance. Its failure does not fail the publish, since users would then publish again."""
    try:
        maintain(workspace)
    except MailboatError as error:
        what = "the publication is complete; retention or sweep failed and is retried within the hour"
        print_warning(error, sys.stderr, what, is_verbose=session.is_verbose)


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


def _await_subscribers(session: Session, control: Control, awaited: AwaitedPackages) -> Followed:
    """Wait until the known subscribers have the packages, with a live count on a terminal, and print the outcome.

    Raises: KeyboardInterrupt, after a note of what is published all the same.
    """
    line = TerminalLine(sys.stderr)

    def look(view: DistributionView) -> None:
        line.show(waiting_text(view, awaited.clock.monotonic() - awaited.started, awaited.seconds))

    try:
        ids = [package.package_id for package in awaited.packages]
        views = waited_for(
            control, awaited.publisher, ids, awaited.clock, awaited.seconds, look if line.can_show() else None
        )
        outcome = followed(control, views, awaited.clock.monotonic() - awaited.started)
    except KeyboardInterrupt:
        line.clear()
        _note_published(session, awaited.packages)
        raise
    line.clear()
    if session.output is Output.TABLE:
        session.show(Report({}, [], lambda: list(followed_lines(outcome))))
    else:
        session.show(published_report(awaited.packages, outcome))
    return outcome


def _note_published(session: Session, packages: Sequence[DistributionView]) -> None:
    last = packages[-1]
    session.note(
        f"{count_text(len(packages), 'package')} published, the last one {last.package_id} at offset {last.offset};"
        " the wait for the subscribers ended"
    )
    session.note(f"  next  mailboat distributions get {last.package_id}")

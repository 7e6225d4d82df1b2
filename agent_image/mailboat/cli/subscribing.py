"""`mailboat subscribe`: runs a subscriber in this process until it is caught up, or until it is told to stop.

The quickest command there is to start, since a restart must not cost more than the work it takes up again.
"""

from __future__ import annotations

import enum
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.cli.completion import subscriber_names
from mailboat.cli.progress_line import ProgressLine
from mailboat.cli.rendering import Output, Report, count_text
from mailboat.cli.session import Session, command
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, parse_agent_name

if TYPE_CHECKING:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.home import Home, KnownSubscriber
    from mailboat.agent.subscribing import SubscriberProcess, Subscription
    from mailboat.subscriber.progress import SubscriberStatistics


class UntilOption(enum.StrEnum):
    """When the command ends by itself."""

    CAUGHT_UP = "caught-up"
    FOREVER = "forever"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("subscribe")(subscribe)


@command
def subscribe(
    session: Session,
    name: Annotated[str, typer.Argument(help="Name of the subscriber.", autocompletion=subscriber_names)],
    into: Annotated[
        str | None,
        typer.Option(
            "--into", metavar="TARGET", help="files:DIR, generations:DIR or sqlite:FILE; may be left out next time."
        ),
    ] = None,
    follow: Annotated[
        list[str] | None, typer.Option("--follow", metavar="PUBLISHER", help="Import this one's only; repeatable.")
    ] = None,
    max_retries: Annotated[
        int | None,
        typer.Option("--max-retries", min=-1, help="Attempts before a package is given up; -1 never gives up."),
    ] = None,
    until: Annotated[UntilOption, typer.Option("--until", help="When to end.")] = UntilOption.FOREVER,
    accept_gap: Annotated[
        bool, typer.Option("--accept-gap", help="Go on where packages are missing; content may differ.")
    ] = False,
) -> None:
    """Import everything that is published, in order, into a target. Ctrl-C or SIGTERM ends it cleanly."""
    from mailboat.agent.subscribing import SubscriberProcess
    from mailboat.subscriber.subscription import Until

    agent = parse_agent_name(name)
    with session.workspace() as workspace:
        known = _known(workspace.home, agent, into, follow, max_retries)
        subscription = _subscription(workspace, known, is_gap_accepted=accept_gap)
        listener = _listener(session, agent)
        process = SubscriberProcess(workspace, subscription, listener)
        with closing(process), _stopped_by_signals(process):
            workspace.home.remember_subscriber(known)
            try:
                found = process.run(Until(until.value))
            finally:
                if isinstance(listener, ProgressLine):
                    listener.end()
    if session.output is not Output.JSON:  # there the last line said it all
        session.show(_report(subscription, found))


def _known(
    home: Home, name: AgentName, into: str | None, follow: list[str] | None, max_retries: int | None
) -> KnownSubscriber:
    """What holds for this subscriber: the options, else what the home remembers of its last start."""
    from mailboat.agent.home import KnownSubscriber
    from mailboat.agent.locations import absolute_target

    known = home.known_subscriber(name)
    if into is None and known is None:
        raise UsageError(
            f"{name} has no target yet",
            next_step=f"mailboat subscribe {name} --into files:DIR, generations:DIR or sqlite:FILE",
        )
    target = absolute_target(into) if into is not None else known.target if known is not None else ""
    followed = tuple(map(parse_agent_name, follow)) if follow else known.follow if known is not None else ()
    retries = known.max_retries if max_retries is None and known is not None else max_retries
    return KnownSubscriber(name, target, followed, retries)


def _subscription(workspace: Workspace, known: KnownSubscriber, *, is_gap_accepted: bool) -> Subscription:
    from mailboat.agent.subscribing import Subscription

    retries = workspace.home.config.subscriber.max_retries if known.max_retries is None else known.max_retries
    is_endless = retries is not None and retries < 0
    return Subscription(known.name, known.target, known.follow, None if is_endless else retries, is_gap_accepted)


def _listener(session: Session, name: AgentName) -> _JsonLines | ProgressLine:
    return _JsonLines(name) if session.output is Output.JSON else ProgressLine(name, sys.stderr)


@contextmanager
def _stopped_by_signals(process: SubscriberProcess) -> Iterator[None]:
    """SIGTERM and Ctrl-C finish the batch at hand; a second Ctrl-C ends at once."""

    def stop(number: int, _: object) -> None:
        process.stop()
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _JsonLines:
    """Progress for programs: one JSON object a line on standard output, the last one when it has stopped."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, statistics: SubscriberStatistics) -> None:
        sys.stdout.write(json.dumps(progress_document(self._name, statistics), ensure_ascii=False) + "\n")
        sys.stdout.flush()


def progress_document(name: str, statistics: SubscriberStatistics) -> dict[str, Any]:
    """A snapshot for JSON and YAML."""
    cause = statistics.cause
    return {
        "subscriber": name,
        "state": str(statistics.phase),
        "position": statistics.next_offset,
        "lag": statistics.lag,
        "imported": statistics.imported,
        "failed": statistics.failed,
        "skipped": statistics.skipped,
        "put": statistics.put,
        "removed": statistics.removed,
        "content_bytes": statistics.content_bytes,
        "attempts": statistics.attempts,
        "error": None if cause is None else {"code": cause.code, "message": cause.message, "path": cause.path},
    }


def _report(subscription: Subscription, found: SubscriberStatistics) -> Report:
    parts = [f"{count_text(found.imported, 'package')} imported"]
    parts += [f"{found.failed} given up: mailboat errors list {subscription.name}"] if found.failed else []
    position = "nothing read" if found.next_offset is None else f"stands at {found.next_offset}"
    behind = f", {found.lag} behind" if found.lag else ""
    return Report(
        {**progress_document(subscription.name, found), "target": subscription.target},
        [subscription.name],
        lambda: [f"{subscription.name}: {', '.join(parts)}, {position}{behind}"],
    )

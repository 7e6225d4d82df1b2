"""Runs a subscriber from the command line: what was asked for and remembered, signals, progress, the last word.

Progress for people is one line that changes in place, or plain lines where there is no terminal. In the background of
a terminal (`mailboat subscribe … &`) it is quiet, but for trouble: the line belongs to others. Written without rich,
which costs more to import than a restart with nothing to do.
"""

from __future__ import annotations

import enum
import json
import os
import signal
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from mailboat.agent.subscriber_process import SubscriberProcess, Subscription, unknown_publishers
from mailboat.cli.error_report import heed_unwritable
from mailboat.cli.output import Output, Report, bytes_text, cause_text, count_text, seconds_text
from mailboat.cli.session import Session
from mailboat.cli.signals import stopped_by_signals
from mailboat.cli.terminal_line import TerminalLine
from mailboat.clock import Clock, SystemClock
from mailboat.composition.configured_roots import configured_roots
from mailboat.composition.home import Home, RegisteredSubscriber
from mailboat.composition.places import absolute_target
from mailboat.config.document import Delivery
from mailboat.content.locations import parse_target
from mailboat.errors import (
    FollowWidenedError,
    JournalIncompleteError,
    JournalShorterError,
    JournalTrimmedError,
    StopError,
    UsageError,
)
from mailboat.model.identifiers import parse_agent_name
from mailboat.printable import printable
from mailboat.subscriber.subscriber import Until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mailboat.agent.pool_member import PoolMemberProcess
    from mailboat.composition.workspace import Workspace
    from mailboat.config.document import Expose
    from mailboat.subscriber.figures import SubscriberStatistics

_IMPORTING: Final = "importing"
_TICK_SECONDS: Final = 1.0


class ProgressLine:
    """Shows snapshots of a subscriber: on a terminal all, elsewhere one per change of state."""

    def __init__(self, name: str, into: TextIO, clock: Clock) -> None:
        self._name = name
        self._into = into
        self._clock = clock
        self._line = TerminalLine(into)
        self._state = ""
        self._began: tuple[float, int] | None = None
        self._lock = threading.Lock()  # the thread that ticks shows the line too
        self._shown: tuple[float, str] | None = None
        self._ended = threading.Event()
        if self._line.is_terminal:
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def __call__(self, statistics: SubscriberStatistics) -> None:
        """Show a snapshot. A stream that can't be written ends no import."""
        try:
            self._show(statistics)
        except OSError as error:  # its terminal is closed, its reader is gone, or its disk is full
            heed_unwritable(self._into, error)

    def _show(self, statistics: SubscriberStatistics) -> None:
        text = progress_text(self._name, statistics)
        if self._line.can_show():
            seconds_left = self._seconds_left(statistics)
            shown = text if seconds_left is None else f"{text}  ETA {seconds_text(seconds_left)}"
            is_busy = statistics.phase == _IMPORTING
            with self._lock:
                self._shown = (self._clock.monotonic(), shown) if is_busy else None
                self._line.show(shown)
            return
        state = f"{statistics.phase} {statistics.attempts} {statistics.failed} {_redrive_texts(statistics)}"
        is_trouble = statistics.failed or statistics.still_given_up or statistics.cause is not None
        # In the background of a terminal the shell and its user write: only trouble is worth a line among theirs.
        if state == self._state or (self._line.is_terminal and not is_trouble):
            return
        self._state = state
        self._into.write(f"{printable(text)}\n")
        self._into.flush()

    def _tick(self) -> None:
        """A transaction can take long, and says nothing before it is committed: show that time passes."""
        while not self._ended.wait(_TICK_SECONDS):
            with self._lock, suppress(OSError):
                if self._shown is not None and not self._ended.is_set():
                    since, text = self._shown
                    self._line.show(f"{text}  {seconds_text(self._clock.monotonic() - since)}")

    def _seconds_left(self, statistics: SubscriberStatistics) -> float | None:
        """How long it still takes at the pace since it was last caught up; None where none is known."""
        if statistics.next_offset is None or not statistics.lag_offsets:
            self._began = None  # the pace of what comes next is measured from its beginning, not over idle hours
            return None
        now = self._clock.monotonic()
        if self._began is None:
            self._began = now, statistics.next_offset
        seconds, done = now - self._began[0], statistics.next_offset - self._began[1]
        return seconds / done * statistics.lag_offsets if done > 0 and seconds > 0 else None

    def end(self) -> None:
        """Leave the line, so that what follows stands below it."""
        self._ended.set()
        with self._lock, suppress(OSError):
            self._line.clear()


def progress_text(name: str, statistics: SubscriberStatistics) -> str:
    """One line that says where a subscriber is."""
    position = "-" if statistics.next_offset is None else str(statistics.next_offset)
    end = "" if statistics.log_next_offset is None else f"/{statistics.log_next_offset}"
    parts = [f"{name}  {statistics.phase:<9}  {position}{end}", f"{statistics.imported} imported"]
    parts += [bytes_text(statistics.content_bytes)] if statistics.content_bytes else []
    build = statistics.build
    parts += [f"{build.build_id} {build.sequence + 1:,} of {build.total:,}"] if build is not None else []
    parts += ["readers wait for its end"] if statistics.held_back else []
    parts += [f"{statistics.failed} given up"] if statistics.failed else []
    parts += _redrive_texts(statistics)
    parts += [f"attempt {statistics.attempts} failed"] if statistics.attempts else []
    cause = statistics.cause
    parts += [cause_text(cause)] if cause is not None else []
    return "  ".join(parts)


def _redrive_texts(statistics: SubscriberStatistics) -> list[str]:
    texts = [f"{statistics.redriven} re-driven"] if statistics.redriven else []
    texts += [f"{statistics.still_given_up} still given up"] if statistics.still_given_up else []
    return texts


_GAPS: Final = (JournalIncompleteError, JournalTrimmedError, JournalShorterError, FollowWidenedError)
"""States that a person may go on over."""

GIVEN_UP_EXIT_CODE: Final = 1
"""With which `--until caught-up` ends when packages were given up: the target lacks them."""

_NAMED: Final = 5


class UntilOption(enum.StrEnum):
    """When the command ends without a signal."""

    CAUGHT_UP = "caught-up"
    FOREVER = "forever"


class SubscriptionOptions(NamedTuple):
    """What the command line says; what it leaves out the home remembers, or the configuration says."""

    name: str
    into: str | None = None
    follow: tuple[str, ...] = ()
    max_retries: int | None = None
    until: UntilOption = UntilOption.FOREVER
    is_gap_accepted: bool = False
    expose: Expose | None = None
    is_shared: bool | None = None


def run_subscriber(session: Session, asked: SubscriptionOptions) -> int:
    """Import until done, or until SIGTERM or Ctrl-C. Raises: KeyboardInterrupt; as `SubscriberProcess.claim` and `run`.

    The exit code is 1 where it was to end when caught up and packages were given up on the way, else 0.
    """
    with session.workspace() as workspace:
        known = _known(workspace.home, asked)
        subscription = _subscription(workspace, known, asked)
        line = ProgressLine(known.name, sys.stderr, SystemClock()) if session.output is not Output.JSON else None
        listener: Callable[[SubscriberStatistics], None] = line or partial(_write_progress, known.name)
        process: SubscriberProcess | PoolMemberProcess
        if subscription.delivery is Delivery.SHARED:
            from mailboat.agent.pool_member import PoolMemberProcess  # with the engine of jobs

            process = PoolMemberProcess(workspace, subscription, listener)
        else:
            process = SubscriberProcess(workspace, subscription, listener)
        shutdown_seconds = workspace.home.config.subscriber.shutdown_seconds
        with closing(process), stopped_by_signals(process.stop, shutdown_seconds) as received:
            try:
                # Claimed before: a start that is refused must not change what the home remembers.
                workspace.home.remember_subscriber(replace(known, pool=process.claim()))
                _warn_of_unknown(session, *unknown_publishers(workspace, subscription.follow))
                found = process.run(Until(asked.until.value))
                passed_over = process.passed_over()
            except StopError as error:
                _add_ways_out(error, subscription, workspace)
                raise
            finally:
                if line is not None:
                    line.end()
    if session.output is not Output.JSON:  # there the last line said it all
        session.show(_report(subscription, found))
        if passed_over:
            named = ", ".join(passed_over[:_NAMED]) + (", …" if len(passed_over) > _NAMED else "")
            session.note(f"packages of publishers that are not followed were skipped: {named}")
    # After the report, so that Ctrl-C shows it and keeps its exit code.
    if signal.SIGINT in received:
        raise KeyboardInterrupt
    is_incomplete = found.failed > 0 or found.still_given_up > 0
    return GIVEN_UP_EXIT_CODE if is_incomplete and asked.until is UntilOption.CAUGHT_UP else 0


def _warn_of_unknown(session: Session, unknown: Sequence[str], known: Collection[str]) -> None:
    """A mistyped publisher would import nothing, and look as if it were up to date."""
    if unknown:
        named = ", ".join(sorted(known)) or "none"
        session.note(f"warning: no package of {', '.join(unknown)} was found; publishers that were found: {named}")
        session.note(
            "  packages of publishers that are not followed are skipped, and stay missing if those are followed later"
        )


def _add_ways_out(error: StopError, subscription: Subscription, workspace: Workspace) -> None:
    """Print the progress and the next steps for a person at this terminal."""
    is_gap = isinstance(error, _GAPS)
    target = f"{subscription.target} (content unchanged)" if is_gap else subscription.target
    error.with_facts(target=target, journal=workspace.journal.description)
    ways = [f"mailboat explain {error.name}"]
    again = f"mailboat subscribe {subscription.name} --accept-gap"
    if isinstance(error, JournalIncompleteError):
        ways.append("mailboat publish --source SOURCE /   (adds the whole tree to the journal), and then")
        ways.append(f"{again}   (imports from the oldest package that is left)")
    elif isinstance(error, FollowWidenedError):
        followed = "".join(f" --follow {publisher}" for publisher in subscription.follow)
        ways.append("mailboat subscribe NEW-NAME --into TARGET" + f"{followed}   (a new target, imports all)")
        ways.append(f"{again}   (the skipped packages stay missing until their content is published again)")
    elif is_gap:
        ways.append(f"{again}   (content may differ from the source until it is published again)")
    if isinstance(error, JournalIncompleteError | JournalTrimmedError):
        ways.append("mailboat content restore FILE --into TARGET   (or: makes a new target of a newer snapshot)")
    error.advise("\n".join(ways))


def _known(home: Home, asked: SubscriptionOptions) -> RegisteredSubscriber:
    """What holds for this subscriber: the options, else what the home remembers of its last start.

    Raises: UsageError where it has no target, or would have a second one.
    """
    name = parse_agent_name(asked.name)
    known = home.known_subscriber(name)
    if known is None:
        if asked.into is None:
            raise UsageError(
                f"{name} has no target yet",
                next_step=f"mailboat subscribe {name} --into files:DIR, generations:DIR or sqlite:FILE",
            )
        known = RegisteredSubscriber(name, "")
    elif asked.into is not None:
        _refuse_second_target(known, absolute_target(asked.into))
    return RegisteredSubscriber(
        name,
        known.target if asked.into is None else absolute_target(asked.into),
        tuple(map(parse_agent_name, asked.follow)) or known.follow,
        known.max_retries if asked.max_retries is None else asked.max_retries,
        asked.expose or known.expose,
        known.pool,
    )


def _refuse_second_target(known: RegisteredSubscriber, wanted: str) -> None:
    """A subscriber stays with its target as long as that is there: two would be seen, and commanded, as one."""
    old, new = parse_target(known.target), parse_target(wanted)
    is_same = (old.kind, old.path.resolve()) == (new.kind, new.path.resolve())
    if is_same or not os.path.exists(old.path):  # noqa: PTH110  # false also where it can't be asked for
        return
    raise UsageError(
        f"{known.name} already has the target {known.target}",
        next_step=f"choose another name for {wanted}, or\n"
        f"mailboat subscribe {known.name}   (continues with its target)\n"
        f"mailboat subscribers forget {known.name}   (keeps that target, and frees the name)",
    )


def _subscription(workspace: Workspace, known: RegisteredSubscriber, asked: SubscriptionOptions) -> Subscription:
    retries = workspace.home.config.subscriber.max_retries if known.max_retries is None else known.max_retries
    is_endless = retries is not None and retries < 0
    is_shared = known.pool is not None if asked.is_shared is None else asked.is_shared
    return Subscription(
        known.name,
        known.target,
        known.follow,
        configured_roots(workspace.home.config, known.name),
        expose=known.expose,
        delivery=Delivery.SHARED if is_shared else Delivery.BROADCAST,
        max_retries=None if is_endless else retries,
        is_gap_accepted=asked.is_gap_accepted,
    )


def _write_progress(name: str, statistics: SubscriberStatistics) -> None:
    """Progress for programs: one JSON object a line on standard output, the last one when it has stopped."""
    sys.stdout.write(json.dumps(progress_document(name, statistics), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def progress_document(name: str, statistics: SubscriberStatistics) -> dict[str, Any]:
    """A snapshot for JSON and YAML."""
    cause = statistics.cause
    build = statistics.build
    return {
        "subscriber": name,
        "state": str(statistics.phase),
        "position": statistics.next_offset,
        "lag": statistics.lag_offsets,
        "build": None
        if build is None
        else {"id": build.build_id, "imported": build.sequence + 1, "total": build.total},
        "held_back": statistics.held_back,
        "imported": statistics.imported,
        "failed": statistics.failed,
        "redriven": statistics.redriven,
        "still_given_up": statistics.still_given_up,
        "skipped": statistics.skipped,
        "put": statistics.put,
        "removed": statistics.removed,
        "content_bytes": statistics.content_bytes,
        "attempts": statistics.attempts,
        "error": None if cause is None else {"code": cause.code, "message": cause.message, "path": cause.path},
    }


def _report(subscription: Subscription, found: SubscriberStatistics) -> Report:
    is_redrive_all = not found.imported and (found.redriven or found.still_given_up)
    parts = [] if is_redrive_all else [f"{count_text(found.imported, 'package')} imported"]
    parts += [f"{found.failed} given up: see mailboat errors ls {subscription.name}"] if found.failed else []
    parts += [f"{found.redriven} re-driven"] if found.redriven else []
    again = found.redrive_cause
    parts += [f"{found.still_given_up} still given up: {cause_text(again)}"] if again is not None else []
    position = "nothing read" if found.next_offset is None else f"at offset {found.next_offset}"
    behind = f", {found.lag_offsets} behind" if found.lag_offsets else ""
    return Report(
        {**progress_document(subscription.name, found), "target": subscription.target},
        [subscription.name],
        lambda: [f"{subscription.name}: {', '.join(parts)}, {position}{behind}"],
    )

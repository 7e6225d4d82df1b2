"""What `status` shows of a `StatusView`: lines, a table, and what is left out where a terminal is too low. Pure.

`StatusSelection` is which subscribers it shows, in which order, and how keys change that while it is watched.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from mailboat.api.records import document_of
from mailboat.cli.output import Block, Report, ago_text, bytes_text, cause_text, count_text, seconds_text, time_text
from mailboat.cli.tables import ABSENT, Column, Table, error_style, state_style
from mailboat.model.identifiers import natural_key

if TYPE_CHECKING:
    from mailboat.api.records import StatusView, SubscriberStatusView

_CURRENT: Final = "current"
_ENTER: Final = ("\r", "\n")
_ESCAPE: Final = "\x1b"
_DELETE: Final = ("\x7f", "\b")
_LONGEST_FILTER: Final = 60


class Order(enum.StrEnum):
    """Orders of the subscribers."""

    NAME = "name"
    ATTENTION = "attention"
    LAG = "lag"
    RATE = "rate"
    ETA = "eta"


@dataclass(frozen=True, slots=True)
class StatusSelection:
    """What is shown.

    Attributes:
        order: The order of the subscribers.
        wanted: Part of the name, state or error of the subscribers to show; empty shows all.
        typed: The filter that is being typed; None while keys are commands.
        is_paused: Nothing is refreshed.
        is_over: The user ended the watch.
    """

    order: Order = Order.NAME
    wanted: str = ""
    typed: str | None = None
    is_paused: bool = False
    is_over: bool = False

    def applied(self, view: StatusView) -> StatusView:
        """The status with the selected subscribers only, in order."""
        wanted = self.wanted.lower()
        found = [
            each
            for each in view.subscribers
            if any(wanted in text.lower() for text in (each.name, each.state, each.error.code if each.error else ""))
        ]
        return replace(view, subscribers=tuple(ordered(found, self.order)))

    def pressed(self, key: str) -> StatusSelection:
        """The selection after a key."""
        if self.typed is not None:
            return self._typed_on(self.typed, key)
        orders = list(Order)
        changes: dict[str, Callable[[], StatusSelection]] = {
            "q": lambda: replace(self, is_over=True),
            "s": lambda: replace(self, order=orders[(orders.index(self.order) + 1) % len(orders)]),
            "/": lambda: replace(self, typed=""),
            " ": lambda: replace(self, is_paused=not self.is_paused),
            _ESCAPE: lambda: replace(self, wanted=""),
        }
        return changes[key]() if key in changes else self

    def headline(self, shown: int, known: int) -> str:
        """What is selected, and the keys."""
        if self.typed is not None:
            return f"filter: {self.typed}_   Enter applies, Esc cancels"
        parts = [f"sort {self.order}"]
        parts += [f'filter "{self.wanted}": {shown} of {known}'] if self.wanted else []
        parts += ["PAUSED"] if self.is_paused else []
        return "   ".join([*parts, "keys: s sort, / filter, space pause, q quit"])

    def _typed_on(self, typed: str, key: str) -> StatusSelection:
        if key in _ENTER:
            return replace(self, typed=None, wanted=typed)
        if key == _ESCAPE:
            return replace(self, typed=None)
        if key in _DELETE:
            return replace(self, typed=typed[:-1])
        return replace(self, typed=(typed + key)[:_LONGEST_FILTER]) if key.isprintable() else self


def ordered(subscribers: Sequence[SubscriberStatusView], order: Order) -> list[SubscriberStatusView]:
    """The subscribers in an order; equal ones by name, as people count."""
    by_name = sorted(subscribers, key=lambda one: natural_key(one.name))
    match order:
        case Order.NAME:
            return by_name
        case Order.ATTENTION:
            return sorted(by_name, key=_attention)
        case Order.LAG:
            return sorted(by_name, key=lambda one: -(-1 if one.lag is None else one.lag))
        case Order.RATE:
            return sorted(by_name, key=lambda one: -(one.rate_per_second or 0.0))
        case Order.ETA:
            return sorted(by_name, key=lambda one: -(one.eta_seconds or 0.0))


def _attention(one: SubscriberStatusView) -> tuple[bool, bool, bool, bool, int]:
    """Sort key: failed, not ready, with failed packages, behind, most lag."""
    return one.error is None, one.ready is not False, not one.given_up, one.state == _CURRENT, -(one.lag or 0)


COLUMNS: Final = (
    Column("SUBSCRIBER"),
    Column("STATE", style=state_style),
    Column("POSITION", is_number=True),
    Column("LAG", is_number=True),
    Column("RATE", is_number=True, can_hide=True),
    Column("ETA", is_number=True, can_hide=True),
    Column("ATTEMPTS", is_number=True, can_hide=True),
    Column("READY", can_hide=True, style=state_style),
    Column("FOLLOWS"),
    Column("ERROR", can_fold=True, style=error_style),
)
_FOLLOWS: Final = 8
"""Texts and numbers by turns; a text counts as number 0."""


def status_report(view: StatusView, now: datetime, order: Order = Order.NAME) -> Report:
    """The whole status."""
    return Report(
        document_of(view), [subscriber.name for subscriber in view.subscribers], lambda: status_blocks(view, now, order)
    )


def status_blocks(view: StatusView, now: datetime, order: Order = Order.NAME) -> list[Block]:
    """The journal, the publishers, and the table of subscribers."""
    return [*_lines(view, now), subscriber_table(ordered(view.subscribers, order))]


def fitted_blocks(
    view: StatusView,
    now: datetime,
    room: int,
    height: Callable[[Sequence[Block]], int] | None = None,
    order: Order = Order.NAME,
) -> list[Block]:
    """The same in at most `room` lines. By name, current subscribers are dropped first.

    `height`: how many lines blocks take on a terminal; as many as they have rows when left out.
    """
    measured = _rows if height is None else height
    whole = status_blocks(view, now, order)
    if measured(whole) <= room:
        return whole
    lines = _lines(view, now)
    by_trouble = ordered(view.subscribers, Order.ATTENTION if order is Order.NAME else order)
    fitting, failing = 0, len(by_trouble)
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        fits = measured(_part(lines, by_trouble, middle)) <= room
        fitting, failing = (middle, failing) if fits else (fitting, middle)
    return _part(lines, by_trouble, fitting)


def _part(lines: Sequence[str], by_trouble: Sequence[SubscriberStatusView], count: int) -> list[Block]:
    """The first `count` subscribers, and how many are left out in which states."""
    hidden = Counter(status.state for status in by_trouble[count:])
    states = ", ".join(f"{number} {state}" for state, number in sorted(hidden.items()))
    rest = f"and {count_text(hidden.total(), 'subscriber')} more: {states}"
    return [*lines, *([subscriber_table(by_trouble[:count])] if count else []), *([rest] if hidden else [])]


def _rows(blocks: Sequence[Block]) -> int:
    return sum(1 if isinstance(block, str) else len(block.rows) + 1 for block in blocks)


def changed_lines(view: StatusView, shown: dict[str, str]) -> Iterator[str]:
    """The changed lines of journal and subscribers since `shown`, which is updated."""
    lines = {"": f"journal  next {view.journal.next_offset}"}
    lines |= {subscriber.name: _subscriber_line(subscriber) for subscriber in ordered(view.subscribers, Order.NAME)}
    yield from (line for name, line in lines.items() if shown.get(name) != line)
    yield from (f"{name}  no longer listed" for name in shown if name not in lines)
    shown.clear()
    shown.update(lines)


def _subscriber_line(one: SubscriberStatusView) -> str:
    parts = [f"{one.name}  {state_text(one)}", f"position {_number(one.next_offset)}", f"lag {_number(one.lag)}"]
    parts += [f"attempt {_attempts(one)}"] if one.attempts else []
    return "  ".join([*parts, *_remarks(one)])


def _lines(view: StatusView, now: datetime) -> list[str]:
    journal, kept = view.journal, view.journal.retention_seconds
    parts = [f"journal    {journal.description}", f"oldest {journal.earliest_offset}", f"next {journal.next_offset}"]
    parts += [] if journal.size_bytes is None else [bytes_text(journal.size_bytes)]
    lines = ["   ".join([*parts, f"kept {'without age limit' if kept is None else seconds_text(kept)}"])]
    width = max((len(publisher.name) for publisher in view.publishers), default=0)
    for publisher in view.publishers:
        at = publisher.last_published_at
        parts = [f"publisher  {publisher.name:<{width}}"]
        parts += [] if publisher.state is None else [f"queues {publisher.state}"]
        parts.append("nothing published lately" if at is None else f"last published {ago_text(now - at)}")
        parts += [f"held back by {seconds_text(publisher.delay_seconds)}"] if publisher.delay_seconds else []
        lines.append("   ".join(parts))
    if view.unreadable_announcements:
        count = count_text(view.unreadable_announcements, "message")
        lines.append(f"discovery  {count} can't be understood: see mailboat journal verify")
    if view.dropped_subscribers:
        count = count_text(view.dropped_subscribers, "subscriber")
        lines.append(f"dropped    {count} dropped to bound the agent's memory: not listed here")
    return lines


def subscriber_table(subscribers: Sequence[SubscriberStatusView]) -> Table:
    """A row for each subscriber, in the order given."""
    columns, rows = list(COLUMNS), [_row(subscriber) for subscriber in subscribers]
    if not any(subscriber.follow for subscriber in subscribers):  # the usual case, and terminals are narrow
        columns.pop(_FOLLOWS)
        for row in rows:
            row.pop(_FOLLOWS)
    return Table(columns, rows, empty="no subscriber is known")


def _row(one: SubscriberStatusView) -> list[str]:
    return [
        one.name,
        state_text(one),
        _number(one.next_offset),
        _number(one.lag),
        ABSENT if one.rate_per_second is None else _rate(one.rate_per_second),
        ABSENT if one.eta_seconds is None else seconds_text(one.eta_seconds),
        _attempts(one) if one.attempts else ABSENT,
        ABSENT if one.ready is None else "yes" if one.ready else "no",
        ", ".join(one.follow) or "all",
        "; ".join(_remarks(one)),
    ]


def state_text(one: SubscriberStatusView) -> str:
    """The state, with the bulk build that it is in the middle of: `importing release-42, 1,200 of 5,000`."""
    build = one.build
    return one.state if build is None else f"{one.state} {build.build_id}, {build.imported:,} of {build.total:,}"


def _remarks(one: SubscriberStatusView) -> Iterator[str]:
    if one.suspended_at is not None:
        until = time_text(one.suspended_until) or f"mailboat subscribers resume {one.name}"
        yield f"suspended until {until}"
    if one.error is not None:
        yield cause_text(one.error)
    if one.ready is False and one.ready_reason and one.error is None:
        yield f"not ready: {one.ready_reason}"
    if one.given_up:
        yield f"{one.given_up} given up: see mailboat errors ls {one.name}"
    if one.after_calls is not None and (one.after_calls.error is not None or one.after_calls.set_aside):
        calls = one.after_calls
        why = "" if calls.error is None else f": {cause_text(calls.error)}"
        aside = f", {calls.set_aside} failed (see mailboat errors ls {one.name})" if calls.set_aside else ""
        yield f"hook after: {count_text(calls.waiting, 'call')} pending{aside}{why}"


def _rate(per_second: float) -> str:
    return f"{per_second:.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def _number(value: int | None) -> str:
    return ABSENT if value is None else str(value)


def _attempts(one: SubscriberStatusView) -> str:
    return str(one.attempts) if one.max_retries is None else f"{one.attempts} of {one.max_retries + 1}"

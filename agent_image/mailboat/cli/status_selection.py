"""Which subscribers `status` shows, in which order, and how keys change that while it is watched. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

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
        changes: dict[str, Callable[[], StatusSelection]] = {
            "q": lambda: replace(self, is_over=True),
            "s": lambda: replace(self, order=_after(self.order)),
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


def _after(order: Order) -> Order:
    orders = list(Order)
    return orders[(orders.index(order) + 1) % len(orders)]


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

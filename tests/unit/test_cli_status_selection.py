"""The selection of `status`: orders, filters, and keys."""

from __future__ import annotations

import pytest
from mailboat.api.records import CauseView, JournalView, StatusView, SubscriberStatusView
from mailboat.cli.status_board import Order, StatusSelection

FULL = CauseView("StorageFull", "no space left on device")
FLEET = (
    SubscriberStatusView("edge-10", "current", lag=0, rate_per_second=9.0, given_up=1),
    SubscriberStatusView("edge-2", "importing", lag=7, rate_per_second=2.0, eta_seconds=3.5),
    SubscriberStatusView("edge-1", "retrying", lag=3, error=FULL),
    SubscriberStatusView("late", "new"),
)
VIEW = StatusView(JournalView("x", 0, 9), (), FLEET)


def names(selection: StatusSelection) -> list[str]:
    return [subscriber.name for subscriber in selection.applied(VIEW).subscribers]


def pressed(keys: str, selection: StatusSelection | None = None) -> StatusSelection:
    found = StatusSelection() if selection is None else selection
    for key in keys:
        found = found.pressed(key)
    return found


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.NAME, ["edge-1", "edge-2", "edge-10", "late"]),
        (Order.ATTENTION, ["edge-1", "edge-10", "edge-2", "late"]),
        (Order.LAG, ["edge-2", "edge-1", "edge-10", "late"]),
        (Order.RATE, ["edge-10", "edge-2", "edge-1", "late"]),
        (Order.ETA, ["edge-2", "edge-1", "edge-10", "late"]),
    ],
)
def test_orders(order: Order, expected: list[str]) -> None:
    assert names(StatusSelection(order)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("EDGE-1", ["edge-1", "edge-10"]), ("retry", ["edge-1"]), ("storage", ["edge-1"]), ("?", [])],
)
def test_filter_matches_name_state_and_error(wanted: str, expected: list[str]) -> None:
    assert names(StatusSelection(wanted=wanted)) == expected


def test_keys_sort_pause_and_quit() -> None:
    assert pressed("s").order is Order.ATTENTION
    assert pressed("s" * len(Order)).order is Order.NAME
    assert pressed(" ").is_paused
    assert not pressed("  ").is_paused
    assert pressed("q").is_over
    assert pressed("xyz\t") == StatusSelection()


def test_filter_is_typed_applied_cancelled_and_removed() -> None:
    typing = pressed("/edgeq\x7f-1")
    assert typing.typed == "edge-1"
    assert "filter: edge-1_" in typing.headline(4, 4)
    assert names(typing) == names(StatusSelection()), "not applied yet"
    applied = pressed("\n", typing)
    assert (applied.wanted, applied.typed, applied.is_over) == ("edge-1", None, False)
    assert 'filter "edge-1": 2 of 4' in applied.headline(2, 4)
    assert pressed("/late\x1b", applied).wanted == "edge-1"
    assert pressed("\x1b", applied).wanted == ""
    assert len(pressed("/" + "x" * 500).typed or "") == 60

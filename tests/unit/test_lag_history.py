"""The history of lag and throughput: samples, gaps, bounds."""

from __future__ import annotations

import pytest
from mailboat.api.process_views import HistoryView
from mailboat.api.records import JournalView, StatusView, SubscriberStatusView
from mailboat.control import lag_history
from mailboat.control.lag_history import SAMPLE_SECONDS, SAMPLES, LagHistory
from mailboat.errors import AgentMissingError
from mailboat.testing.clocks import ManualClock


class Fleet:
    """A status that the test sets, at a clock that it moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.subscribers: list[SubscriberStatusView] = []
        self.history = LagHistory(self.status, self.clock)

    def status(self) -> StatusView:
        return StatusView(JournalView("memory", 0, 100), (), tuple(self.subscribers))

    def sample(self, **positions: int | None) -> None:
        self.subscribers = [
            SubscriberStatusView(name, "importing", "1", position, None if position is None else 100 - position)
            for name, position in positions.items()
        ]
        assert self.history.sample() >= SAMPLE_SECONDS
        self.clock.advance(SAMPLE_SECONDS)


def figures(view: HistoryView) -> list[tuple[int | None, float | None]]:
    return [(sample.lag, sample.rate_per_second) for sample in view.samples]


def test_rates_are_packages_between_samples() -> None:
    fleet = Fleet()
    fleet.sample(edge=10)
    fleet.sample(edge=60, late=100)
    fleet.sample(edge=100, late=100)
    assert figures(fleet.history.of("edge")) == [(90, None), (40, 5.0), (0, 4.0)]
    assert figures(fleet.history.of("late")) == [(0, None), (0, 0.0)]
    assert figures(fleet.history.total()) == [(90, None), (40, 5.0), (0, 4.0)]


def test_unknown_and_lower_positions_give_no_rate() -> None:
    fleet = Fleet()
    for position in (None, 50, 20, None, 30):
        fleet.sample(edge=position)
    assert figures(fleet.history.of("edge")) == [(None, None), (50, None), (80, 0.0), (None, None), (70, None)]


def test_only_the_last_hour_is_kept() -> None:
    fleet = Fleet()
    for _ in range(SAMPLES + 5):
        fleet.sample(edge=1)
    assert len(fleet.history.of("edge").samples) == len(fleet.history.total().samples) == SAMPLES


def test_subscriber_that_left_is_forgotten_after_an_hour() -> None:
    fleet = Fleet()
    fleet.sample(edge=1, other=1)
    fleet.sample(other=1)
    assert fleet.history.of("edge").samples
    fleet.clock.advance(SAMPLES * SAMPLE_SECONDS)
    fleet.sample(other=1)
    with pytest.raises(AgentMissingError):
        fleet.history.of("edge")


def test_subscribers_beyond_the_bound_count_in_the_totals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "MAX_SUBSCRIBERS", 1)
    fleet = Fleet()
    fleet.sample(first=90, second=80)
    assert figures(fleet.history.total()) == [(30, None)]
    with pytest.raises(AgentMissingError):
        fleet.history.of("second")


def test_instances_of_one_name_are_told_apart() -> None:
    fleet = Fleet()
    fleet.subscribers = [
        SubscriberStatusView("edge", "current", instance, 1, lag) for instance, lag in (("a", 1), ("b", 2))
    ]
    fleet.history.sample()
    assert figures(fleet.history.of("edge", "b")) == [(2, None)]
    assert figures(fleet.history.of("edge")) == [(1, None)]

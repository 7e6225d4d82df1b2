"""Distributed events: in any history each package has one, in order, and never early."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.failpoints import Failpoint
from mailboat.model.messages import (
    DistributedEvent,
    MissedReason,
    PackageStatus,
)
from mailboat.testing.examples import examples
from support.event_world import SETTLED, CrashError, World, name_of


@dataclass
class Known:
    """What the oracle knows of a subscriber: since when, how far, when it was last heard."""

    since_ms: int
    position: int
    heard_ms: int


OPERATIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(1, 4)),
    st.tuples(st.just("announce"), st.sampled_from("abc"), st.integers(0, 12)),
    st.tuples(st.just("pass"), st.sampled_from([0.5, 2.0, 100.0, 301.0, 1000.0])),
    st.tuples(st.just("fail"), st.sampled_from("abc")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("crash"), st.sampled_from([Failpoint.EVENTS_APPENDED, Failpoint.EVENTS_CURSOR_STORED])),
)


class History:
    """Plays operations and checks each event against what subscribers had said by then."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.known: dict[str, Known] = {}
        self.appended: list[int] = []
        self.failed: set[tuple[str, int]] = set()
        self.stored: set[str] = set()
        self.checked = 0

    def now_ms(self) -> int:
        return int(self.world.clock.now().timestamp() * 1000)

    def play(self, operation: tuple[object, ...]) -> None:
        match operation:
            case ("publish", int(count)):
                for _ in range(count):
                    self.world.publish()
                    self.appended.append(self.now_ms())
            case ("announce", str(name), int(position)):
                self.announce(name, min(position, len(self.appended)))
            case ("pass", float(seconds)):
                self.world.clock.advance(seconds)
            case ("fail", str(name)):
                self.fail(name)
            case ("restart",):
                self.start()
            case ("stop",):
                self.world.stop()
            case ("crash", Failpoint() as failpoint):
                self.world.failpoints.at = failpoint
        self.step()

    def start(self) -> None:
        """A run gives the stored subscribers as much time as if it had just heard them."""
        self.world.start()
        for name in self.stored:
            self.known[name].heard_ms = self.now_ms()

    def here(self) -> dict[str, Known]:
        return {name: one for name, one in self.known.items() if self.now_ms() - one.heard_ms <= 300_000}

    def announce(self, name: str, position: int) -> None:
        self.world.announce(name, position)
        before = self.known.get(name)
        is_new = before is None or self.now_ms() - before.heard_ms > 300_000
        self.known[name] = Known(
            self.now_ms() if is_new or before is None else before.since_ms, position, self.now_ms()
        )

    def fail(self, name: str) -> None:
        known = self.known.get(name)
        if known is not None and known.position < len(self.appended):
            self.failed.add((name, known.position))
            self.world.say(name, known.position, PackageStatus.REMOVED_FAILED)
            self.announce(name, known.position + 1)

    def step(self) -> None:
        if self.world.run is None:
            return
        try:
            self.world.step()
        except CrashError as crash:
            if crash.args != (Failpoint.EVENTS_APPENDED,):
                self.stored = set(self.here())
            self.start()
        else:
            self.stored = set(self.here())
        events = self.world.events()
        assert [event.offset for event in events] == list(range(len(events)))  # each once, in order
        for event in events[self.checked :]:
            self.check(event)
        self.checked = len(events)

    def check(self, event: DistributedEvent) -> None:
        appended_ms = self.appended[event.offset]
        missed = {item.subscriber: item.reason for item in event.missed}
        here = self.here()
        counted = {name: one for name, one in here.items() if one.since_ms <= appended_ms}
        assert here, "an event without subscribers"
        assert any(item.position > event.offset for item in here.values())
        for name, one in counted.items():
            assert one.position > event.offset, f"{name} is at {one.position}, and not past {event.offset}"
        for name, offset in self.failed:
            if offset == event.offset and name in counted:
                assert missed[name_of(name)] is MissedReason.FAILED
        for name, one in self.known.items():
            if name not in here and one.since_ms <= appended_ms and one.position <= event.offset:
                is_left_before = appended_ms > one.heard_ms + 300_000
                assert is_left_before or name_of(name) in missed

    def finish(self) -> None:
        """When everyone is past everything and time has passed, every package has had its event."""
        self.world.failpoints.at = None
        if self.world.run is None:
            self.start()
        for name in "abc":
            self.announce(name, len(self.appended))
        self.step()
        self.world.clock.advance(SETTLED)
        for name in "abc":
            self.announce(name, len(self.appended))
        self.step()
        assert len(self.world.events()) == len(self.appended)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(OPERATIONS, max_size=40))
def test_in_any_history_each_package_has_one_event_in_order_and_never_early(
    operations: list[tuple[object, ...]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        with closing(history.world):
            for operation in operations:
                history.play(operation)
            history.finish()

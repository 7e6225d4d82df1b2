"""The bell of a topic: who listens is woken, and no one has to clean up."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from mailboat.journal.wakeup import Listener, ring
from mailboat.testing.journal_harness import in_background
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS


@pytest.fixture
def bell(tmp_path: Path) -> Path:
    return tmp_path / "wake" / "1"


@pytest.fixture
def listener(bell: Path) -> Iterator[Listener]:
    listener = Listener(bell)
    yield listener
    listener.close()


def seconds_of_wait(listener: Listener, at_most: float) -> float:
    began = time.monotonic()
    listener.wait(at_most)
    return time.monotonic() - began


def test_a_ring_after_arming_ends_the_wait_that_follows(listener: Listener, bell: Path) -> None:
    listener.arm()
    ring(bell)
    assert seconds_of_wait(listener, LONG_WAIT_SECONDS) < PATIENCE_SECONDS


def test_one_ring_wakes_all_who_listen(bell: Path) -> None:
    listeners = [Listener(bell) for _ in range(50)]
    for listener in listeners:
        listener.arm()
    ring(bell)
    for listener in listeners:
        assert seconds_of_wait(listener, LONG_WAIT_SECONDS) < PATIENCE_SECONDS
        listener.close()


def test_a_ring_wakes_a_listener_that_sleeps(listener: Listener, bell: Path) -> None:
    listener.arm()
    with in_background(lambda: listener.wait(LONG_WAIT_SECONDS)) as waiting:
        ring(bell)
        waiting.result(PATIENCE_SECONDS)


def test_a_ring_before_arming_is_not_heard(listener: Listener, bell: Path) -> None:
    listener.arm()
    ring(bell)
    listener.wait(LONG_WAIT_SECONDS)
    assert not listener.is_armed
    ring(bell)
    listener.arm()
    listener.wait(0.0)
    assert listener.is_armed


def test_each_arming_hears_one_ring(listener: Listener, bell: Path) -> None:
    for _ in range(20):
        listener.arm()
        listener.found_something()
        ring(bell)
        assert seconds_of_wait(listener, LONG_WAIT_SECONDS) < PATIENCE_SECONDS


def test_ringing_where_no_one_listens_does_nothing(bell: Path) -> None:
    ring(bell)
    assert not bell.exists()
    listener = Listener(bell)
    listener.arm()
    listener.close()
    ring(bell)


def test_an_interrupt_ends_the_wait_until_it_was_heard(listener: Listener) -> None:
    listener.arm()
    for _ in range(100_000):  # far more than a pipe holds
        listener.interrupt()
    assert seconds_of_wait(listener, LONG_WAIT_SECONDS) < PATIENCE_SECONDS
    listener.wait(LONG_WAIT_SECONDS)
    listener.heard_interrupt()
    assert select.select([listener._interrupt_reads], [], [], 0.0)[0] == []


def test_a_file_in_the_bells_place_is_left_alone_and_only_costs_the_wake_up(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"somebody's")
    listener = Listener(place)
    listener.arm()
    assert not listener.is_armed
    ring(place)
    listener.wait(0.001)
    listener.close()
    assert place.read_bytes() == b"somebody's"


def test_a_link_in_the_bells_place_is_not_followed(tmp_path: Path) -> None:
    victim, place = tmp_path / "victim", tmp_path / "link"
    os.mkfifo(victim)
    place.symlink_to(victim)
    listener = Listener(place)
    listener.arm()
    assert not listener.is_armed
    listener.close()


def test_a_folder_that_can_not_be_made_only_costs_the_wake_up(tmp_path: Path) -> None:
    (tmp_path / "wake").write_bytes(b"")
    listener = Listener(tmp_path / "wake" / "1")
    listener.arm()
    assert not listener.is_armed
    listener.wait(0.001)
    listener.close()


def test_a_bell_that_rings_for_nothing_is_no_longer_listened_to(listener: Listener, bell: Path) -> None:
    """Where the end of input is reported at once, as on other systems, a reader must not spin."""
    for _ in range(1000):
        listener.arm()
        ring(bell)
        listener.wait(0.0)
    assert not listener.is_armed


def test_an_interrupt_after_closing_touches_nobodys_descriptor(bell: Path, tmp_path: Path) -> None:
    listener = Listener(bell)
    listener.close()
    with (tmp_path / "other").open("wb") as one, (tmp_path / "another").open("wb") as two:
        listener.interrupt()
        assert one.tell() == two.tell() == 0
    assert (tmp_path / "other").read_bytes() == (tmp_path / "another").read_bytes() == b""


def test_a_listener_that_no_one_closed_leaves_no_descriptors(bell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipes: set[tuple[int, int]] = set()
    make_pipe = os.pipe

    def noted_pipe() -> tuple[int, int]:
        pipe = make_pipe()
        pipes.add(file_of(os.fstat(pipe[0])))
        return pipe

    monkeypatch.setattr(os, "pipe", noted_pipe)
    for _ in range(20):
        Listener(bell).arm()
    assert len(pipes) == 20
    # Other descriptors are none of its business: threads of clients that other tests left may open some meanwhile.
    assert {*pipes, file_of(bell.stat())} & open_files() == set()


def file_of(found: os.stat_result) -> tuple[int, int]:
    """The number alone may be another file's on another file system."""
    return found.st_dev, found.st_ino


def open_files() -> set[tuple[int, int]]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, such as the folder itself
            found.add(file_of(descriptor.stat()))
    return found

"""What a journal gives on this machine, with these brokers or this disk: measured, not promised.

A topic of its own is made, filled and removed, also when the measuring is interrupted; no other topic is touched.
Latencies are of single messages one after the other, as one publisher has them; rates are of one thread that appends
batches. Called by `mailboat journal bench`.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Sequence
from typing import Final

from mailboat.api.archive import BatchRate, JournalFigures, Latency
from mailboat.api.orders import BenchOrder
from mailboat.clock import Clock, Deadline
from mailboat.config.topic_settings import TopicSettings
from mailboat.errors import MailboatError
from mailboat.journal.port import Edge, Journal, JournalReader, NewRecord, ReadLimits
from mailboat.model.identifiers import TopicName

_LOG = logging.getLogger(__name__)

BATCHES: Final = (1, 10, 100, 1000)
_SEED: Final = 1_846
_WAIT_SECONDS: Final = 10.0
_FIRST: Final = 5  # calls whose time is that of connecting
_BATCH_BYTES: Final = 32 * 1024 * 1024
_READ: Final = ReadLimits(max_records=1000, max_bytes=8 * 1024 * 1024)


def measure_journal(journal: Journal, topic_prefix: str, order: BenchOrder, clock: Clock) -> JournalFigures:
    """Measure, on a topic that is removed afterwards.

    Raises: MessageTooLargeError, JournalUnavailableError, JournalAccessDeniedError; the topic is removed all the same,
    or a warning names it.
    """
    topic = TopicName(f"{topic_prefix}mailboat-bench-{uuid.uuid4().hex[:8]}")
    journal.ensure_topic(topic, TopicSettings(retention_seconds=3600.0, max_message_bytes=order.message_bytes))
    try:
        return _Bench(journal, topic, order, clock).run()
    finally:
        # caught: the figures, or the error of the measurement, say more than this one
        try:
            journal.upkeep.delete_topic(topic)
        except MailboatError as error:
            _LOG.warning("the topic %s of the measurement may be left: %s", topic, error)


class _Bench:
    """One measurement on one topic."""

    def __init__(self, journal: Journal, topic: TopicName, order: BenchOrder, clock: Clock) -> None:
        self._journal = journal
        self._topic = topic
        self._order = order
        self._clock = clock
        chance = random.Random(_SEED)  # noqa: S311  # bytes that do not compress, the same in every run
        self._values = [chance.randbytes(order.message_bytes) for _ in range(16)]

    def run(self) -> JournalFigures:
        self._append_times(_FIRST)
        append = _latency(self._append_times(self._order.rounds))
        wakeup = _latency(self._wakeup_times(self._order.rounds))
        # larger batches would not stay within the memory that a measurement may take
        batches = [batch for batch in BATCHES if batch == 1 or batch * self._order.message_bytes <= _BATCH_BYTES]
        rates = tuple(map(self._rate, batches))
        read_per_second = self._read_rate()
        return JournalFigures(
            self._journal.description, self._order.message_bytes, append, wakeup, rates, read_per_second
        )

    def _records(self, count: int) -> list[NewRecord]:
        return [NewRecord(self._values[number % len(self._values)]) for number in range(count)]

    def _append_times(self, rounds: int) -> list[float]:
        times = []
        for record in self._records(rounds):
            begin = self._clock.monotonic()
            self._journal.append(self._topic, [record])
            times.append(self._clock.monotonic() - begin)
        return times

    def _wakeup_times(self, rounds: int) -> list[float]:
        reader = self._journal.reader(self._topic, Edge.NEXT)
        listener = _Listener(reader, self._clock)
        try:
            times = []
            for record in self._records(_FIRST + rounds):
                # before the append: cleared after it, the event of a fast reader would be lost
                listener.listen()
                begin = self._clock.monotonic()
                self._journal.append(self._topic, [record])
                times.append(listener.heard_at() - begin)
            return times[_FIRST:]
        finally:
            listener.stop()
            reader.close()

    def _rate(self, batch: int) -> BatchRate:
        records = self._records(batch)
        self._journal.append(self._topic, records)
        syncs = self._journal.upkeep.synchronisations()
        begin, deadline, batches = self._clock.monotonic(), Deadline(self._clock, self._order.seconds), 0
        while not batches or not deadline.is_over():
            self._journal.append(self._topic, records)
            batches += 1
        seconds = max(self._clock.monotonic() - begin, 1e-9)
        synced = self._journal.upkeep.synchronisations()
        per_second = batches * batch / seconds
        each = None if syncs is None or synced is None else (synced - syncs) / (batches * batch)
        return BatchRate(batch, per_second, per_second * self._order.message_bytes, each)

    def _read_rate(self) -> float:
        reader = self._journal.reader(self._topic, Edge.EARLIEST)
        try:
            begin, deadline, count, is_at_end = self._clock.monotonic(), Deadline(self._clock, _WAIT_SECONDS), 0, False
            while not is_at_end and not deadline.is_over():
                batch = reader.read(_READ, 0.0)
                count, is_at_end = count + len(batch.records), batch.is_at_end
            return count / max(self._clock.monotonic() - begin, 1e-9)
        finally:
            reader.close()


class _Listener:
    """A reader in a thread of its own, which notes when it got a message."""

    def __init__(self, reader: JournalReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._is_heard = threading.Event()
        self._is_over = threading.Event()
        self._at = 0.0
        self._failure: MailboatError | None = None
        self._thread = threading.Thread(target=self._run, name="bench-listener", daemon=True)
        self._thread.start()

    def listen(self) -> None:
        """Forget the last message."""
        self._is_heard.clear()

    def heard_at(self) -> float:
        """When the message came. Raises: the reader's error; MailboatError when nothing comes."""
        if not self._clock.wait(self._is_heard, _WAIT_SECONDS):
            raise MailboatError(f"a message did not reach a waiting reader within {_WAIT_SECONDS:g} seconds")
        if self._failure is not None:
            raise self._failure
        return self._at

    def stop(self) -> None:
        """End the thread."""
        self._is_over.set()
        self._reader.interrupt()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                if not self._reader.read(_READ, _WAIT_SECONDS).records:
                    continue
            except MailboatError as error:
                self._failure = error
                self._is_over.set()
            # written before the event is set: `heard_at` reads it without a lock
            self._at = self._clock.monotonic()
            self._is_heard.set()


def _latency(seconds: Sequence[float]) -> Latency:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return Latency(ordered[last // 2] * 1000, ordered[round(last * 0.99)] * 1000, len(ordered))

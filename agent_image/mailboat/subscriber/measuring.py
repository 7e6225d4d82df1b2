"""Tells a commit to whoever measures or traces imports; when nobody does, it costs two comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mailboat.errors import UntrustedInputError
from mailboat.journal.port import Record
from mailboat.model.messages import PackageMessage
from mailboat.subscriber.importing import Outcome
from mailboat.subscriber.progress import ImportedBatch
from mailboat.subscriber.settings import SubscriberPorts, SubscriberSettings
from mailboat.tracing import TracedPackage
from mailboat.wire.messages import decode_message


class Measuring:
    """The measuring of one run, in its thread."""

    def __init__(self, settings: SubscriberSettings, ports: SubscriberPorts) -> None:
        """Nothing is measured yet."""
        self._name = settings.name
        self._clock = ports.clock
        self._meter = ports.meter
        self._tracer = ports.tracer
        self._is_on = ports.meter is not None or ports.tracer.is_recording

    def begin(self) -> float:
        """A transaction begins; what `committed` wants to be given."""
        if self._meter is not None:
            self._meter.began()
        return self._clock.monotonic() if self._is_on else 0.0

    def confirming(self, send: Callable[[], None]) -> None:
        """Send confirmations."""
        began = self._clock.monotonic()
        send()
        if self._meter is not None:
            self._meter.confirmed(self._clock.monotonic() - began)

    def committed(self, records: Sequence[Record], outcome: Outcome, began: float) -> None:
        """The first `outcome.done` of the records are durable."""
        if not self._is_on or not outcome.imported:
            return
        seconds = self._clock.monotonic() - began
        now_ms = int(self._clock.now().timestamp() * 1000)
        done = records[: outcome.done]
        if outcome.left_out:
            done = [record for record in done if record.offset not in outcome.left_out]
        far = outcome.far_bytes
        sizes = (
            [far.get(record.offset) or len(record.value) for record in done] if far else [len(r.value) for r in done]
        )
        batch = ImportedBatch(done, sizes, now_ms - int(seconds * 1000), now_ms, seconds)
        if self._meter is not None:
            self._meter.imported(batch)
        if self._tracer.is_recording:
            traced = [one for one in map(_traced, done) if one is not None and one.trace_parent is not None]
            self._tracer.imported(self._name, traced, batch.began_ms, batch.committed_ms)


def _traced(record: Record) -> TracedPackage | None:
    try:
        message = decode_message(record.headers, record.value)
    except UntrustedInputError:
        return None  # imported by a policy that takes it as it is
    if not isinstance(message, PackageMessage):
        return None
    return TracedPackage(
        message.package_id,
        message.action,
        message.pub_agent_name,
        record.offset,
        message.paths[0] if message.paths else None,
        message.package_length_bytes,
        message.trace_parent,
    )

"""Appends events of jobs to the event topic, as a webhook posts them.

The sender of a delivery to a topic.

What was appended but not noted is found on the topic at the next start, so each event is there once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mailboat.config.receivers import WebhookFormat
from mailboat.journal.port import Journal, NewRecord, records_of
from mailboat.model.identifiers import Offset, TopicName
from mailboat.telemetry.notice_formats import encode_notice
from mailboat.telemetry.notices import Notice
from mailboat.wire.event_documents import JOB_EVENT_HEADERS

_AT_ONCE: Final = 500
"""Events that are appended together, about 300 bytes each."""


class TopicSender:
    """`EventSender` of a topic. The journal stays the caller's."""

    max_notices = _AT_ONCE
    pause_seconds = timeout_seconds = 0.0

    def __init__(self, journal: Journal, topic: TopicName) -> None:
        """Read nothing yet."""
        self.place = f"topic {topic}"
        self._journal = journal
        self._topic = topic
        self._appended: set[bytes] = set()
        """Events behind the cursor: an earlier process, or a call that failed, appended them."""

    def end(self) -> Offset:
        return self._journal.bounds(self._topic).next_offset

    def resume(self, end: Offset) -> None:
        bounds = self._journal.bounds(self._topic)
        # An end behind that of the topic is of an earlier one: events of this one may be anywhere.
        start = max(end, bounds.earliest_offset) if end <= bounds.next_offset else bounds.earliest_offset
        records = records_of(self._journal, self._topic, start)
        self._appended = {record.value for record in records if tuple(record.headers) == JOB_EVENT_HEADERS}

    def send(self, notices: Sequence[Notice], now: datetime) -> bool:  # noqa: ARG002  # the record has its own time
        """Append what is not on the topic yet; durable on return."""
        bodies = [encode_notice(notice, WebhookFormat.CLOUDEVENTS) for notice in notices]
        new = [NewRecord(body, JOB_EVENT_HEADERS) for body in bodies if body not in self._appended]
        if new:
            self._journal.append(self._topic, new)
        return True

    def close(self) -> None:
        """Nothing to release."""

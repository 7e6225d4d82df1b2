"""What a subscriber notes of the packages that it has done, beside importing them: how new, whose, of which build.

One look a batch suffices for each, so the price does not grow with the packages. Called by `ImportRun`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.journal.port import Record
from mailboat.model.messages import BulkPart
from mailboat.subscriber.importing import Importer, Outcome
from mailboat.subscriber.reporting import Reporter
from mailboat.wire.bulk import may_be_part
from mailboat.wire.headers import PACKAGE_HEADERS


class Glances:
    """The looks of one run."""

    def __init__(self, importer: Importer, reporter: Reporter, *, is_asking_who: bool) -> None:
        """Tell the reporter, and of publishers only if asked."""
        self._importer = importer
        self._reporter = reporter
        self._is_asking_who = is_asking_who

    def take(self, records: Sequence[Record], outcome: Outcome) -> None:
        """These records were done, at least one."""
        last = records[-1]
        if outcome.imported:
            self._reporter.gauge.imported(last.appended_ms)
        message = self._importer.message_of(last) if self._is_asking_who and last.headers == PACKAGE_HEADERS else None
        if message is not None:
            self._reporter.heard_of(message.pub_agent_name)
        self._reporter.build = self._last_part(records) or self._reporter.build

    def _last_part(self, records: Sequence[Record]) -> BulkPart | None:
        for record in reversed(records):
            if record.headers != PACKAGE_HEADERS or not may_be_part(record.value):
                continue
            message = self._importer.message_of(record)
            if message is not None and message.bulk is not None and self._importer.is_wanted(message):
                return message.bulk
        return None

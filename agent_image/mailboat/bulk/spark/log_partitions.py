"""Reading a stretch of a topic in one task: the home or configuration, opened where the task runs, and its records.

A partition is a range of offsets, so tasks share nothing and a task that is run again reads the same. The bounds are
those of the moment when the query was planned: what comes later is not seen. Used by the tables of the history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

from mailboat.bulk.spark.format_options import number_of, positive_of
from mailboat.composition.home import Home, read_config
from mailboat.composition.workspace import Workspace
from mailboat.errors import UsageError
from mailboat.journal.port import Journal, ReadLimits, Record
from mailboat.model.identifiers import Offset, TopicName

MAX_OFFSET: Final = 2**63 - 1
LOG_OPTIONS: Final = frozenset({"from", "before", "offsetsPerTask", "config"})
STRETCH_OFFSETS: Final = 20_000
_READ: Final = ReadLimits(max_records=1_000)
_WAIT_SECONDS: Final = 5.0


class StretchPartition(InputPartition):
    """The records from `low`, inclusive, to `high`, exclusive."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__((low, high))
        self.low = low
        self.high = high


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where the log is: `load(HOME)`, with a configuration from elsewhere as the option `config`.

    Attributes:
        home: The home's folder.
        config: A configuration file instead of the home's own, or None.
        stretch_offsets: About how many records a task reads.
        offsets: What is read at all.
    """

    home: str
    config: str | None = None
    stretch_offsets: int = STRETCH_OFFSETS
    offsets: range = range(MAX_OFFSET)

    def open(self) -> Workspace:
        """The home, opened. Raises: HomeMissingError, ConfigInvalidError."""
        config = None if self.config is None else read_config(Path(self.config))
        return Workspace(Home(Path(self.home), config))


def place_of(options: Mapping[str, str]) -> LogPlace:
    """What a query's options say. Raises: UsageError."""
    home = options.get("path")
    if home is None:
        raise UsageError("name the home: spark.read.format(…).load(HOME)")
    stretch = positive_of(options, "offsetsPerTask", STRETCH_OFFSETS)
    low = number_of(options, "from", 0)
    return LogPlace(home, options.get("config"), stretch, range(low, number_of(options, "before", MAX_OFFSET)))


def stretches(journal: Journal, topic: TopicName, wanted: range, step: int) -> list[StretchPartition]:
    """The partitions of what a topic holds within `wanted`; one empty partition when there is nothing."""
    bounds = journal.bounds(topic)
    low, high = max(bounds.earliest_offset, wanted.start), min(bounds.next_offset, wanted.stop)
    if low >= high:
        return [StretchPartition(low, low)]
    return [StretchPartition(start, min(start + step, high)) for start in range(low, high, step)]


def records_between(journal: Journal, topic: TopicName, stretch: StretchPartition) -> Iterator[Record]:
    """The records of a stretch, in order. Raises: PositionOutOfRangeError when retention overtook the query."""
    if stretch.low >= stretch.high:
        return
    reader = journal.reader(topic, Offset(stretch.low))
    try:
        while reader.next_offset < stretch.high:
            batch = reader.read(_READ, _WAIT_SECONDS)
            for record in batch.records:
                if record.offset >= stretch.high:
                    return
                yield record
            if batch.is_at_end:
                return
    finally:
        reader.close()

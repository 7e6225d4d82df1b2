"""Record headers: `type` and `version`, decimal ASCII, as Sling's 0.1.x line writes them.

The records of the event topic are JSON, and have none of them.
"""

from __future__ import annotations

from typing import Final

from mailboat.errors import StopError

VERSION: Final = 1
_LATER_VERSION: Final = 2
TYPE_HEADER: Final = "type"
VERSION_HEADER: Final = "version"

DISCOVERY: Final = 1
PACKAGE: Final = 2
STATUS: Final = 3
COMMAND: Final = 4
PING: Final = 5

REDRIVE: Final = 20
"""From 20 on: ours. Sling ignores unknown types."""
COMMAND_RESULT: Final = 21
PIECE: Final = 22
REGISTRY: Final = 23

JOBS_ADDED: Final = 24
EARLIER_JOB_RECORDS: Final = range(25, 28)
"""Claims, renewals and results with a message for each job, before they became columns."""
JOBS_COMMANDED: Final = 28
QUEUE_COMMANDED: Final = 29
QUEUE_DEFINED: Final = 30
QUEUE_REMOVED: Final = 31
WORKER_SEEN: Final = 32
CHECKPOINT_PART: Final = 33
SCHEDULE_DEFINED: Final = 34
SCHEDULE_REMOVED: Final = 35
SUSPEND: Final = 36

JOBS_CLAIMED: Final = 37
LEASES_RENEWED: Final = 38
JOBS_FINISHED: Final = 39

LAST_IGNORED: Final = 39
"""Readers ignore a type that they do not know, unless its record has a higher version. Later types have one: readers of
the job topic that do not know them stop, because their state would become another one than that of newer readers."""

Headers = tuple[tuple[str, bytes], ...]


class JobLogOutdatedError(StopError):
    """The job topic holds records of a form that only an earlier version of Mailboat reads.

    Let the earlier version finish the jobs, stop its workers, and delete the topic. Start this version, and add queues
    and schedules again.
    """


def headers_for(message_type: int) -> Headers:
    """The headers of a record that carries a message of that type."""
    return ((TYPE_HEADER, b"%d" % message_type), (VERSION_HEADER, _version_of(message_type)))


def _version_of(message_type: int) -> bytes:
    return b"%d" % (VERSION if message_type <= LAST_IGNORED else _LATER_VERSION)


PACKAGE_HEADERS: Final = headers_for(PACKAGE)
PIECE_HEADERS: Final = headers_for(PIECE)


def is_of_later_version(headers: Headers) -> bool:
    """Whether a record of an unknown type must not be ignored."""
    version = dict(headers).get(VERSION_HEADER, b"")
    return version.isdigit() and len(version) <= 4 and int(version) > VERSION


def message_type_of(headers: Headers) -> int | None:
    """The type that the headers name; None if absent, it is not a number, or the version isn't ours."""
    if headers == PACKAGE_HEADERS:  # nearly always, on the hot path
        return PACKAGE
    values = dict(headers)
    kind, version = values.get(TYPE_HEADER, b""), values.get(VERSION_HEADER, b"")
    if not kind.isdigit() or len(kind) > 4 or version != _version_of(int(kind)):
        return None
    return int(kind)

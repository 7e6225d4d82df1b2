"""Log lines on standard error: JSON objects, or a line for people.

Set up once by `agent run` and by the operator, so that one parser reads the lines of both.

The engine logs through the standard library. What a line is about travels in `extra` under a few names (`FIELDS`); of
an error that is part of the line its stable name is taken, and the facts that it holds. The words are those of errors,
states and metrics. Passwords in URLs and bearer tokens are blotted out wherever they come from. The same warning, but
for its values, is written once a minute at most, with the number of those left out; so what may repeat at full speed is
logged as a warning, and errors are always written. Audit lines are, too, at any level.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Final, TextIO

from mailboat.clock import Clock, moment_of
from mailboat.config.document import LogFormat, LogsConfig
from mailboat.errors import MailboatError, UsageError
from mailboat.printable import printable
from mailboat.tracing import parse_trace_parent

FIELDS: Final = (
    "agent", "publisher", "subscriber", "topic", "offset", "package", "path", "entry", "limit", "error", "trace_id"
)  # fmt: skip
"""What a line may be about, besides `time`, `level`, `logger` and `message`."""

AUDIT_LOGGER: Final = "mailboat.audit"
REPEAT_SECONDS: Final = 60.0
# Bounds the memory of what was logged; the oldest kinds may be logged again.
_MOST_KINDS: Final = 500
_LONGEST_VALUE: Final = 2000
_LONGEST_TRACE: Final = 8000
_LEVELS: Final = ("debug", "info", "warning", "error")
_PLACEHOLDER: Final = re.compile(r"%[a-z]")
_OTHER_CONTROLS: Final = re.compile(r"[\x7f-\x9f\u2028\u2029]")
_SECRETS: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), r"\1 ***"),
    (re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]*@"), "***@"),
    (re.compile(r"(?i)\b(password|passwd|secret|token|secret_access_key)\s*[=:]\s*[^\s,;&]+"), r"\1=***"),
)


def configure_logs(
    config: LogsConfig, agent: str | None, clock: Clock, stream: TextIO | None = None
) -> logging.Handler:
    """Set up the logging of this process; a second call replaces the first. Gives the handler.

    Args:
        config: The format, and the least that is logged.
        agent: What the agent calls itself, for every JSON line; None for the operator.
        clock: Decides when a line may be repeated.
        stream: Where lines go; standard error when None.

    Raises:
        UsageError: The level is unknown.
    """
    if config.level not in _LEVELS:
        raise UsageError(f"logs.level is {config.level!r}, not one of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(agent) if config.format is LogFormat.JSON else ConsoleFormatter())
    handler.addFilter(RepeatFilter(clock))
    root = logging.getLogger()
    for old in [
        handler for handler in root.handlers if isinstance(handler.formatter, JsonFormatter | ConsoleFormatter)
    ]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING if config.level != "error" else logging.ERROR)
    logging.getLogger("mailboat").setLevel(config.level.upper())
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)  # who changed what is written at any level
    return handler


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, agent: str | None) -> None:
        """Name `agent` in every line, where there is one."""
        super().__init__()
        self._agent = agent

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        document: dict[str, object] = {
            "time": _time_of(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": blotted(_message_of(record)),
            **({} if self._agent is None else {"agent": self._agent}),
            **fields_of(record),
        }
        audit = record.__dict__.get("audit")
        if isinstance(audit, Mapping):
            document["audit"] = {str(name): _plain(value) for name, value in audit.items()}
        if record.exc_info and record.exc_info[0] is not None:
            document["trace"] = blotted(self.formatException(record.exc_info))[-_LONGEST_TRACE:]
        line = json.dumps(document, ensure_ascii=False, default=str)
        # JSON escapes what is below 0x20 only; the others steer terminals or end lines, and occur in strings alone
        return _OTHER_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


class ConsoleFormatter(logging.Formatter):
    """A line for people: time, level, message, and what it is about."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with an indented trace below it when the record has one."""
        # Without control characters, which packages of a hostile publisher may have in paths: a line that begins at the
        # margin is always a record.
        facts = " ".join(f"{name}={printable(str(value))}" for name, value in fields_of(record).items())
        clean = printable(blotted(_message_of(record)).replace("\n", " ⏎ "))
        line = f"{_time_of(record)} {record.levelname.lower():7} {clean}" + (f"   {facts}" if facts else "")
        if record.exc_info and record.exc_info[0] is not None:
            trace = blotted(self.formatException(record.exc_info))[-_LONGEST_TRACE:]
            line += "".join(f"\n    {printable(text)}" for text in trace.splitlines())
        return line


class RepeatFilter(logging.Filter):
    """Lets a kind of warning (its logger, level and unformatted text) through once in `REPEAT_SECONDS`."""

    def __init__(self, clock: Clock) -> None:
        """Nothing was let through yet."""
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line may be written; it then says how many like it were not."""
        if record.levelno != logging.WARNING:
            return True  # logged in order: a start, an end, an audit line; and errors, which have ids to look up
        kind = str(record.msg)
        if not _PLACEHOLDER.sub("", kind).strip(" :"):
            kind = record.getMessage()  # such as "%s: %s", which says all by its values
        key = (record.name, record.levelno, kind)
        now = self._clock.monotonic()
        with self._lock:
            written, left_out = self._kinds.get(key, (float("-inf"), 0))
            if now - written < REPEAT_SECONDS:
                self._kinds[key] = written, left_out + 1
                return False
            # inserted again at the end: the dictionary is in order of the last lines, and the oldest kind leaves first
            self._kinds.pop(key, None)
            while len(self._kinds) >= _MOST_KINDS:
                del self._kinds[next(iter(self._kinds))]
            self._kinds[key] = now, 0
        record.left_out = left_out
        return True


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What the line is about: the facts of the error in it, and over them what the caller says."""
    found: dict[str, object] = {}
    for error in _errors_of(record):
        found |= {name: value for name, value in error.where.items() if name in FIELDS}
        found["error"] = error.name
    if "error" not in found and record.exc_info and record.exc_info[0] is not None:
        found["error"] = record.exc_info[0].__name__
    found |= {name: record.__dict__[name] for name in FIELDS if record.__dict__.get(name) is not None}
    parent = parse_trace_parent(record.__dict__.get("trace_parent"))
    if parent is not None:
        found["trace_id"] = parent.trace_id
    return {name: _plain(found[name]) for name in FIELDS if name in found}


def blotted(text: str) -> str:
    """The text without what looks like a secret."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _errors_of(record: logging.LogRecord) -> Iterator[MailboatError]:
    arguments = record.args.values() if isinstance(record.args, Mapping) else record.args or ()
    yield from (argument for argument in arguments if isinstance(argument, MailboatError))
    if record.exc_info and isinstance(record.exc_info[1], MailboatError):
        yield record.exc_info[1]


def _message_of(record: logging.LogRecord) -> str:
    left_out = getattr(record, "left_out", 0)
    return record.getMessage() + (f" ({left_out} more like this since the last)" if left_out else "")


def _time_of(record: logging.LogRecord) -> str:
    return moment_of(record.created * 1000).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    return value if isinstance(value, bool | int | float) else blotted(str(value))[:_LONGEST_VALUE]

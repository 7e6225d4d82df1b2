"""Logs each call that changes something, and keeps the last ones for people.

The lines go to the logger `mailboat.audit`, with the same facts in `extra` for structured logs. Those about a publisher
are kept too, up to a number, since Sling shows such a log for each agent. Called by `gate.py`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from mailboat.clock import Clock
from mailboat.config.document import Verb
from mailboat.http.access import Caller

_LOG: Final = logging.getLogger("mailboat.audit")
KEPT_LINES: Final = 1000
_LONGEST_FACT: Final = 200


@dataclass
class ApiCall:
    """One request on its way, as routes and the audit line see it.

    Attributes:
        request_id: The caller's `X-Request-Id`, or one that was made.
        caller: Name of the caller; None if unknown.
        verb: What the route asked for.
        trace_parent: The caller's W3C trace context, as it was sent.
        what: Subject of the call, set by the route.
        status: The answer's.
        outcome: `done`, the name of the error, or `gone` if the client left before its request was complete.
    """

    request_id: str
    caller: Caller | None = None
    verb: str = "-"
    trace_parent: str | None = None
    what: dict[str, object] = field(default_factory=dict)
    status: int = 0
    outcome: str = "done"

    def admits(self, verb: Verb) -> bool:
        """Note what the route asks for. Returns: whether the caller may do it."""
        self.verb = verb.value
        return self.caller is not None and self.caller.may(verb)

    def concerns(self, subject: dict[str, object]) -> None:
        """Add to the subject of the call."""
        self.what.update(subject)

    def identify(self, caller: Caller | None) -> None:
        """The caller is known, or stays unknown."""
        self.caller = caller

    def end_as(self, outcome: str) -> None:
        """Note how it ended, where that is not `done`."""
        self.outcome = outcome

    def answer_with(self, status: int) -> None:
        """Its answer begins with this status."""
        self.status = status


class AuditTrail:
    """Writes the lines, and keeps the last ones about each publisher. Used from the server's thread only."""

    def __init__(self, clock: Clock) -> None:
        """Nothing written yet."""
        self._clock = clock
        self._lines: deque[tuple[str, str]] = deque(maxlen=KEPT_LINES)

    def write(self, call: ApiCall, method: str, path: str) -> None:
        """One line. What came from outside is quoted, so that it can't look like another line or fact."""
        facts: dict[str, object] = {"caller": call.caller.name if call.caller else "-", "verb": call.verb}
        given = {name: value for name, value in call.what.items() if value not in (None, "")}
        facts |= {"method": method, "path": path, **given}
        facts |= {"outcome": call.outcome, "status": call.status, "request_id": call.request_id}
        text = " ".join(f"{name}={_shown(value)}" for name, value in facts.items())
        _LOG.info("API request: %s", text, extra={"action": "audit", "audit": facts, "trace_parent": call.trace_parent})
        publisher = call.what.get("publisher")
        if isinstance(publisher, str):
            now = self._clock.now().isoformat(timespec="milliseconds")
            self._lines.append((publisher, f"{now} {text}"))

    def lines(self, publisher: str) -> Sequence[str]:
        """The last lines about a publisher, oldest first."""
        return [line for name, line in self._lines if name == publisher]


def _shown(value: object) -> str:
    text = str(value)[:_LONGEST_FACT]
    return text if text.isascii() and text.isprintable() and " " not in text and '"' not in text else ascii(text)

"""Whether a package is imported now: a clear drops it, a golden subscriber may hold it up.

Asked for each package before anything of it is read, in each attempt anew, so a clear helps against a package that
fails, or that this version can't read. Called by `Importer`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import PackageMessage
from mailboat.subscriber.commanding import CommandDesk
from mailboat.subscriber.guarding import ImportGuard
from mailboat.subscriber.staging import GoldenWatch, Precondition


class Passage(enum.Enum):
    """What becomes of a package."""

    IMPORT = enum.auto()
    REMOVE = enum.auto()
    """A clear drops it: it is passed and confirmed as REMOVED."""

    SKIP = enum.auto()
    """The golden subscriber did not import it: it is passed and confirmed as REMOVED, with that name."""

    WAIT = enum.auto()
    """Not yet: the batch ends before it."""


class AtHand(NamedTuple):
    """The package that is imported at the moment."""

    offset: Offset
    publisher: AgentName | None


class Gate:
    """The gate of one subscriber."""

    def __init__(self, desk: CommandDesk, golden: GoldenWatch | None, guard: ImportGuard) -> None:
        """Let pass what neither a clear nor the golden subscriber, if there is one, is against."""
        self._desk = desk
        self._golden = golden
        self._at_hand: AtHand | None = None
        guard.is_cleared = self._is_cleared_meanwhile

    def decide(self, offset: Offset, message: PackageMessage) -> Passage:
        """Whether to import a package of a followed publisher. Raises: the journal's errors."""
        self._at_hand = AtHand(offset, message.pub_agent_name)
        clear = self._desk.covering(offset, message.pub_agent_name)
        if clear is not None:
            self._desk.count_dropped(clear)
            return Passage.REMOVE
        if self._golden is None:
            return Passage.IMPORT
        match self._golden.decide(offset, message):
            case Precondition.ACCEPT:
                return Passage.IMPORT
            case Precondition.SKIP:
                return Passage.SKIP
            case Precondition.WAIT:
                return Passage.WAIT

    def leave(self) -> None:
        """No package of the queue is at hand: a clear interrupts nothing."""
        self._at_hand = None

    def _is_cleared_meanwhile(self) -> bool:
        at_hand = self._at_hand
        return at_hand is not None and self._desk.is_cleared_meanwhile(at_hand.offset, at_hand.publisher)

"""What a target keeps of the calls of the hook `after`: noted with the import, forgotten once they were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from mailboat.frozen import Frozen
from mailboat.model.identifiers import Offset
from mailboat.model.messages import FailureCause


class AfterCall(Frozen):
    """A call of the hook `after` that is still to be made.

    Attributes:
        offset: The package's, which is imported.
        attempts: How often the call was made, and failed.
        cause: Why the last attempt failed.
        is_set_aside: Its attempts are used up; the calls behind it go on.
    """

    offset: Offset
    attempts: int = 0
    cause: FailureCause | None = None
    is_set_aside: bool = False


class HookCallLedger(Protocol):
    """The calls that are still to be made. Each call is one durable step of its own, outside of a batch."""

    def calls(self, limit: int, *, is_set_aside: bool = False) -> Sequence[AfterCall]:
        """Calls that wait, or that were set aside, oldest first."""

    def counts(self) -> tuple[int, int]:
        """How many calls wait, and how many were set aside."""

    def store(self, call: AfterCall) -> None:
        """The call failed: it stays, as it is now."""

    def forget(self, offsets: Iterable[Offset]) -> None:
        """These calls were made."""

    def resume(self) -> None:
        """Calls that were set aside wait again, as if they had never been made."""

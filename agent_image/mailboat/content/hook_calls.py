"""What a target keeps of the calls of the hook `after`: noted with the import, forgotten once they were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from mailboat.model.identifiers import Offset
from mailboat.model.messages import AfterCall


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

    def retry(self, offset: Offset) -> bool:
        """Make the call of one package wait again with all its attempts, if it is still to be made; whether it is."""

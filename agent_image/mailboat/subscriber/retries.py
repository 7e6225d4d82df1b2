"""What happens after a failure: a pure decision over the error, the attempts so far and the policy.

    StopError                                   stop in its named state
    storage full, read-only or failing,
    journal or blob store not reachable         wait, without end and without counting: the package is good
    PermanentError (and so UntrustedInputError) give up at once: it would fail in the same way again
    everything else                             count; try again after a growing pause; give up when it is used up

A policy without end never gives up. The original keeps its counter when it gives up, so that the next failing package
is dropped at its first failure; here the count belongs to one offset and is forgotten with it.
"""

from __future__ import annotations

import random
from typing import Final

from mailboat.errors import (
    BlobStoreUnavailableError,
    JournalUnavailableError,
    PermanentError,
    RetryableError,
    StopError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
)
from mailboat.frozen import Frozen

_INFRASTRUCTURE: Final = (
    JournalUnavailableError,
    BlobStoreUnavailableError,
    StorageFullError,
    StorageReadOnlyError,
    StorageFailedError,
)
_MOST_DOUBLINGS: Final = 32


class RetryPolicy(Frozen):
    """When a failed package is tried again.

    Attributes:
        max_retries: Attempts after the first; then it is given up. None never gives up.
        first_pause_seconds: The pause after the first failure; it doubles with each.
        longest_pause_seconds: The longest pause.
    """

    max_retries: int | None = 10
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 300.0


class TryAgain(Frozen):
    """Try again after a pause; `is_counted` says whether the failure uses up the policy's attempts."""

    pause_seconds: float
    is_counted: bool


class GiveUp(Frozen):
    """Put the package into the error queue and go on."""


class Stop(Frozen):
    """End in the named state of the error."""


Decision = TryAgain | GiveUp | Stop


def decide_retry(
    error: Exception, failures: int, policy: RetryPolicy, jitter: random.Random, *, uncounted: int = 0
) -> Decision:
    """What to do after a failure.

    Args:
        error: Why the attempt failed.
        failures: Attempts that failed and count, this one included: 1 after the first. They alone decide on giving up.
        policy: What is allowed.
        jitter: Pauses are between a half and the whole of their length, so that many subscribers don't retry as one.
        uncounted: Attempts before this one that do not count. They make the pause longer, and nothing else.
    """
    if isinstance(error, StopError):
        return Stop()
    pause_seconds = _pause_seconds(error, failures + uncounted, policy, jitter)
    if is_infrastructure(error):
        return TryAgain(pause_seconds, is_counted=False)
    is_finite = policy.max_retries is not None
    if is_finite and (isinstance(error, PermanentError) or failures > (policy.max_retries or 0)):
        return GiveUp()
    return TryAgain(pause_seconds, is_counted=True)


def is_infrastructure(error: Exception) -> bool:
    """Whether the failure says nothing about the package: another one would have failed as well."""
    return isinstance(error, _INFRASTRUCTURE) or type(error) is RetryableError


def _pause_seconds(error: Exception, failures: int, policy: RetryPolicy, jitter: random.Random) -> float:
    doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
    whole = min(policy.first_pause_seconds * 2.0**doublings, policy.longest_pause_seconds)
    pause = whole * jitter.uniform(0.5, 1.0)
    wished = error.retry_after_seconds if isinstance(error, RetryableError) else None
    return pause if wished is None else max(pause, min(wished, policy.longest_pause_seconds))

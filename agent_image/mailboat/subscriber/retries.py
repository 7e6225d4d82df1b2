"""What happens after a failure: a pure decision over the error, the attempts so far and the policy.

    StopError, and PermanentErrors of no package     stop before the package: it is good, and waiting does not help
    RetryableError, and OSError of the system        wait, without end and without counting: the package is good
    PermanentErrors of a package (`is_of_package`)   give up at once: the package would fail in the same way again
    of a package's blob, hook or time; all else      count; try again after a growing pause; give up when it is used up

An error is taken for trouble of the house unless it is known to be of a package: so an error class that is new, or that
comes up where it was not expected, never costs a package.

A policy without end never gives up. The original keeps its counter when it gives up, so that the next failing package
is dropped at its first failure; here the count belongs to one offset and is forgotten with it.
"""

from __future__ import annotations

import random
from typing import Final

from mailboat.errors import (
    BlobCorruptError,
    BlobMissingError,
    ImportTimeoutError,
    PermanentError,
    ProcessorFailedError,
    RetryableError,
    StopError,
)
from mailboat.frozen import Frozen

_PASSING_OF_A_PACKAGE: Final = (BlobMissingError, BlobCorruptError, ImportTimeoutError, ProcessorFailedError)
"""All that may pass and is of one package; any other RetryableError is of the journal, a store or this machine."""

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
    """End with the error, before the package."""


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
    if isinstance(error, StopError) or _is_permanent_of_house(error):
        return Stop()
    pause_seconds = _pause_seconds(error, failures + uncounted, policy, jitter)
    if is_infrastructure(error) or isinstance(error, OSError):
        return TryAgain(pause_seconds, is_counted=False)
    is_finite = policy.max_retries is not None
    if is_finite and (isinstance(error, PermanentError) or failures > (policy.max_retries or 0)):
        return GiveUp()
    return TryAgain(pause_seconds, is_counted=True)


def is_infrastructure(error: Exception) -> bool:
    """Whether the failure says nothing about the package: another one would have failed as well."""
    is_passing = isinstance(error, RetryableError) and not isinstance(error, _PASSING_OF_A_PACKAGE)
    return is_passing or _is_permanent_of_house(error)


def _is_permanent_of_house(error: Exception) -> bool:
    return isinstance(error, PermanentError) and not error.is_of_package


def _pause_seconds(error: Exception, failures: int, policy: RetryPolicy, jitter: random.Random) -> float:
    doublings = min(max(failures - 1, 0), _MOST_DOUBLINGS)
    whole = min(policy.first_pause_seconds * 2.0**doublings, policy.longest_pause_seconds)
    pause = whole * jitter.uniform(0.5, 1.0)
    wished = error.retry_after_seconds if isinstance(error, RetryableError) else None
    return pause if wished is None else max(pause, min(wished, policy.longest_pause_seconds))

"""What happens after a failure, as a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.api.problems import import_all_modules
from mailboat.config.document import SubscriberConfig
from mailboat.errors import (
    BlobAccessDeniedError,
    BlobCorruptError,
    BlobMissingError,
    ImportTimeoutError,
    JournalAccessDeniedError,
    JournalTrimmedError,
    JournalUnavailableError,
    MailboatError,
    PackageCorruptError,
    PermanentError,
    ProcessorFailedError,
    RetryableError,
    StorageFailedError,
    StorageFullError,
    StorageReadOnlyError,
    TargetCorruptError,
    TopicMissingError,
    UnknownRequiredFeatureError,
    UntrustedInputError,
    UsageError,
)
from mailboat.journal.kafka_errors import DECISIONS
from mailboat.subscriber.failures import GiveUp, Stop, TryAgain, decide_retry, is_infrastructure

POLICY = SubscriberConfig(max_retries=3, first_pause_seconds=1.0, longest_pause_seconds=60.0)
ENDLESS = SubscriberConfig(max_retries=None)
ENDLESS_PAUSES = replace(POLICY, max_retries=None)

OF_A_PACKAGE = {"BlobMissing", "BlobCorrupt", "ImportTimeout", "ImporterLost", "ProcessorFailed", "UnknownPackageType"}
OF_A_REDRIVE = {"PackageGone", "PackageNotFollowed", "PackageSuperseded"}


def jitter() -> random.Random:
    return random.Random(7)


def errors_of_ours() -> list[MailboatError]:
    """One of each class that users can meet."""
    import_all_modules(but=("mailboat.testing",))

    def below(kind: type[MailboatError]) -> list[type[MailboatError]]:
        return [kind, *(item for child in kind.__subclasses__() for item in below(child))]

    kinds = {item for item in below(MailboatError) if item.__module__.startswith("mailboat.")}
    users = sorted((kind for kind in kinds if ".testing." not in kind.__module__), key=lambda one: one.__name__)
    return [bare(user) for user in users]


def bare(kind: type[MailboatError]) -> MailboatError:
    error = kind.__new__(kind)
    MailboatError.__init__(error, "x")
    if isinstance(error, RetryableError):
        error.retry_after_seconds = None
    return error


@pytest.mark.parametrize("error", errors_of_ours(), ids=lambda e: e.name)
def test_only_what_is_of_a_package_ever_gives_one_up(error: MailboatError) -> None:
    may_give_up = (
        isinstance(error, UntrustedInputError)
        or type(error) is MailboatError
        or error.name in OF_A_PACKAGE | OF_A_REDRIVE
    )
    assert isinstance(decide_retry(error, 1000, POLICY, jitter()), GiveUp) is may_give_up
    assert not (may_give_up and is_infrastructure(error))


def test_an_error_class_that_is_not_known_to_be_of_a_package_stops_before_it() -> None:
    class ForeignError(PermanentError):
        """Of code that has nothing to do with importing."""

    assert isinstance(decide_retry(ForeignError("x"), 1000, POLICY, jitter()), Stop)
    assert is_infrastructure(ForeignError("x"))


@pytest.mark.parametrize("kind", sorted(set(DECISIONS.values()), key=lambda kind: kind.__name__))
def test_nothing_that_the_brokers_say_is_a_failure_of_a_package(kind: type[MailboatError]) -> None:
    assert not isinstance(decide_retry(kind("x"), 1000, POLICY, jitter()), GiveUp)


@pytest.mark.parametrize(
    "error",
    [JournalAccessDeniedError("x"), TopicMissingError("x"), UsageError("x")],
    ids=lambda e: e.name,
)
def test_a_journal_or_a_configuration_that_a_person_must_mend_stops_before_the_package(error: Exception) -> None:
    assert isinstance(decide_retry(error, 1, POLICY, jitter()), Stop)
    assert is_infrastructure(error)


@pytest.mark.parametrize(
    "error", [JournalTrimmedError("x"), TargetCorruptError("x"), UnknownRequiredFeatureError("x")], ids=lambda e: e.name
)
def test_a_named_state_stops_whatever_the_policy_says(error: Exception) -> None:
    assert isinstance(decide_retry(error, 1, POLICY, jitter()), Stop)
    assert isinstance(decide_retry(error, 1, ENDLESS, jitter()), Stop)


@pytest.mark.parametrize(
    "error",
    [
        StorageFullError("x"),
        StorageReadOnlyError("x"),
        StorageFailedError("x"),
        JournalUnavailableError("x"),
        BlobAccessDeniedError("x"),
        RetryableError("the blob store answers 503"),
    ],
    ids=lambda e: e.name,
)
def test_trouble_that_is_not_the_packages_waits_without_counting_and_without_end(error: Exception) -> None:
    decision = decide_retry(error, 1000, POLICY, jitter())
    assert isinstance(decision, TryAgain)
    assert not decision.is_counted
    assert is_infrastructure(error)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), MemoryError()], ids=lambda e: type(e).__name__)
def test_a_fault_of_the_system_is_waited_out(error: Exception) -> None:
    decision = decide_retry(error, 1000, POLICY, jitter())
    assert isinstance(decision, TryAgain)
    assert not decision.is_counted


@pytest.mark.parametrize(
    "error",
    [
        BlobMissingError("x"),
        BlobCorruptError("x"),
        ImportTimeoutError("x"),
        ProcessorFailedError("x"),
        ValueError("a bug of ours"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_a_failure_of_the_package_is_tried_again_until_the_retries_are_used_up(error: Exception) -> None:
    decisions = [decide_retry(error, failures, POLICY, jitter()) for failures in range(1, 5)]
    assert [type(decision) for decision in decisions] == [TryAgain, TryAgain, TryAgain, GiveUp]
    assert all(decision.is_counted for decision in decisions if isinstance(decision, TryAgain))


def test_what_can_never_succeed_is_given_up_at_once_unless_nothing_may_be_given_up() -> None:
    assert isinstance(decide_retry(PackageCorruptError("x"), 1, POLICY, jitter()), GiveUp)
    assert isinstance(decide_retry(PackageCorruptError("x"), 10**9, ENDLESS, jitter()), TryAgain)


@given(uncounted=st.integers(0, 10**6), failures=st.integers(1, 4))
def test_failures_that_do_not_count_lengthen_the_pause_and_use_up_no_retries(uncounted: int, failures: int) -> None:
    decision = decide_retry(BlobMissingError("x"), failures, POLICY, jitter(), uncounted=uncounted)
    if failures == 4:
        assert isinstance(decision, GiveUp)
    else:
        assert decision == decide_retry(BlobMissingError("x"), failures + uncounted, ENDLESS_PAUSES, jitter())


def test_no_retries_means_one_attempt() -> None:
    assert isinstance(decide_retry(BlobMissingError("x"), 1, SubscriberConfig(max_retries=0), jitter()), GiveUp)


@given(failures=st.integers(1, 10**6), seed=st.integers())
def test_pauses_grow_to_the_longest_and_keep_at_least_half_of_their_length(failures: int, seed: int) -> None:
    decision = decide_retry(StorageFullError("x"), failures, POLICY, random.Random(seed))
    assert isinstance(decision, TryAgain)
    whole = min(1.0 * 2.0 ** min(failures - 1, 32), 60.0)
    assert whole / 2 <= decision.pause_seconds <= whole


@pytest.mark.parametrize(("wished", "least"), [(30.0, 30.0), (10_000.0, 60.0), (0.0, 0.5)])
def test_the_failed_side_may_wish_for_a_longer_pause_up_to_the_longest(wished: float, least: float) -> None:
    decision = decide_retry(RetryableError("x", retry_after_seconds=wished), 1, POLICY, jitter())
    assert isinstance(decision, TryAgain)
    assert least <= decision.pause_seconds <= 60.0

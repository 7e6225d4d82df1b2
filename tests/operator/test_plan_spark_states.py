"""What the states of both Spark operators mean for a build."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat_operator.kinds.package_build.spark_state import (
    APACHE_STATES,
    KUBEFLOW_STATES,
    ApplicationState,
    application_of,
)
from mailboat_operator.kinds.package_build.spec import SparkOperator

NOW = datetime(2026, 11, 21, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(("word", "state"), KUBEFLOW_STATES.items())
def test_every_state_of_kubeflow_s_operator_has_a_meaning(word: str, state: ApplicationState) -> None:
    status = {"applicationState": {"state": word}, "executorState": {"first-1-exec-1": "RUNNING"}}
    manifest = {"metadata": {"creationTimestamp": NOW.isoformat()}, "status": status}
    assert application_of(SparkOperator.KUBEFLOW, manifest).state is state


def test_the_states_are_those_of_kubeflow_s_own_source() -> None:
    assert set(KUBEFLOW_STATES) == {
        "",
        "SUBMITTED",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "SUBMISSION_FAILED",
        "PENDING_RERUN",
        "INVALIDATING",
        "SUCCEEDING",
        "FAILING",
        "SUSPENDING",
        "SUSPENDED",
        "RESUMING",
        "UNKNOWN",
    }


def apache(*words: str) -> dict[str, Any]:
    """An application of Apache's after these states."""
    history = {str(number): {"currentStateSummary": word} for number, word in enumerate(words)}
    status = {"currentState": {"currentStateSummary": words[-1]}, "stateTransitionHistory": history}
    return {"metadata": {"creationTimestamp": NOW.isoformat()}, "status": status}


@pytest.mark.parametrize(("word", "state"), APACHE_STATES.items())
def test_every_state_of_apache_s_operator_has_a_meaning(word: str, state: ApplicationState) -> None:
    assert application_of(SparkOperator.APACHE, apache("Submitted", word)).state is state


@pytest.mark.parametrize("last", ["ResourceReleased", "TerminatedWithoutReleaseResources"])
@pytest.mark.parametrize("outcome", ["Succeeded", "Failed", "DriverEvicted", "SchedulingFailure"])
def test_how_it_went_is_read_from_the_history_once_all_is_tidied(outcome: str, last: str) -> None:
    words = [*["Submitted", "DriverRequested", "DriverStarted", "DriverReady"] * 3, outcome, last]
    assert application_of(SparkOperator.APACHE, apache(*words)).state is APACHE_STATES[outcome]


def test_an_application_that_is_tidied_without_an_outcome_did_not_succeed() -> None:
    assert (
        application_of(SparkOperator.APACHE, apache("Submitted", "ResourceReleased")).state is ApplicationState.FAILED
    )


@given(
    engine=st.sampled_from(SparkOperator),
    status=st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["applicationState", "state", "executorState", "currentState", "currentStateSummary"]),
            inner,
        ),
        max_leaves=5,
    ),
)
def test_a_status_of_any_form_breaks_nothing(engine: SparkOperator, status: Any) -> None:
    manifest = {"metadata": {"creationTimestamp": NOW.isoformat()}, "status": status}
    assert application_of(engine, manifest).state in ApplicationState

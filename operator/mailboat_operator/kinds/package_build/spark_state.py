"""What the states of both Spark operators mean to a build.

An application runs when an executor does. One whose driver alone does may publish, which takes no executor, or wait for
executors that never come: the build shows that, and kubeflow's operator if executors wait for a
node. An unknown state changes nothing. Source: kubeflow's `ApplicationStateType` and
`ExecutorState`, Apache's `ApplicationStateSummary`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mailboat_operator.kinds.package_build.spec import SparkOperator
from mailboat_operator.plan.child_manifest import Manifest


class ApplicationState(enum.Enum):
    """How far an application is.

    `WAITING` is a driver that asked for executors, none of which ever ran; `DRIVING` one without an executor, of which
    nothing else is known.
    """

    STARTING = enum.auto()
    WAITING = enum.auto()
    DRIVING = enum.auto()
    RUNNING = enum.auto()
    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    UNKNOWN = enum.auto()


class Application(NamedTuple):
    """An application as its operator reports it.

    Attributes:
        state: How far it is.
        word: The operator's own word for that.
        message: The operator's explanation.
        created_at: When it was asked for.
    """

    state: ApplicationState
    word: str
    message: str
    created_at: datetime


_EXECUTORS_THERE: Final = frozenset({"RUNNING", "COMPLETED"})
_EXECUTOR_WAITS: Final = "PENDING"
_LONGEST: Final = 512

KUBEFLOW_STATES: Final = MappingProxyType(
    {
        "": ApplicationState.STARTING,
        "SUBMITTED": ApplicationState.STARTING,
        "SUBMISSION_FAILED": ApplicationState.STARTING,  # FAILED comes when it is given up
        "PENDING_RERUN": ApplicationState.STARTING,
        "INVALIDATING": ApplicationState.STARTING,
        "SUSPENDING": ApplicationState.STARTING,
        "SUSPENDED": ApplicationState.STARTING,
        "RESUMING": ApplicationState.STARTING,
        "RUNNING": ApplicationState.RUNNING,
        "SUCCEEDING": ApplicationState.RUNNING,
        "FAILING": ApplicationState.RUNNING,
        "COMPLETED": ApplicationState.SUCCEEDED,
        "FAILED": ApplicationState.FAILED,
        "UNKNOWN": ApplicationState.UNKNOWN,
    }
)

APACHE_STATES: Final = MappingProxyType(
    {
        "": ApplicationState.STARTING,
        "Submitted": ApplicationState.STARTING,
        "ScheduledToRestart": ApplicationState.STARTING,
        "DriverRequested": ApplicationState.STARTING,
        "DriverStarted": ApplicationState.STARTING,
        "DriverReady": ApplicationState.DRIVING,
        "InitializedBelowThresholdExecutors": ApplicationState.STARTING,
        "RunningHealthy": ApplicationState.RUNNING,
        "RunningWithPartialCapacity": ApplicationState.RUNNING,
        "RunningWithBelowThresholdExecutors": ApplicationState.RUNNING,
        "DriverStartTimedOut": ApplicationState.FAILED,
        "DriverReadyTimedOut": ApplicationState.FAILED,
        "ExecutorsStartTimedOut": ApplicationState.FAILED,
        "SchedulingFailure": ApplicationState.FAILED,
        "DriverEvicted": ApplicationState.FAILED,
        "Failed": ApplicationState.FAILED,
        "Succeeded": ApplicationState.SUCCEEDED,
    }
)
_TIDIED: Final = frozenset({"ResourceReleased", "TerminatedWithoutReleaseResources"})
"""These say that an application is over, and not how: its history does."""


def application_of(operator: SparkOperator, manifest: Manifest) -> Application:
    """Read an application's state; values of another form count as missing."""
    created_at = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
    status = _mapping(manifest.get("status"))
    read = _kubeflow if operator is SparkOperator.KUBEFLOW else _apache
    state, word, message = read(status)
    return Application(state, word, message, created_at)


def _kubeflow(status: Mapping[str, Any]) -> tuple[ApplicationState, str, str]:
    application_state = _mapping(status.get("applicationState"))
    word = _text(application_state.get("state"))
    state = KUBEFLOW_STATES.get(word, ApplicationState.UNKNOWN)
    executors = list(_mapping(status.get("executorState")).values())
    # the word is about the driver: executors have states of their own
    if word == "RUNNING" and not any(executor in _EXECUTORS_THERE for executor in executors):
        are_waited_for = bool(executors) and all(executor == _EXECUTOR_WAITS for executor in executors)
        state = ApplicationState.WAITING if are_waited_for else ApplicationState.DRIVING
    return state, word, _text(application_state.get("errorMessage"))


def _apache(status: Mapping[str, Any]) -> tuple[ApplicationState, str, str]:
    current = _mapping(status.get("currentState"))
    if _text(current.get("currentStateSummary")) in _TIDIED:
        history = _mapping(status.get("stateTransitionHistory"))
        current = _outcome([_mapping(history[key]) for key in sorted(history, key=_number)])
    word = _text(current.get("currentStateSummary"))
    return APACHE_STATES.get(word, ApplicationState.UNKNOWN), word, _text(current.get("message"))


def _outcome(states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The last state that says how it went; one that has none did not succeed."""
    over = {ApplicationState.SUCCEEDED, ApplicationState.FAILED}
    decided = [state for state in states if APACHE_STATES.get(_text(state.get("currentStateSummary"))) in over]
    return decided[-1] if decided else {"currentStateSummary": "Failed"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _number(key: str) -> int:
    return int(key) if key.isdecimal() else -1

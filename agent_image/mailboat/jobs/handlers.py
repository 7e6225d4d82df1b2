"""Handlers in Python: functions of the user with a typed payload and a context, by pattern of job topics."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mailboat.clock import Clock, milliseconds_now
from mailboat.errors import RetryableError, UsageError
from mailboat.jobs.job_worker import Call, Handler, Result
from mailboat.jobs.progress import MAX_LOG_LINES, AttemptProgress, encode_progress
from mailboat.jobs.user_transaction import DbConnection, EffectExistsError, TransactionSplitError, commit_once
from mailboat.json_decoder import make_decoder
from mailboat.model.jobs import AttemptOutcome, JobId, NewJob, parse_pattern, show_job_id

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class JobCompletedError(UsageError):
    """The job was completed before. The first result counts."""


class _StoppedError(BaseException):
    """A handler was asked to stop, and has steps left. No `except Exception` of a handler takes it for a failure."""


class Publish(Protocol):
    """Publishes content for a job. The same request id publishes once."""

    def __call__(
        self, paths: Sequence[str], source: object | None, publisher: str | None, request_id: str, /, *, deep: bool
    ) -> str:
        """Publish; return the package id. Raises: MailboatError."""
        ...


class WorkerPorts(NamedTuple):
    """What contexts use of the worker that runs them."""

    clock: Clock
    publish: Publish


class Completion:
    """Ends a job after its handler has returned: call one of the methods, once, from any thread."""

    def __init__(self) -> None:
        self._result: Future[Result] = Future()

    def ok(self) -> None:
        """The job succeeded. Raises: JobCompletedError."""
        self._complete(Result())

    def fail(self, message: str = "", after: float | None = None) -> None:
        """Retry after so many seconds, or the job's delay. Raises: JobCompletedError."""
        self._complete(Result(AttemptOutcome.FAIL, message, after))

    def cancel(self, message: str = "") -> None:
        """End the job as `error`, without a retry. Raises: JobCompletedError."""
        self._complete(Result(AttemptOutcome.CANCEL, message))

    @property
    def result(self) -> Future[Result]:
        """The result, when it comes."""
        return self._result

    def _complete(self, result: Result) -> None:
        try:
            self._result.set_result(result)
        except InvalidStateError as error:
            raise JobCompletedError("the job was completed before") from error


class JobContext:
    """One attempt of a job, as its handler sees it. Methods may be called from several threads.

    Attributes:
        job: The job's id, `OFFSET-INDEX`; the first of merged jobs.
        jobs: The ids of all jobs of the call.
        key: The job's key.
        topic: The job's topic.
        token: The fencing token: higher than that of every earlier attempt.
        attempt: 1 for the first.
    """

    def __init__(self, call: Call, ports: WorkerPorts) -> None:
        first, new = next(iter(call.jobs.items()))
        self.job: Final = show_job_id(first)
        self.jobs: Final = tuple(map(show_job_id, call.jobs))
        self.key: Final = new.key
        self.topic: Final = new.topic
        self.token: Final = call.token
        self.attempt: Final = call.attempt
        self._call = call
        self._ports = ports
        self._lock = threading.Lock()
        self._progress = AttemptProgress()

    # Stop

    @property
    def stopping(self) -> bool:
        """Whether the handler should return: a stop was requested, the lease was lost, or the worker ends."""
        return self._call.should_stop

    def wait(self, seconds: float) -> bool:
        """Wait, at most until the handler should return; whether it should."""
        return self._call.wait(seconds)

    # Progress

    def progress(self, done: int, total: int) -> None:
        """Report steps. They are sent with the next renewal, each third of the lease."""
        with self._lock:
            self._report(self._progress._replace(done=max(0, min(done, total)), total=max(0, total)))

    def track(self, items: Iterable[T], total: int | None = None) -> Iterator[T]:
        """Yield the items and count each as a step. A generator needs `total`.

        A requested stop ends the handler here, by an exception: what follows the loop would take a part for all of it.
        """
        if total is None:
            items = items if isinstance(items, Collection) else list(items)
            total = len(items)
        self.progress(0, total)
        for done, item in enumerate(items, 1):
            if self.stopping:
                raise _StoppedError(f"stopped after {done - 1} of {total} steps")
            yield item
            self.progress(done, total)

    def log(self, line: str) -> None:
        """Add a line to the log of this attempt, which shows the last 20."""
        with self._lock:
            self._report(self._progress._replace(log=(*self._progress.log, line)[-MAX_LOG_LINES:]))

    def _report(self, progress: AttemptProgress) -> None:
        self._progress = progress
        self._call.report(encode_progress(progress))

    # Outcomes

    def fail(self, message: str = "", after: float | None = None) -> Result:
        """Return this to retry after so many seconds, or after the job's delay."""
        return Result(AttemptOutcome.FAIL, message, after)

    def cancel(self, message: str = "") -> Result:
        """Return this to end the job as `error`, or as `stopped` if its stop was requested. It is not retried."""
        return Result(AttemptOutcome.CANCEL, message)

    def snooze(self, after: float) -> Result:
        """Return this to run again after so many seconds, without counting the attempt."""
        return Result(AttemptOutcome.SNOOZE, "", after)

    def complete_later(self) -> Completion:
        """Return this, and call it later. The job keeps its slot and lease until then."""
        return Completion()

    # Effects that happen exactly once

    def publish(
        self,
        paths: Iterable[str],
        *,
        source: object | None = None,
        publisher: str | None = None,
        deep: bool = True,
        part: str = "",
    ) -> str:
        """Publish paths as one package, exactly once: the request id is the job's. Returns the package id.

        Args:
            paths: What to publish.
            source: A folder, zip, `sqlite:FILE` or object, for a worker on a home. An agent has its own.
            publisher: The publisher. Default: the configured one; to be named for a worker of an agent.
            deep: With everything below the paths.
            part: Distinguishes several publications of one job.
        """
        request_id = f"job-{self._call.log}-{self._only_job()}{part and '-'}{part}"
        return self._ports.publish(tuple(paths), source, publisher, request_id, deep=deep)

    @contextmanager
    def transaction(self, connection: DbConnection) -> Generator[None]:
        """A transaction of SQLite or PostgreSQL (psycopg) that commits exactly once for the job.

        The fencing token is stored in the same transaction, in the table `mailboat_job`. If an earlier attempt has
        committed, the handler ends here and the job succeeds.

        Raises:
            JobLeaseLostError: A later attempt, or this one, has committed.
            TransactionSplitError: The connection is in autocommit mode, or the handler committed itself.
        """
        job = f"{self._call.log}/{self._only_job()}"
        now_ms = milliseconds_now(self._ports.clock)
        with commit_once(connection, job, self.token, now_ms):
            yield

    def _only_job(self) -> str:
        # Another attempt may merge other jobs, so no id stands for the call.
        if len(self.jobs) > 1:
            raise UsageError("a call of merged jobs cannot publish or commit exactly once; use a queue without merge")
        return self.job


class JobHandlers:
    """Handlers by pattern of job topics, in the order in which they were added; the first match is called."""

    def __init__(self) -> None:
        self._handlers: dict[str, Callable[[WorkerPorts, Call], Result | Future[Result] | None]] = {}

    def job(self, pattern: str, *, merged: bool = False, retry_exceptions: bool = True) -> Callable[[F], F]:
        """Decorate a function `(data, context)` that runs the jobs of these topics.

        The annotation of the first parameter is the payload's type: JSON is decoded into it and checked, `bytes` takes
        any payload. A payload that does not fit ends the job as `error`. The function returns None for success, or
        what `fail`, `cancel`, `snooze` or `complete_later` of the context return.

        Args:
            pattern: Of job topics, such as `purge.*`.
            merged: Whether the function takes the data of merged jobs, as a list.
            retry_exceptions: Whether an exception is a failure, which is retried; otherwise the job ends as `error`,
                unless the exception is a temporary failure of Mailboat, such as a journal that does not answer.
        """
        parse_pattern(pattern)

        def add(function: F) -> F:
            if pattern in self._handlers:
                raise UsageError(f"there are two handlers for {pattern}")
            self._handlers[pattern] = _caller(function, is_merged=merged, retry_exceptions=retry_exceptions)
            return function

        return add

    def for_worker(self, ports: WorkerPorts) -> Mapping[str, Handler]:
        """The handlers as a worker calls them."""
        return {pattern: partial(handler, ports) for pattern, handler in self._handlers.items()}


def _caller(
    function: Callable[..., Any], *, is_merged: bool, retry_exceptions: bool
) -> Callable[[WorkerPorts, Call], Result | Future[Result] | None]:
    decode = _decoder(_data_type(function, is_merged=is_merged))

    def call_function(ports: WorkerPorts, call: Call) -> Result | Future[Result] | None:
        if len(call.jobs) > 1 and not is_merged:
            return Result(
                AttemptOutcome.CANCEL, "the queue merges jobs, and the handler does not: add merged=True to it"
            )
        try:
            data = [_decoded(job, new, decode) for job, new in call.jobs.items()]
        except msgspec.MsgspecError as error:
            return Result(AttemptOutcome.CANCEL, str(error))
        try:
            returned = function(data if is_merged else data[0], JobContext(call, ports))
        except EffectExistsError:
            return Result()
        except _StoppedError as error:
            returned = Result(AttemptOutcome.SNOOZE, str(error), 0.0)
        except Exception as error:  # whatever the user's function raises is its outcome, or goes on to the worker
            if not _ends_job(error, retry_exceptions=retry_exceptions):
                raise
            _LOG.warning("job %s ends as error: %s", show_job_id(next(iter(call.jobs))), error, exc_info=error)
            return Result(AttemptOutcome.CANCEL, f"{type(error).__name__}: {error}")
        if isinstance(returned, Completion):
            return returned.result
        if returned is None or isinstance(returned, Result):
            return returned
        raise TypeError(f"the handler returned {type(returned).__name__}, which is not an outcome")

    return call_function


def _ends_job(error: Exception, *, retry_exceptions: bool) -> bool:
    """Whether a job is not retried after this exception of its handler."""
    if isinstance(error, TransactionSplitError):  # a retry could take a part of the effect for all of it
        return True
    return not retry_exceptions and not isinstance(error, RetryableError)


def _data_type(function: Callable[..., Any], *, is_merged: bool) -> Any:
    """The type that payloads are decoded to. Raises: UsageError."""
    parameters = list(inspect.signature(function).parameters)
    if len(parameters) != 2:
        raise UsageError(f"{function.__qualname__} takes {len(parameters)} parameters; expected data and context")
    hint = get_type_hints(function).get(parameters[0], Any)
    if not is_merged or hint is Any:
        return hint
    if get_origin(hint) is not list:
        raise UsageError(f"{function.__qualname__} is merged; its data must be a list, such as list[str]")
    return get_args(hint)[0]


def _decoder(data_type: Any) -> Callable[[bytes], Any]:
    """What payloads are decoded by. Raises: UsageError."""
    if data_type is bytes:
        return bytes
    try:
        decoder = make_decoder(data_type)
    except TypeError as error:
        raise UsageError(f"no job can have data of the type {data_type}: {error}") from error
    return lambda payload: decoder.decode(payload or b"null")


def _decoded(job: JobId, new: NewJob, decode: Callable[[bytes], Any]) -> Any:
    """Raises: msgspec.MsgspecError with the job's id."""
    try:
        return decode(new.payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise msgspec.ValidationError(f"the payload of job {show_job_id(job)} is invalid: {error}") from error


def encode_payload(data: object) -> bytes:
    """The payload of a job: JSON, or the bytes themselves. Raises: UsageError."""
    if isinstance(data, bytes):
        return data
    try:
        return b"" if data is None else msgspec.json.encode(data)
    except (msgspec.MsgspecError, TypeError, RecursionError) as error:
        raise UsageError(f"the data of the job has no JSON form: {error}") from error

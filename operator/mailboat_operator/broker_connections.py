"""Connections to the brokers of all Journals: kept between reconciliations, asked in batches, with backoff on failure.

A question to brokers that just failed is refused at once, with the time for a retry; the pause grows. After it
one question probes them, and until that is answered all others are refused. During a wait for an answer other objects
are reconciled: silent brokers delay their own topics alone. Used from one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mailboat.errors import BrokersRefusedError, BrokersUnreachableError, MailboatError

from mailboat_operator.agent_client import Waiting
from mailboat_operator.brokers import Brokers, ClusterFound, Credentials
from mailboat_operator.kinds.journal.spec import Kafka
from mailboat_operator.plan.actions import TopicAction, TopicFound
from mailboat_operator.plan.child_manifest import digest_of

Q = TypeVar("Q")
A = TypeVar("A")

_LARGEST: Final = 100


class Batches(Generic[Q, A]):
    """Questions of one sort."""

    def __init__(self, call: Callable[[Mapping[str, Q]], Awaitable[Mapping[str, A | MailboatError]]]) -> None:
        """Ask by `call`, which gets questions by name and gives an answer, or what was wrong, for each name."""
        self._call = call
        self._waiting: list[tuple[str, Q, asyncio.Future[A]]] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, name: str, question: Q) -> A:
        """The answer. Raises: whatever the call gives or raises instead of one."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, question, future))
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all())
        return await future

    async def _ask_all(self) -> None:
        # no await between this check and the end of the task: a later question finds the task done, and starts another
        while self._waiting:
            batch = self._next_batch()
            if not batch:  # all who asked have gone
                continue
            questions = {name: question for name, (question, _) in batch.items()}
            try:
                answers = await self._call(questions)
                found = [(future, answers[name]) for name, (_, future) in batch.items()]
            except Exception as error:  # noqa: BLE001  # the caller gets it
                for _, future in batch.values():
                    _resolve(future, error)
                continue
            for future, answer in found:
                _resolve(future, answer)

    def _next_batch(self) -> dict[str, tuple[Q, asyncio.Future[A]]]:
        batch: dict[str, tuple[Q, asyncio.Future[A]]] = {}
        left: list[tuple[str, Q, asyncio.Future[A]]] = []
        for name, question, future in self._waiting:
            if future.done():  # the caller has gone
                continue
            if name in batch or len(batch) >= _LARGEST:
                left.append((name, question, future))
            else:
                batch[name] = (question, future)
        self._waiting = left
        return batch


def _resolve(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


_FIRST_PAUSE_SECONDS: Final = 2.0
_LONGEST_PAUSE_SECONDS: Final = 60.0
# Longer than a resync: connections of Journals that still exist are used before.
_IDLE_SECONDS: Final = 600.0
_ONLY: Final = "cluster"


class BrokerConnection:
    """The brokers of one Journal, with the credentials of one moment."""

    def __init__(
        self, brokers: Brokers, waiting: Waiting, monotonic: Callable[[], float], answer_seconds: float
    ) -> None:
        """Nothing is asked yet."""

        async def cluster(_: Mapping[str, None]) -> Mapping[str, ClusterFound]:
            return {_ONLY: await brokers.cluster()}

        self._cluster = Batches[None, ClusterFound](cluster)
        self._topics = Batches[None, TopicFound | None](brokers.topics)
        self._actions = Batches[TopicAction, None](brokers.act)
        self._brokers = brokers
        self._waiting = waiting
        self._monotonic = monotonic
        self._answer_seconds = answer_seconds
        self._failures = 0
        self._problem: MailboatError | None = None
        self._again_at = 0.0
        self._is_tried = False

    async def cluster(self) -> ClusterFound:
        """What the brokers say of themselves. Raises: BrokersUnreachableError, BrokersRefusedError."""
        return await self._ask(self._cluster, _ONLY, None)

    @property
    def cluster_id(self) -> str | None:
        """The cluster that answered last; None if none did yet. Read after `topic`, it costs no request."""
        return self._brokers.cluster_id

    async def topic(self, name: str) -> TopicFound | None:
        """A topic; None if absent. Raises: see `cluster`."""
        return await self._ask(self._topics, name, None)

    async def act(self, action: TopicAction) -> None:
        """Do what a plan asks for. Raises: see `cluster`."""
        await self._ask(self._actions, action.name, action)

    async def pause(self, seconds: float) -> None:
        """Give the brokers a moment, as one who waits for them."""
        async with self._waiting():
            await asyncio.sleep(seconds)

    async def _ask(self, batches: Batches[Q, A], name: str, question: Q) -> A:
        if self._problem is None:
            return await self._asked(batches, name, question)
        # one question probes brokers that failed: the others would all wait for the same time-out
        left = self._answer_seconds if self._is_tried else self._again_at - self._monotonic()
        if left > 0:
            raise BrokersUnreachableError(self._problem.message, retry_after_seconds=left)
        self._is_tried = True
        try:
            return await self._asked(batches, name, question)
        finally:
            self._is_tried = False

    async def _asked(self, batches: Batches[Q, A], name: str, question: Q) -> A:
        try:
            async with self._waiting():
                answer = await batches.ask(name, question)
        except BrokersUnreachableError as error:
            raise BrokersUnreachableError(error.message, retry_after_seconds=self._failed(error)) from error
        except BrokersRefusedError:
            self._failures, self._problem = 0, None  # an answer, too
            raise
        self._failures, self._problem = 0, None
        return answer

    def _failed(self, error: MailboatError) -> float:
        """Note it, once for all that asked together; how long to ask the brokers nothing."""
        now = self._monotonic()
        # all questions of a batch fail together: only the first one lengthens the pause
        if now >= self._again_at:
            self._failures += 1
            pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures - 1, 10), _LONGEST_PAUSE_SECONDS)
            self._problem, self._again_at = error, now + pause
        return self._again_at - now


@dataclass(slots=True)
class _Kept:
    """A connection, what it was made of, and when it was last asked for."""

    made_of: tuple[Kafka, str]
    connection: BrokerConnection
    used_at: float


class Connections:
    """One connection a Journal; a new one when its spec or its credentials are others."""

    def __init__(
        self,
        waiting: Waiting = nullcontext,
        connect: Callable[[Kafka, Credentials, float], Brokers] = Brokers,
        monotonic: Callable[[], float] = time.monotonic,
        answer_seconds: float = 8.0,
    ) -> None:
        """Open no connection yet.

        Args:
            waiting: Entered during a wait for brokers.
            connect: Makes a client; gets the time limit of its requests.
            monotonic: The clock of pauses.
            answer_seconds: Time limit of a request to brokers.
        """
        self._waiting = waiting
        self._connect = connect
        self._monotonic = monotonic
        self._answer_seconds = answer_seconds
        self._kept: dict[tuple[str, str], _Kept] = {}

    def to(self, namespace: str, journal: str, kafka: Kafka, credentials: Credentials) -> BrokerConnection:
        """The connection of a Journal. Raises: SecretMissingError, SecretMalformedError."""
        self._forget_idle()
        key, made_of = (namespace, journal), (kafka, digest_of(credentials))
        kept = self._kept.get(key)
        # the old connection is not closed: questions under way end with it, and it is collected after them
        if kept is None or kept.made_of != made_of:
            brokers = self._connect(kafka, credentials, self._answer_seconds)
            connection = BrokerConnection(brokers, self._waiting, self._monotonic, self._answer_seconds)
            kept = self._kept[key] = _Kept(made_of, connection, 0.0)
        kept.used_at = self._monotonic()
        return kept.connection

    def last(self, namespace: str, journal: str) -> BrokerConnection | None:
        """The last connection of a Journal, whatever its Secrets hold now; None if there was none lately."""
        kept = self._kept.get((namespace, journal))
        return None if kept is None else kept.connection

    def _forget_idle(self) -> None:
        """Of Journals that are gone."""
        oldest = self._monotonic() - _IDLE_SECONDS
        for key in [key for key, kept in self._kept.items() if kept.used_at < oldest]:
            del self._kept[key]

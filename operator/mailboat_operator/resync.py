"""Periodic resync, which also checks that the watches report everything.

A list has the actual state. An object in it that no watch reported within a grace, or a deletion that none reported,
proves a watch silent: the objects are reconciled all the same, and the process counts as ill until the watches flow
again. Called by `main`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from mailboat.errors import ClusterConflictError, ClusterRefusedError, MailboatError, RetryableError

from mailboat_operator.cluster import Cluster, list_served
from mailboat_operator.kinds.registry import KINDS
from mailboat_operator.operator_probes import OperatorHealth
from mailboat_operator.plan.child_manifest import Manifest
from mailboat_operator.reconcile_queue import ReconcileQueue
from mailboat_operator.reconciliation import ObjectKey
from mailboat_operator.resources import is_forbidden, is_missing
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.watches import Watched, key_of_object, silent_objects, version_of

_LOG: Final = logging.getLogger("mailboat.operator")
_GRACE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 1.0
_EVERYWHERE: Final = "*"


class Resync:
    """Lists of everything that is served."""

    def __init__(self, cluster: Cluster, namespaces: Sequence[str]) -> None:
        """Of these namespaces; of all where none is named."""
        self._cluster = cluster
        self._named = namespaces
        self._namespaces = namespaces or (_EVERYWHERE,)

    async def prime(self, claims: TopicClaims) -> None:
        """Fill in who claims which topic, before the first reconciliation. Raises: ClusterRefusedError."""
        # before all reconciliations: a Topic that does not know its rivals would manage the topic of an older one
        for kind in ("Journal", "Topic"):
            for manifest in await self._list_at_last(kind, self._namespaces):
                claims.saw(manifest)

    async def open_namespaces(self) -> Sequence[str]:
        """The named namespaces that may be watched; empty where all are served.

        One that is made again is watched by the next process: its objects prove the watches silent.

        Raises: ClusterRefusedError, also where none of those that are named may be watched.
        """
        found: list[str] = []
        for namespace in self._named:
            try:
                await self._list_at_last("Journal", [namespace])
                found.append(namespace)
            except ClusterRefusedError as error:
                is_last = namespace == self._named[-1]
                if not is_forbidden(error.__cause__) or (is_last and not found):
                    raise
                _LOG.warning("namespace %s is not served: %s", namespace, error)
        return found

    async def catch_up(self, watched: Watched) -> None:
        """Forget what was deleted while nothing was watched: the next watch begins with what exists."""
        listed = await self._versions()
        if listed is not None:
            await watched.forget_missing(listed)

    async def run(self, watched: Watched, workers: ReconcileQueue, health: OperatorHealth, seconds: float) -> None:
        """Go round every so many seconds, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            # before the list: an object that is created after it may be missing from the list
            before = list(watched.last_events)
            listed = await self._versions()
            if listed is None:
                continue
            # also what is gone from the list: its deletion may be what no watch reported
            for key in {*listed, *before}:
                workers.ask(key, is_news=False)
            await asyncio.sleep(min(_GRACE_SECONDS, seconds / 2))
            silent = silent_objects(watched.last_events, before, listed)
            if silent:
                # what was deleted since the list is unheard of too: only what a second list still shows proves silence
                listed = await self._versions()
                if listed is None:
                    continue
                silent = sorted(set(silent) & set(silent_objects(watched.last_events, before, listed)))
            health.report_silent(silent)
            if silent:
                _LOG.error(
                    "/healthz answers 503 from now on: no watch reported %d objects, such as %s", len(silent), silent[0]
                )

    async def _versions(self) -> dict[ObjectKey, int] | None:
        """The versions of all objects; None where one kind could not be listed: the others alone prove nothing."""
        found: dict[ObjectKey, int] = {}
        try:
            for kind in KINDS:
                for manifest in await self._list(kind.name, self._namespaces):
                    found[key_of_object(manifest)] = version_of(manifest)
        except MailboatError as error:
            _LOG.warning("the resync is skipped: %s", error)
            return None
        return found

    async def _list_at_last(self, kind: str, namespaces: Sequence[str]) -> list[Manifest]:
        """The same, once an API that has no time for us has."""
        while True:
            try:
                return await self._list(kind, namespaces)
            except RetryableError as error:
                _LOG.warning("reconciliation has not started: %s", error)
                await asyncio.sleep(error.retry_after_seconds or _PAUSE_SECONDS)

    async def _list(self, kind: str, namespaces: Sequence[str]) -> list[Manifest]:
        """All objects of a kind; none where the kind itself is gone. Raises: MailboatError."""
        try:
            return await list_served(lambda namespace: self._cluster.list(kind, namespace), namespaces)
        except ClusterConflictError as error:
            # not of a list whose next page came too late (410): its objects would count as deleted
            if not is_missing(error.__cause__):
                raise
            return []

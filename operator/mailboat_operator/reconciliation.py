"""Observe, plan, act: for one object, whatever the cause, from all that there is.

Nothing is remembered from one time to the next, so a crash between any two writes is put right by the next look. An
object that can't be decoded gets the error in its own status; no other object is affected. Called by `reconcile_queue`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from mailboat.errors import (
    AgentRefusedError,
    AgentUnreachableError,
    ClusterConflictError,
    ClusterRefusedError,
    MailboatError,
    UntrustedInputError,
)

from mailboat_operator.agent_client import Agents
from mailboat_operator.cluster import Cluster
from mailboat_operator.cluster_reader import ClusterReader
from mailboat_operator.kinds.controllers import plan_for
from mailboat_operator.kinds.registry import decode
from mailboat_operator.plan.actions import (
    Action,
    Apply,
    Correct,
    Create,
    Delete,
    Deregister,
    Enlarge,
    Hold,
    Plan,
    RecordEvent,
    Severity,
)
from mailboat_operator.plan.child_manifest import Manifest, condition_in
from mailboat_operator.plan.children import correction_report
from mailboat_operator.plan.findings import READY, plan_invalid, plan_undecodable, stall_report
from mailboat_operator.resources import is_forbidden, is_of_going_namespace
from mailboat_operator.systems import Systems
from mailboat_operator.workload.pods import AgentImage

_LOG: Final = logging.getLogger("mailboat.operator")


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """Which of our objects."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ReconcileOutcome(NamedTuple):
    """What came of a look.

    Attributes:
        is_ready: Whether the object is as it should be, so that the next look can wait for news.
        again_seconds: The latest time of the next reconciliation; None leaves it to news and the resync.
        figures: For metrics; none of an object that is gone.
    """

    is_ready: bool
    again_seconds: float | None = None
    figures: Mapping[str, float] = MappingProxyType({})


class Reconciler:
    """Brings actual to desired state. Called for several objects at once, never twice for one."""

    def __init__(
        self,
        cluster: Cluster,
        agents: Agents,
        image: AgentImage,
        on_report: Callable[[str], None],
        systems: Systems | None = None,
    ) -> None:
        """Act through `cluster` and `agents`; `on_report` receives the reason of every Event.

        What `systems` holds is shared by all looks; None begins with nothing.
        """
        self._cluster = cluster
        self._agents = agents
        self._systems = Systems() if systems is None else systems
        self._reader = ClusterReader(cluster, agents, image, self._systems, _now)
        self._on_report = on_report

    async def reconcile(self, key: ObjectKey) -> ReconcileOutcome:
        """Reconcile one object.

        Raises: ClusterUnavailableError, ClusterConflictError, ClusterRefusedError.
        """
        found = await self._found(key)
        # gone: its children name it as their owner, so the garbage collector removes them
        if found is None:
            return ReconcileOutcome(is_ready=True)
        plan = await self._plan_for(found)
        # the finalizer in a write of its own, before anything is made that it must clean up
        if plan.preparation is not None:
            found = await self._cluster.hold(found, is_held=plan.preparation.is_held)
            plan = await self._plan_for(found)
        for action in plan.actions:
            if isinstance(action, Enlarge) and not await self._enlarge(action):
                return ReconcileOutcome(is_ready=False, again_seconds=0.0)  # the next plan reports the refusal
            await self._act(found, action)
        await self._conclude(found, plan)
        after = found if plan.status is None else {"status": plan.status}
        is_ready = condition_in(after, READY).get("status") == "True"
        return ReconcileOutcome(is_ready, plan.again_seconds, plan.figures)

    async def refuse(self, key: ObjectKey, error: MailboatError) -> None:
        """Write into the object's status why it is not reconciled. Raises: see `reconcile`."""
        found = await self._found(key)
        if found is None:
            return
        await self._conclude(found, plan_invalid(found, error, datetime.now(UTC)))

    async def _found(self, key: ObjectKey) -> Manifest | None:
        """The object; None if absent, also with its namespace and our Role in it."""
        try:
            return await self._cluster.get(key.kind, key.namespace, key.name)
        except ClusterRefusedError as error:
            if not self._systems.namespaces or not is_forbidden(error.__cause__):
                raise
            return None

    async def _conclude(self, found: Manifest, plan: Plan) -> None:
        report = stall_report(found, plan)
        if report is not None:
            # before the status, which ends the news: after a crash the Event is written again, and only counted
            await self._report(found, report)
        # the status after the actions: a crash in between leaves an old one that claims nothing undone
        if plan.status is not None:
            await self._cluster.write_status(found, plan.status)

    async def _plan_for(self, found: Manifest) -> Plan:
        """See `plan_for`; of an object that can't be decoded, only its status is planned."""
        try:
            resource = decode(found)
        except UntrustedInputError as error:
            return plan_undecodable(found, error, datetime.now(UTC))
        return await plan_for(self._reader, resource)

    async def _act(self, owner: Manifest, action: Action) -> None:
        match action:
            case Apply(manifest):
                await self._cluster.apply(manifest)
            case Correct(manifest):
                await self._report(owner, correction_report(action, await self._cluster.apply(manifest)))
            case Create():
                await self._cluster.create_secret(action)
            case Delete(key, uid):
                await self._cluster.delete(owner["metadata"]["namespace"], key, uid)
            case RecordEvent():
                await self._report(owner, action)
            case Hold(is_held):
                await self._cluster.hold(owner, is_held=is_held)
            case Deregister():
                await self._deregister(owner["metadata"]["namespace"], action)
            case Enlarge():
                pass  # done by `reconcile`, as a refusal ends the plan
            case _:
                pass  # of topics, packages and jobs: done by the `act` of its kind, as the status shows its outcome

    async def _enlarge(self, action: Enlarge) -> bool:
        """Whether the API server accepts the larger size; a refusal is noted for the next plan."""
        try:
            await self._cluster.enlarge(action.claim, action.size)
        except ClusterRefusedError as error:
            self._systems.refusals.note(action.claim, action.size, error.message, _now())
            return False
        return True

    async def _deregister(self, namespace: str, action: Deregister) -> None:
        """Deregister a member. Agents' errors are logged: the next reconciliation tries again."""
        for name in action.publishers:
            try:
                publisher = await self._reader.publisher(namespace, name)
                if publisher is not None:
                    await self._agents.forget(await self._reader.agent_of(publisher), action.member)
                    return
            except (AgentUnreachableError, AgentRefusedError) as error:
                _LOG.info("%s is not deregistered at %s: %s", action.member, name, error)

    async def _report(self, owner: Manifest, report: RecordEvent) -> None:
        """Say it in the log and in an Event; an Event that the API refuses, as a namespace that goes does, is lost."""
        self._on_report(report.reason)
        metadata = owner["metadata"]
        level = logging.WARNING if report.severity is Severity.WARNING else logging.INFO
        _LOG.log(level, "%s %s/%s: %s", owner["kind"], metadata["namespace"], metadata["name"], report.message)
        try:
            await self._cluster.report(owner, report)
        except (ClusterConflictError, ClusterRefusedError) as error:
            _LOG.log(logging.INFO if is_of_going_namespace(error) else logging.WARNING, "no Event: %s", error)


def _now() -> datetime:
    return datetime.now(UTC)

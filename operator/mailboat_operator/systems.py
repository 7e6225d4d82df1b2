"""External systems of Journals, and what is remembered of them between reconciliations.

Nothing here needs to outlive the process: the next one connects and lists claims again.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mailboat.frozen import Frozen

from mailboat_operator.agent_client import Waiting
from mailboat_operator.broker_connections import Connections
from mailboat_operator.plan.child_manifest import Manifest
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage

_LASTS: Final = timedelta(hours=1)
_MOST: Final = 1_000


class _Refusal(NamedTuple):
    """The claim's version and the requested size, the API server's message, and the time of it."""

    question: tuple[str, str]
    message: str
    at: datetime


class Refusals:
    """Refused requests of the last hour."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], _Refusal] = {}

    def note(self, claim: Manifest, size: str, message: str, now: datetime) -> None:
        """Keep a refusal; beyond 1,000 claims the oldest is dropped."""
        self._kept.pop(_place(claim), None)
        self._kept[_place(claim)] = _Refusal(_question(claim, size), message, now)
        # claims that are gone are never asked for again: only the limit removes them
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]

    def of(self, claim: Manifest, size: str, now: datetime) -> str | None:
        """Return the message of the last refusal; None if the claim or the size changed, or after an hour."""
        known = self._kept.get(_place(claim))
        if known is None or known.question != _question(claim, size) or now - known.at >= _LASTS:
            return None
        return known.message


def _place(claim: Manifest) -> tuple[str, str]:
    return claim["metadata"]["namespace"], claim["metadata"]["name"]


def _question(claim: Manifest, size: str) -> tuple[str, str]:
    return claim["metadata"]["resourceVersion"], size


class Systems(Frozen):
    """All that looks share.

    Attributes:
        connections: To the brokers.
        claims: Which Topics claim which topics.
        spark_image: What driver and executors of builds run; None for builds that say it themselves.
        waiting: Entered during a wait for a bucket.
        policy: What the settings say of all agents.
        refusals: Claims that the API server does not enlarge.
        namespaces: Served namespaces; empty for all.
    """

    connections: Connections = field(default_factory=Connections)
    claims: TopicClaims = field(default_factory=TopicClaims)
    spark_image: AgentImage | None = None
    waiting: Waiting = nullcontext
    policy: AgentPolicy = field(default_factory=AgentPolicy)
    refusals: Refusals = field(default_factory=Refusals)
    namespaces: tuple[str, ...] = ()

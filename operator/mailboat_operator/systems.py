"""External systems of Journals, and what is remembered of them between reconciliations.

Nothing here needs to outlive the process: the next one connects and lists claims again.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

from mailboat_operator.claims import TopicClaims
from mailboat_operator.connections import Connections, Waiting
from mailboat_operator.manifests.pods import AgentImage
from mailboat_operator.manifests.workloads import AgentPolicy
from mailboat_operator.refused_claims import Refusals


@dataclass(frozen=True, slots=True)
class Systems:
    """All that looks share.

    Attributes:
        connections: To the brokers.
        claims: Which Topics claim which topics.
        spark_image: What driver and executors of builds run; None for builds that say it themselves.
        waiting: Entered during a wait for a bucket.
        policy: What the settings say of all agents.
        refusals: Claims that the API server does not enlarge.
    """

    connections: Connections = field(default_factory=Connections)
    claims: TopicClaims = field(default_factory=TopicClaims)
    spark_image: AgentImage | None = None
    waiting: Waiting = nullcontext
    policy: AgentPolicy = field(default_factory=AgentPolicy)
    refusals: Refusals = field(default_factory=Refusals)

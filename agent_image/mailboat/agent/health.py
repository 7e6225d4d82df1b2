"""How an agent's process is, as data: whether its threads make progress, and whether its agents may serve.

`process.py` fills these records; the HTTP API shows them to probes. Liveness asks for a restart, so it fails only where
a restart would help; readiness says why not, agent by agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class LivenessView:
    """Whether the process makes progress.

    Attributes:
        alive: Whether it does.
        stuck: Threads that should have moved long ago.
    """

    alive: bool
    stuck: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentView:
    """An agent of this process.

    Attributes:
        name: Its name.
        kind: `publisher` or `subscriber`.
        state: `starting`, `running` or `stopped`.
        ready: Whether it may serve.
        reason: Why, or why not: one word or an error's name.
    """

    name: str
    kind: str
    state: str
    ready: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class ReadinessView:
    """Whether all agents of the process may serve.

    Attributes:
        ready: Whether all may.
        agents: Each of them.
    """

    ready: bool
    agents: tuple[AgentView, ...] = ()


class Health(Protocol):
    """Source of the process's health. Answers at once, from any thread."""

    def liveness(self) -> LivenessView:
        """Whether the threads make progress."""
        ...

    def readiness(self) -> ReadinessView:
        """Whether the agents may serve."""
        ...

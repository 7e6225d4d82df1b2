"""Runs a small Kafka cluster for the faults that one broker does not have: a leader that dies, replicas out of sync.

Each node is broker and controller. A dead broker is noticed within seconds, where production waits longer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mailboat.clock import Clock
from support.free_ports import free_ports
from support.kafka_broker import BrokerSettings, KafkaBroker, Quorum
from support.kafka_files import new_id

_PORTS_OF_A_NODE: Final = 2
_QUICK: Final = {
    "broker.session.timeout.ms": "4000",  # less, and a busy machine takes a slow broker for a dead one
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "default.replication.factor": "3",
}


class KafkaCluster:
    """Several brokers. Not safe to use from several threads."""

    def __init__(self, settings: BrokerSettings, clock: Clock, nodes: int = 3) -> None:
        """Choose folders below that of `settings`, and ports."""
        ports = free_ports(_PORTS_OF_A_NODE * nodes)
        self._settings = settings
        self.brokers = {
            number: KafkaBroker(
                replace(
                    settings,
                    folder=settings.folder / f"node-{number}",
                    node_id=number,
                    properties={**_QUICK, **settings.properties},
                ),
                clock,
                ports[_PORTS_OF_A_NODE * (number - 1) :][:_PORTS_OF_A_NODE],
            )
            for number in range(1, nodes + 1)
        }

    @property
    def bootstrap_servers(self) -> str:
        """All addresses."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def log_path(self) -> Path:
        """Where the nodes keep data and logs, each in a folder of its own."""
        return self._settings.folder

    def start(self) -> None:
        """Start all, and return when all answer. Raises: BrokerToolMissingError, BrokerFailedError."""
        voters = ",".join(f"{number}@{one.controller}" for number, one in self.brokers.items())
        quorum = Quorum(new_id(), voters)
        for broker in self.brokers.values():
            broker.launch(quorum)
        for broker in self.brokers.values():
            broker.await_start()

    def ensure_running(self) -> None:
        """Start all nodes that do not run. Raises: as `start`."""
        for broker in self.brokers.values():
            broker.ensure_running()

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of each node's log."""
        return "\n".join(f"node {number}\n{one.log_tail(lines)}" for number, one in self.brokers.items())

    def kill(self) -> None:
        """End all nodes at once, as a power cut does; asked politely, the last of them would wait for the others."""
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

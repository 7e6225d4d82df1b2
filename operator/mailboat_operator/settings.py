"""The operator's settings; the only module that reads the environment."""

from __future__ import annotations

import json
import os
import re
import socket
import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from mailboat.errors import UsageError
from mailboat.frozen import Frozen

from mailboat_operator.fleet_page import SHORTEST_TOKEN

_LARGEST: Final = 1e6
_AGENT_URL: Final = re.compile(r"https?://[!-.0-z|~]*\{publisher\}[!-.0-z|~]*/?")
"""Without a path: an agent serves its page at `/`."""

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class OperatorSettings(Frozen):
    """All that can be chosen.

    Attributes:
        agent_image: What agents run.
        pull_policy: Of that image; None leaves it to the cluster.
        spark_image: What drivers and executors of bulk builds run; None where each build says it itself.
        spark_pull_policy: Of that image; None leaves it to the cluster.
        namespaces: Served namespaces; empty for all.
        lease_namespace: Where the lease of the leader is; None for the operator's own namespace.
        lease_name: What it is called.
        identity: Name of this process: one that restarts must not take the lease of the one before for its own.
        lease_seconds: How long a dead leader's lease holds.
        resync_seconds: Time between two reconciliations of all objects.
        watch_seconds: A watch without events for so long is restarted.
        broker_seconds: Time limit of a request to brokers.
        workers: Objects that are reconciled at once, without those that wait for brokers.
        requests_per_second: Requests to the Kubernetes API at the most, watches not counted.
        open_metrics: Whether agents serve metrics without a token.
        agent_ingress: Peers of NetworkPolicies that may reach the agents' API; None makes no NetworkPolicies.
        port: Of probes, metrics and the dashboard.
        dashboard_token: What the dashboard of all agents is read with; None serves no dashboard.
        agent_url: Address of an agent's page in browsers, with `{publisher}` and `{namespace}`; None: not reachable.
        log_level: The least that is logged.
    """

    agent_image: str
    pull_policy: str | None = None
    spark_image: str | None = None
    spark_pull_policy: str | None = None
    namespaces: tuple[str, ...] = ()
    lease_namespace: str | None = None
    lease_name: str = "mailboat-operator"
    identity: str = "mailboat-operator"
    lease_seconds: float = 15.0
    resync_seconds: float = 120.0
    watch_seconds: float = 70.0
    broker_seconds: float = 8.0
    workers: int = 10
    requests_per_second: float = 100.0
    open_metrics: bool = False
    agent_ingress: tuple[Mapping[str, Any], ...] | None = None
    port: int = 8081
    dashboard_token: str | None = field(default=None, repr=False)
    agent_url: str | None = None
    log_level: str = "INFO"


def read_settings(environment: Mapping[str, str] = os.environ) -> OperatorSettings:
    """Read the variables `MAILBOAT_OPERATOR_…`. Raises: UsageError naming the variable."""

    def text(name: str) -> str | None:
        return environment.get(f"MAILBOAT_OPERATOR_{name}") or None

    def number(name: str, default: float, smallest: float, largest: float = _LARGEST) -> float:
        setting = text(name)
        try:
            value = default if setting is None else float(setting)
        except ValueError as error:
            raise UsageError(f"MAILBOAT_OPERATOR_{name} is {setting!r}, but must be a number") from error
        if not smallest <= value <= largest:
            raise UsageError(f"MAILBOAT_OPERATOR_{name} is {setting!r}, but must be from {smallest:g} to {largest:g}")
        return value

    image = text("AGENT_IMAGE")
    if image is None:
        raise UsageError("MAILBOAT_OPERATOR_AGENT_IMAGE is missing: the image that agents run")
    return OperatorSettings(
        agent_image=image,
        pull_policy=text("PULL_POLICY"),
        spark_image=text("SPARK_IMAGE"),
        spark_pull_policy=text("SPARK_PULL_POLICY"),
        namespaces=tuple((text("NAMESPACES") or "").replace(",", " ").split()),
        lease_namespace=text("LEASE_NAMESPACE"),
        lease_name=text("LEASE_NAME") or "mailboat-operator",
        identity=f"{environment.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}",
        lease_seconds=number("LEASE_SECONDS", 15.0, 3.0),
        resync_seconds=number("RESYNC_SECONDS", 120.0, 1.0),
        watch_seconds=number("WATCH_SECONDS", 70.0, 1.0),
        broker_seconds=number("BROKER_SECONDS", 8.0, 1.0),
        workers=int(number("WORKERS", 10, 1)),
        requests_per_second=number("REQUESTS_PER_SECOND", 100.0, 1.0),
        open_metrics=text("OPEN_METRICS") == "true",
        agent_ingress=_checked_peers(text("AGENT_INGRESS")),
        port=int(number("PORT", 8081, 0, 65_535)),
        dashboard_token=_checked_token(text("DASHBOARD_TOKEN")),
        agent_url=_checked_url(text("DASHBOARD_AGENT_URL")),
        log_level=_checked_level((text("LOG_LEVEL") or "info").upper()),
    )


def _checked_peers(setting: str | None) -> tuple[Mapping[str, Any], ...] | None:
    if setting is None:
        return None
    try:
        found = json.loads(setting)
    except ValueError as error:
        raise UsageError(f"MAILBOAT_OPERATOR_AGENT_INGRESS is not JSON: {error}") from error
    # a rule of a NetworkPolicy without peers would open the port to all
    if not (isinstance(found, list) and found and all(isinstance(peer, dict) for peer in found)):
        raise UsageError("MAILBOAT_OPERATOR_AGENT_INGRESS must be a JSON list of at least one NetworkPolicy peer")
    return tuple(found)


def _checked_level(level: str) -> str:
    if level not in _LEVELS:
        raise UsageError(f"MAILBOAT_OPERATOR_LOG_LEVEL is {level!r}, but must be one of {', '.join(_LEVELS)}")
    return level


def _checked_token(token: str | None) -> str | None:
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        rule = f"must be {SHORTEST_TOKEN} or more printable ASCII characters"
        raise UsageError(f"MAILBOAT_OPERATOR_DASHBOARD_TOKEN {rule}")
    return token


def _checked_url(url: str | None) -> str | None:
    if url is not None and not _AGENT_URL.fullmatch(url.replace("{namespace}", "")):
        rule = "must be an address without a path, such as https://{publisher}.{namespace}.example.com"
        raise UsageError(f"MAILBOAT_OPERATOR_DASHBOARD_AGENT_URL is {url!r}, but {rule}")
    return None if url is None else url.rstrip("/")

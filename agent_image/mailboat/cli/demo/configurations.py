"""The configuration files of the demo: what a user would write for each process, no more than differs from defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from mailboat.cli.demo.demo_state import AUTHOR, GOLDEN, DemoProcess, SubscriberProgress

ANNOUNCE_SECONDS: Final = 0.5
"""How often positions are announced, so that bars move; ten seconds are enough in production."""

KINDS: Final = ("sqlite", "files", "generations")
CHECK: Final = (
    "sh",
    "-c",
    """if grep -q '"action": "DELETE"'; then echo 'a delete needs a person'; exit 1; fi""",
)
"""Golden's check of every package: a hook that gets it as JSON, and refuses deletes by its exit code."""


@dataclass(frozen=True, slots=True)
class DemoSetting:
    """What all processes share.

    Attributes:
        folder: The home: the state of all processes, and their configuration files.
        source: What the publisher publishes.
        port: Where the publisher's API listens.
        storage: The `journal` and `blobs` sections of every configuration; none are the embedded ones of the home.
    """

    folder: Path
    source: Path
    port: int
    storage: dict[str, Any]


def write_configurations(setting: DemoSetting, agents: Sequence[DemoProcess]) -> None:
    """Write a configuration for each process into the home: all that `agent run --config FILE` needs."""
    for agent in agents:
        text = yaml.safe_dump(_document(setting, agent), sort_keys=False, allow_unicode=True, width=100)
        configuration_file(setting.folder, agent.name).write_text(
            f"# made by `mailboat demo`\n{text}", encoding="utf-8"
        )


def configuration_file(folder: Path, name: str) -> Path:
    """Where the configuration of a process is."""
    return folder / f"{name}.yaml"


def _document(setting: DemoSetting, agent: DemoProcess) -> dict[str, Any]:
    shared: dict[str, Any] = dict(setting.storage)
    shared["logs"] = {"level": "warning"}
    if agent.name == AUTHOR:
        return {
            **shared,
            "http": {"port": setting.port},
            "agents": {"publishers": [{"name": AUTHOR, "source": str(setting.source.absolute())}]},
        }
    return {
        **shared,
        "http": {"port": 0},
        "subscriber": _patience(agent),
        "agents": {"subscribers": [_subscriber(follower) for follower in agent.followers]},
    }


def _patience(agent: DemoProcess) -> dict[str, Any]:
    """Golden never gives a package up: a person decides."""
    known: dict[str, Any] = {"announce_seconds": ANNOUNCE_SECONDS}
    return {**known, "max_retries": None, "longest_pause_seconds": 1.0} if agent.name == GOLDEN else known


def _subscriber(follower: SubscriberProgress) -> dict[str, Any]:
    if follower.name == GOLDEN:
        return {"name": GOLDEN, "target": follower.target, "editable": True, "hooks": {"before": list(CHECK)}}
    return {"name": follower.name, "target": follower.target, "staging": {"golden": GOLDEN}}

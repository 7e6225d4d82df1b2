"""What came out of the demo: the proof by digest, the table, and commands that work as they are printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mailboat.cli.demo.demo_state import AUTHOR, MISTAKE_ID, DemoState, SubscriberProgress
from mailboat.cli.demo.portions import Survey, binary_bytes
from mailboat.cli.demo.processes import configuration_file
from mailboat.cli.output import Block, Report, bytes_text, count_text, seconds_text
from mailboat.cli.tables import Column, Table
from mailboat.composition.source_openers import open_source
from mailboat.content.digest import TreeHash
from mailboat.model.paths import ROOT
from mailboat.wire.node_bodies import node_digest


@dataclass(frozen=True, slots=True)
class Held:
    """What a source or target holds."""

    digest: bytes
    content_bytes: int


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What came out.

    Attributes:
        state: Final state of all processes and subscribers.
        found: The source's files and folders, with their sizes.
        folder: What was published.
        home: The demo's home.
        url: Where the publisher's API listened, and listens when it is started again.
        expected: Digest and size of the source.
        held: The same of each subscriber's target, by name.
        is_embedded: Whether journal and blobs are files of the home, instead of on servers.
    """

    state: DemoState
    found: Survey
    folder: Path
    home: Path
    url: str
    expected: Held
    held: dict[str, Held]
    is_embedded: bool = True

    @property
    def is_equal(self) -> bool:
        return not self.different

    @property
    def different(self) -> list[str]:
        return [name for name, one in self.held.items() if one.digest != self.expected.digest]


def held_by(location: str) -> Held:
    """Digest and size of a source or target, read from the first byte to the last."""
    total, count = TreeHash(), 0
    with closing(open_source(location)) as source:
        for node in source.walk(ROOT):
            total.add(node.path, node_digest(node))
            count += binary_bytes(node)
    return Held(total.digest(), count)


def outcome_report(outcome: DemoOutcome, *, until: str = "") -> Report:
    """Everything, for people and programs. While the agents still run, `until` is what ends them: keys."""
    state = outcome.state
    rows = [
        _row(outcome, follower, agent.name, agent.restarts) for agent in state.agents for follower in agent.followers
    ]
    commands = _live_commands(outcome) if until else _next_commands(outcome)
    document = {
        "source": str(outcome.folder),
        "files": outcome.found.files,
        "content_bytes": outcome.found.content_bytes,
        "packages": state.portions,
        "seconds": round(state.seconds, 1),
        "digest": outcome.expected.digest.hex(),
        "equal": outcome.is_equal,
        "subscribers": rows,
        "next": [words for words, _ in commands],
    }
    after = _live_lines(outcome, until) if until else next_lines(outcome)
    return Report(document, [follower.name for follower in state.followers], lambda: _blocks(outcome, rows, after))


def _row(outcome: DemoOutcome, follower: SubscriberProgress, process: str, restarts: int) -> dict[str, Any]:
    state, held = outcome.state, outcome.held[follower.name]
    return {
        "name": follower.name,
        "process": process,
        "target": follower.target,
        "position": follower.position,
        "lag": state.total - follower.position,
        "packages": max(
            0, follower.position - state.has_story
        ),  # the mistake was dropped by golden, skipped by the others
        "restarts": restarts,
        "bytes": held.content_bytes,
        "digest": held.digest.hex(),
        "equal": held.digest == outcome.expected.digest,
    }


def _blocks(outcome: DemoOutcome, rows: Sequence[dict[str, Any]], after: Sequence[str]) -> list[Block]:
    titles = ("SUBSCRIBER", "PROCESS", "PACKAGES", "BYTES", "LAG", "RESTARTS", "CONTENT")
    columns = [Column(title, is_number=title in titles[2:6]) for title in titles]
    cells = [
        [
            row["name"],
            row["process"],
            str(row["packages"]),
            bytes_text(row["bytes"]),
            str(row["lag"]),
            str(row["restarts"]),
            f"{row['digest'][:8]} {'= source' if row['equal'] else 'DIFFERS'}",
        ]
        for row in rows
    ]
    return ["", Table(columns, cells), "", *_closing_lines(outcome, after)]


def _closing_lines(outcome: DemoOutcome, after: Sequence[str]) -> list[str]:
    if not outcome.is_equal:
        names = outcome.different
        target = next(follower.target for follower in outcome.state.followers if follower.name == names[0])
        diff = shlex.join([_program(), "content", "diff", str(outcome.folder), target])
        return [
            f"{', '.join(names)}: not what was published. If the source did not change meanwhile, this is a defect.",
            diff,
        ]
    state = outcome.state
    took = f"{count_text(state.portions, 'package')} to {count_text(len(state.followers), 'subscriber')}"
    lines = [f"Nothing lost, nothing twice: {took} in {seconds_text(state.seconds)}."]
    lines += ["The mistaken delete reached no subscriber."] if state.has_story else []
    return [*lines, "", *after]


def next_lines(outcome: DemoOutcome) -> list[str]:
    """What to try after the agents have ended."""
    return ["Next:", *_step_lines(_next_commands(outcome))]


def _live_lines(outcome: DemoOutcome, until: str) -> list[str]:
    steps = _step_lines(_live_commands(outcome))
    return [
        f"All agents still run, with the dashboard at {outcome.url}/",
        *("In another terminal:", *steps),
        f"Press {until} here to end the demo.",
    ]


def _step_lines(commands: Sequence[tuple[str, str]]) -> list[str]:
    return [line for words, what in commands for line in (f"  # {what}", f"  {words}")]


def _live_commands(outcome: DemoOutcome) -> list[tuple[str, str]]:
    """Commands that work while the agents run."""
    agent = [_program(), "--url", outcome.url]
    first = _lightest(outcome)
    block = ([*agent, "delete", first], "block golden again; remove the package on its page in the dashboard")
    commands = [
        ([*agent, "publish", first, "--wait", "20"], "publish something again"),
        block,
        ([*agent, "status", "--watch"], "follow the status"),
    ]
    return [(shlex.join(words), what) for words, what in commands]


def _next_commands(outcome: DemoOutcome) -> list[tuple[str, str]]:
    """Commands that work as they are printed, in this order; the last two run until they are stopped."""
    home = [_program(), "--home", str(outcome.home)]
    author = configuration_file(outcome.home, AUTHOR)
    first = _lightest(outcome)
    about_it = ([*home, "distributions", "get", MISTAKE_ID], "outcome of the mistaken delete")
    commands = [
        ([*home, "status"], standing_text(is_embedded=outcome.is_embedded)),
        *([about_it] if outcome.state.has_story else []),
        ([*home, "publish", "--source", str(outcome.folder), first], "publish something again"),
        (
            [_program(), "agent", "run", "--config", str(author)],
            "start the publisher again, with its API and dashboard",
        ),
        ([_program(), "--url", outcome.url, "status", "--watch"], "in another terminal: follow the status"),
    ]
    return [(shlex.join(words), what) for words, what in commands]


def _lightest(outcome: DemoOutcome) -> str:
    return min(outcome.found.top.children.values(), key=lambda one: one.weight).path


def standing_text(*, is_embedded: bool) -> str:
    """What `status` shows after the demo."""
    where = "on disk: nothing runs any more" if is_embedded else "on the servers: the agents have ended"
    return f"position of each subscriber, as it is {where}"


def _program() -> str:
    """How this program is called from here: as it was just now, as the path of `make` is not that of a shell."""
    here = Path(sys.executable).with_name("mailboat")
    called = Path(sys.argv[0])
    if called.name == here.name and not called.is_absolute() and called.is_file():
        return str(called)
    found = shutil.which("mailboat")
    if found is not None and os.path.realpath(found) == os.path.realpath(here):
        return "mailboat"
    return os.path.relpath(here)

"""`mailboat demo`: sets the stage, plays, and compares; `outcome.py` says what came out, and what to try next."""

from __future__ import annotations

import itertools
import os
import select
import shlex
import shutil
import signal
import socket
import sys
import termios
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mailboat.api.client import HttpControl
from mailboat.cli.demo.demo_run import DemoPlan, DemoRun
from mailboat.cli.demo.demo_state import (
    AUTHOR,
    BLOCK_SECONDS,
    LATE,
    MEMBERS,
    DemoProcess,
    SubscriberProgress,
    processes_of,
)
from mailboat.cli.demo.outcome import DemoOutcome, held_by, next_lines, outcome_report
from mailboat.cli.demo.portions import Survey, cut, survey
from mailboat.cli.demo.processes import KINDS, DemoSetting, agent_command, configuration_file, write_configurations
from mailboat.cli.demo.sample_site import write_site
from mailboat.cli.demo.screen import screen_for
from mailboat.cli.demo.source_copy import SkippedEntries, copy_content
from mailboat.cli.help_page import PagedTyper
from mailboat.cli.options import command
from mailboat.cli.output import Output, bytes_text, count_text
from mailboat.cli.session import Session
from mailboat.cli.signals import exit_at
from mailboat.cli.terminal_line import is_in_foreground
from mailboat.clock import SystemClock
from mailboat.composition.home import Home, create_home, parse_config, translated_writes
from mailboat.composition.places import check_folder_place
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import initialise
from mailboat.config.decoder import decode_config, encode_changes
from mailboat.content.disk_layout import KEPT_AT_TOP
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.messages import TopicRole
from mailboat.model.paths import ROOT
from mailboat.publisher.state_file import try_lock

PACKAGES: Final = 40
MARK: Final = "demo"
MADE: Final = b"made by `mailboat demo`, which removes it when it runs again\n"
"""What the mark says: another file may be called `demo`, too, in a folder that is not ours to remove."""

_STORAGE_SECTIONS: Final = ("journal", "blobs")
DIFFERENT_EXIT_CODE: Final = 1

_SECONDS: Final = 12.0
_WATCHED_SECONDS: Final = 24.0
_WATCHED_BLOCK_SECONDS: Final = 6.0
"""A person needs time to open the dashboard, and to read why golden is blocked."""

_PORTS: Final = range(20_000, 28_000)
"""Below the ephemeral ports: a connection, or another server, could take one of those before the publisher."""

_OF_A_PROCESS: Final = 32
"""Demos that search at the same time begin at different ports."""

app = PagedTyper()


@app.command("demo")
@command
def demo(
    session: Session,
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="A directory. Default: a generated site.")
    ] = None,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, max=100, help="How many subscribers.")] = 20,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, help="Spread publications over this time. Default: 12; 24 with --stay."),
    ] = None,
    stay: Annotated[
        bool | None,
        typer.Option(
            "--stay/--no-stay",
            help="Keep agents and dashboard until Enter. Default: on a terminal.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Configuration with journal and blobs, such as Kafka and S3. Default: embedded.",
        ),
    ] = None,
) -> None:
    """Publish a directory to many subscribers, inject failures, and prove that all end up equal.

    Agents run as processes, staged behind a golden subscriber.
    """
    if source is not None and not source.is_dir():
        raise SourceMissingError(f"{source} is not a directory", next_step="mailboat demo DIRECTORY")
    storage = {} if config is None else _storage(config)
    # a person is there who sees the dashboard's address and can end the demo
    is_watched = session.output is Output.TABLE and is_in_foreground(sys.stdin) and sys.stdout.isatty()
    stays = is_watched if stay is None else stay
    seconds = (_WATCHED_SECONDS if stays else _SECONDS) if seconds is None else seconds
    path = session.home_path if session.is_home_given else session.home_path / "demo"
    if source is not None:
        _check_apart(source, path)
    with exit_at(signal.SIGTERM), ExitStack() as held:  # its processes would stay behind
        home = _new_home(path, storage, held)
        with translated_writes(home.path):
            folder = write_site(home.path / "site") if source is None else source
        outcome = _play(session, folder, home, DemoOptions(subscribers, seconds, storage, stays=stays))
    if not outcome.is_equal:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


def _check_apart(source: Path, home: Path) -> None:
    """Refuse a source that the demo would remove, and a home that it would publish. Raises: UsageError."""
    inner, outer = home.resolve(), source.resolve()
    step = f"mailboat demo {shlex.quote(str(source))} --home NEWDIR"
    if outer.is_relative_to(inner):
        raise UsageError(f"{source} is in {home}, where the demo keeps its own files", next_step=step)
    if inner.is_relative_to(outer) and inner.relative_to(outer).parts[0] not in KEPT_AT_TOP:
        raise UsageError(f"{home}, where the demo keeps its own files, is in {source}", next_step=step)


def _storage(file: Path) -> dict[str, Any]:
    """The sections `journal` and `blobs` of a configuration file. Raises: ConfigInvalidError, UsageError."""
    storage = encode_changes(parse_config(file))
    others = sorted(set(storage) - set(_STORAGE_SECTIONS))
    if others:
        raise UsageError(
            f"{file}: the demo sets {', '.join(others)} itself",
            next_step=f"keep only the sections {' and '.join(_STORAGE_SECTIONS)}",
        )
    return storage


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How many subscribers, over which time, the sections `journal` and `blobs`, and whether the agents stay."""

    subscribers: int
    seconds: float
    storage: dict[str, Any]
    stays: bool


def _new_home(path: Path, storage: dict[str, Any], held: ExitStack) -> Home:
    """An empty home, in place of an earlier demo's; `held` keeps other demos from it.

    Raises: UsageError if the folder or the journal is in use.
    """
    check_folder_place(path)
    with translated_writes(path):
        _clear(path, held)
    home = create_home(path, decode_config(storage))
    with initialise(home) as workspace:
        topic = workspace.topic(TopicRole.PACKAGE)
        bounds = workspace.journal.bounds(topic)
        if bounds.next_offset != bounds.earliest_offset:
            raise UsageError(
                f"the topic {topic} already has packages; the demo needs an empty one",
                next_step="set another journal.topic_prefix in the file",
            )
        return home


def _clear(path: Path, held: ExitStack) -> None:
    """Make the folder, or remove what an earlier demo left in it, but for the mark: what Ctrl-C leaves is a demo's."""
    mark = path / MARK
    if not _is_made_by_demo(mark):
        if path.is_dir() and any(path.iterdir()):
            raise UsageError(f"{path} is not empty, and not an earlier demo", next_step="mailboat demo --home NEWDIR")
        path.mkdir(parents=True, exist_ok=True)
        mark.write_bytes(MADE)
    held.enter_context(_locked(mark))
    for entry in [found for found in path.iterdir() if found != mark]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _is_made_by_demo(mark: Path) -> bool:
    if not mark.is_file():
        return False
    with mark.open("rb") as opened:
        return opened.read(len(MADE) + 1) == MADE


@contextmanager
def _locked(mark: Path) -> Iterator[None]:
    """Keep other demos from the folder. Raises: UsageError if one runs in it: its agents would lose their home."""
    with mark.open() as handle:
        if not try_lock(handle.fileno()):
            raise UsageError(
                f"another demo runs in {mark.parent}", next_step="end it first, or: mailboat demo --home NEWDIR"
            )
        yield


def _play(session: Session, source: Path, home: Home, options: DemoOptions) -> DemoOutcome:
    folder, skipped = copy_content(source, home.path / "source")
    with closing(open_source(str(folder))) as opened:
        found = survey(opened.walk(ROOT))
    expected = held_by(str(folder))
    if not found.nodes:
        raise UsageError(f"{source} holds nothing to publish", next_step="mailboat demo DIRECTORY")
    agents = _agents(home.path, options.subscribers)
    setting = DemoSetting(home.path, folder, _free_port(), options.storage)
    write_configurations(setting, agents)
    screen = screen_for(sys.stdout if session.output is Output.TABLE else sys.stderr)
    with closing(screen), HttpControl(f"http://127.0.0.1:{setting.port}") as control:
        for line in _opening_lines(source, found, skipped, options.subscribers, home.path):
            screen.say(line)
        screen.say(f"Watch it in a browser once author is up: {control.url}/")
        screen.say("")
        portions = cut(found, PACKAGES)
        plan = DemoPlan(
            home=home.path,
            portions=portions,
            mistake=max(found.top.children.values(), key=lambda branch: branch.weight).path
            if found.top.children
            else ROOT,
            agents=agents,
            pace_seconds=options.seconds / max(1, len(portions)),
            block_seconds=_WATCHED_BLOCK_SECONDS if options.stays else BLOCK_SECONDS,
            command=lambda name: agent_command(configuration_file(home.path, name)),
            control=control,
        )
        run = DemoRun(plan, screen, SystemClock())
        can_press = is_in_foreground(sys.stdin)
        with run.play() as state:
            held = {follower.name: held_by(follower.target) for follower in state.followers}
            is_embedded = not options.storage
            outcome = DemoOutcome(state, found, folder, home.path, control.url, expected, held, is_embedded)
            stays = options.stays and outcome.is_equal
            if stays:
                screen.close()
                if can_press:
                    # what was typed while the demo ran was not meant for it
                    termios.tcflush(sys.stdin, termios.TCIFLUSH)
                session.show(outcome_report(outcome, until="Enter or Ctrl-C" if can_press else "Ctrl-C"))
                with suppress(KeyboardInterrupt):
                    run.stay(is_enter_pressed if can_press else lambda: False)
        if stays:
            for line in ["All agents have ended.", "", *next_lines(outcome)]:
                screen.say(line)
    if not stays:
        session.show(outcome_report(outcome))
    return outcome


def is_enter_pressed() -> bool:
    """Whether a line came from the terminal, or the terminal is gone."""
    if not select.select([sys.stdin], [], [], 0)[0]:
        return False
    with suppress(OSError):
        sys.stdin.readline()
    return True


def _free_port() -> int:
    """Return a free port of this machine: the API's address must be known before and after the run."""
    first = os.getpid() * _OF_A_PROCESS % len(_PORTS)
    ports: Iterable[int] = itertools.chain(_PORTS[first:], _PORTS[:first])
    for port in ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise UsageError(f"all ports from {_PORTS.start} to {_PORTS.stop - 1} are in use")


def _agents(home: Path, subscribers: int) -> list[DemoProcess]:
    targets = home / "targets"
    targets.mkdir()
    kinds = itertools.cycle(KINDS)

    def follower(name: str) -> SubscriberProgress:
        kind = next(kinds)
        return SubscriberProgress(name, f"{kind}:{(targets / name).absolute()}{'.db' if kind == 'sqlite' else ''}")

    groups = [
        DemoProcess(name, [follower(name) for name in names], is_late=name == LATE)
        for name, names in processes_of(subscribers)
    ]
    return [DemoProcess(AUTHOR), *groups]


def _opening_lines(source: Path, found: Survey, skipped: SkippedEntries, subscribers: int, home: Path) -> list[str]:
    size = f"{count_text(found.files, 'file')}, {bytes_text(found.content_bytes)}"
    lines = [f"Publishing {source} ({size})", f"to {count_text(subscribers, 'subscriber')} through {home}"]
    if subscribers > 1:
        lines.append(f"golden checks each package first; up to {MEMBERS} of the others share a process")
    lines.append("")
    if skipped.count:
        lines.append(f"  {count_text(skipped.count, 'entry')} left out that content can't hold, such as:")
        lines += [*(f"    {example}" for example in skipped.examples), ""]
    return lines

"""`mailboat demo`: sets the stage, plays, compares, and says what to try next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import mailboat
from mailboat.cli.declaring import command
from mailboat.cli.demo.portions import binary_bytes
from mailboat.cli.rendering import PIPE_WIDTH, Column, Output, Report, Table, bytes_text, count_text, seconds_text
from mailboat.cli.session import Session
from mailboat.errors import SourceMissingError, UsageError
from mailboat.model.paths import ROOT

if TYPE_CHECKING:
    from mailboat.agent.home import Home
    from mailboat.cli.demo.board import Actor, Board
    from mailboat.cli.demo.portions import Survey
    from mailboat.cli.demo.screen import Screen
    from mailboat.content.port import Source

PACKAGES: Final = 40
KINDS: Final = ("sqlite", "files", "generations")
MARK: Final = "demo"
DIFFERENT_EXIT_CODE: Final = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


@command
def demo(
    session: Session,
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="Any directory; examples/site when left out.")
    ] = None,
    subscribers: Annotated[int, typer.Option("--subscribers", min=1, max=100, help="How many subscribers.")] = 3,
    seconds: Annotated[
        float,
        typer.Option("--seconds", min=0, help="Publish slowly, over this time, so that there is something to see."),
    ] = 6.0,
) -> None:
    """Publish a directory to subscribers, kill one half way, let one join late, and prove that all have the same."""
    folder = _source_folder(source)
    home = _new_home(session)
    outcome = _play(session, folder, home, Cast(subscribers, seconds))
    session.show(_report(outcome))
    if not outcome.is_equal:
        raise typer.Exit(DIFFERENT_EXIT_CODE)


@dataclass(frozen=True, slots=True)
class Cast:
    """How many play, and how slowly."""

    subscribers: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Held:
    """What a source or target holds."""

    digest: bytes
    content_bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out.

    Attributes:
        board: How everybody ended.
        found: What the source holds.
        folder: What was published.
        home: The demo's home.
        expected: What the source held in the end.
        held: What each subscriber's target holds, by name.
    """

    board: Board
    found: Survey
    folder: Path
    home: Path
    expected: Held
    held: dict[str, Held]

    @property
    def is_equal(self) -> bool:
        """Whether all targets equal the source."""
        return not self.different

    @property
    def different(self) -> list[str]:
        """Whose target does not equal the source."""
        return [name for name, one in self.held.items() if one.digest != self.expected.digest]


def _source_folder(given: Path | None) -> Path:
    """Raises: SourceMissingError."""
    ours = Path("examples/site")
    candidates = [ours, Path(mailboat.__file__).parents[2] / ours] if given is None else [given]
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise SourceMissingError(
        f"{candidates[0]} is no directory", next_step="mailboat demo DIRECTORY, or make demo SOURCE=DIRECTORY"
    )


def _new_home(session: Session) -> Home:
    """An empty home, in place of an earlier demo's. Raises: UsageError when something else is there."""
    from mailboat.agent.composition import initialise
    from mailboat.agent.home import create_home
    from mailboat.config.document import Config, LimitsConfig

    path = session.home_path if session.is_home_given else session.home_path / "demo"
    if (path / MARK).is_file():
        shutil.rmtree(path)
    elif path.is_dir() and any(path.iterdir()):
        raise UsageError(f"{path} is not empty, and not an earlier demo", next_step="mailboat demo --home NEWDIR")
    path.mkdir(parents=True, exist_ok=True)
    (path / MARK).write_text("made by `mailboat demo`, which removes it when it runs again\n")
    # names that differ in case only are no danger here: this very machine holds them in the source
    home = create_home(path, replace(Config(), limits=LimitsConfig(are_collisions_refused=False)))
    initialise(home)
    return home


def _play(session: Session, source: Path, home: Home, cast: Cast) -> Outcome:
    from mailboat.agent.composition import Workspace
    from mailboat.agent.locations import open_source
    from mailboat.cli.demo.portions import cut, survey
    from mailboat.cli.demo.screen import screen_for
    from mailboat.cli.demo.stage import Script, Stage
    from mailboat.cli.demo.staging import stage

    folder, odd = stage(source, home.path / "source")
    screen = screen_for(sys.stdout if session.output is Output.TABLE else sys.stderr)
    with closing(screen), Workspace(home) as workspace, closing(open_source(str(folder))) as opened:
        found = survey(opened.walk(ROOT))
        if not found.nodes:
            raise UsageError(f"{source} holds nothing to publish", next_step="mailboat demo DIRECTORY")
        _announce(screen, source, found, cast.subscribers, home.path)
        if odd.count:
            screen.say(f"  {count_text(odd.count, 'entry')} left out that content can't hold, such as:")
            for example in odd.examples:
                screen.say(f"    {example}")
        actors = _actors(home.path, cast.subscribers)
        board = Stage(Script(workspace, opened, cut(found, PACKAGES), actors, cast.seconds), screen).play()
        expected = _held(opened)
    held = {}
    for actor in actors:
        with closing(open_source(actor.target)) as target:
            held[actor.name] = _held(target)
    return Outcome(board, found, folder, home.path, expected, held)


def _held(source: Source) -> Held:
    """Digest and size of a tree, read from the first byte to the last."""
    from mailboat.content.digest import TreeHash, node_digest

    total, count = TreeHash(), 0
    for node in source.walk(ROOT):
        total.add(node.path, node_digest(node))
        count += binary_bytes(node)
    return Held(total.digest(), count)


def _announce(screen: Screen, source: Path, found: Survey, subscribers: int, home: Path) -> None:
    size = f"{count_text(found.files, 'file')}, {bytes_text(found.content_bytes)}"
    screen.say(f"Publishing {source} ({size}) to {count_text(subscribers, 'subscriber')} through {home}")


def _actors(home: Path, subscribers: int) -> list[Actor]:
    from mailboat.cli.demo.board import Actor

    targets = home / "targets"
    targets.mkdir()
    names = [f"edge-{number + 1}" for number in range(subscribers)]
    return [
        Actor(name, f"{kind}:{targets / name}{'.db' if kind == 'sqlite' else ''}")
        for name, kind in zip(names, (KINDS * subscribers)[:subscribers], strict=True)
    ]


def _report(outcome: Outcome) -> Report:
    rows = [_row(outcome, actor) for actor in outcome.board.actors]
    document = {
        "source": str(outcome.folder),
        "files": outcome.found.files,
        "content_bytes": outcome.found.content_bytes,
        "packages": outcome.board.total,
        "seconds": round(outcome.board.seconds, 1),
        "digest": outcome.expected.digest.hex(),
        "is_equal": outcome.is_equal,
        "subscribers": rows,
        "next": [words for words, _ in _next_commands(outcome)],
    }
    return Report(document, [actor.name for actor in outcome.board.actors], lambda: _blocks(outcome, rows))


def _row(outcome: Outcome, actor: Actor) -> dict[str, Any]:
    held = outcome.held[actor.name]
    return {
        "name": actor.name,
        "target": actor.target,
        "state": "current" if actor.position >= outcome.board.total else "behind",
        "position": actor.position,
        "lag": outcome.board.total - actor.position,
        "packages": actor.position,
        "restarts": actor.restarts,
        "bytes": held.content_bytes,
        "digest": held.digest.hex(),
        "is_equal": held.digest == outcome.expected.digest,
    }


def _blocks(outcome: Outcome, rows: Sequence[dict[str, Any]]) -> list[Table | str]:
    titles = ("SUBSCRIBER", "STATE", "PACKAGES", "BYTES", "LAG", "RESTARTS", "CONTENT")
    columns = [Column(title, is_number=title in titles[2:6], can_fold=title == titles[-1]) for title in titles]
    cells = [
        [
            row["name"],
            row["state"],
            str(row["packages"]),
            bytes_text(row["bytes"]),
            str(row["lag"]),
            str(row["restarts"]),
            _content_text(row),
        ]
        for row in rows
    ]
    return ["", Table(columns, cells), "", *_closing_lines(outcome)]


def _content_text(row: dict[str, Any]) -> str:
    return f"{row['digest'][:8]}  {'equals the source' if row['is_equal'] else 'DIFFERS FROM THE SOURCE'}"


def _closing_lines(outcome: Outcome) -> list[str]:
    if not outcome.is_equal:
        names = outcome.different
        target = next(one.target for one in outcome.board.actors if one.name == names[0])
        diff = shlex.join([_program(), "content", "diff", str(outcome.folder), target])
        return [
            f"{', '.join(names)}: not what was published. If the source did not change meanwhile, this is a defect.",
            diff,
        ]
    commands = _next_commands(outcome)
    width = max(len(words) for words, _ in commands)
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH
    needed = width + 5 + max(len(what) for _, what in commands)
    took = f"{count_text(outcome.board.total, 'package')} in {seconds_text(outcome.board.seconds)}"
    lines = [f"Nothing lost, nothing twice: {took}. Next:"]
    if needed <= room:
        return lines + [f"  {one:<{width}}   {what}" for one, what in commands]
    return lines + [line for one, what in commands for line in (f"  # {what}", f"  {one}")]


def _next_commands(outcome: Outcome) -> list[tuple[str, str]]:
    """Commands that work as they are printed, in this order."""
    start = [_program(), "--home", str(outcome.home)]
    first = min(outcome.found.top.children.values(), key=lambda one: one.weight).path
    name = outcome.board.actors[0].name
    return [
        (shlex.join([*start, "publish", str(outcome.folder), first]), "publish something again"),
        (shlex.join([*start, "subscribe", name, "--until", "caught-up"]), "let a subscriber import it"),
        (shlex.join([*start, "status"]), "see who is where"),
    ]


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

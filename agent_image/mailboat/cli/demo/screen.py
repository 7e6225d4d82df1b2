"""How the demo shows itself: bars on a terminal, a line whenever something happens elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TextIO

from mailboat.cli.demo.board import Actor, Board
from mailboat.cli.rendering import bytes_text, printable

if TYPE_CHECKING:
    from rich.progress import TaskID

_FAR_BEHIND: Final = 4


class Screen(Protocol):
    """What shows the run."""

    def say(self, line: str) -> None:
        """Tell something that stays."""

    def update(self, board: Board) -> None:
        """Show where everybody is."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def screen_for(stream: TextIO) -> Screen:
    """Bars for a terminal, lines for everything else."""
    return BarScreen(stream) if stream.isatty() else LineScreen(stream)


class LineScreen:
    """For pipes and logs: what happened to somebody, and every quarter of the way."""

    def __init__(self, stream: TextIO) -> None:
        """Nothing shown yet."""
        self._stream = stream
        self._shown: dict[str, tuple[object, ...]] = {}

    def say(self, line: str) -> None:
        """See `Screen`."""
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()

    def update(self, board: Board) -> None:
        """See `Screen`."""
        self._line("author", (board.published * 4 // board.total,), author_text(board))
        for actor in board.actors:
            if actor.is_started:
                news = (actor.position * 4 // board.total, actor.note, actor.error)
                self._line(actor.name, news, actor_text(actor, board))

    def close(self) -> None:
        """See `Screen`."""

    def _line(self, name: str, news: tuple[object, ...], text: str) -> None:
        if self._shown.get(name) != news:
            self._shown[name] = news
            self.say(f"  {name:<8} {text}")


class BarScreen:
    """For terminals."""

    def __init__(self, stream: TextIO) -> None:
        """Take over the lower lines of the terminal."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=stream, highlight=False)
        width = 12 if console.width < 90 else 30
        self._progress = Progress(
            TextColumn("  {task.description}", markup=False),
            BarColumn(bar_width=width),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            refresh_per_second=15,
        )
        self._tasks: dict[str, TaskID] = {}
        self._progress.start()

    def say(self, line: str) -> None:
        """See `Screen`."""
        from rich.text import Text

        self._progress.console.print(Text(printable(line)), soft_wrap=True)

    def update(self, board: Board) -> None:
        """See `Screen`."""
        self._bar("author", board.published, board.total, author_text(board))
        for actor in board.actors:
            self._bar(actor.name, actor.position, board.total, actor_text(actor, board))

    def close(self) -> None:
        """See `Screen`."""
        self._progress.stop()

    def _bar(self, name: str, done: int, total: int, text: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(f"{name:<8}", total=total, text="")
        self._progress.update(self._tasks[name], completed=done, text=text)


def author_text(board: Board) -> str:
    """What the publisher has done."""
    return f"{board.published}/{board.total} packages  {bytes_text(board.published_bytes)}"


def actor_text(actor: Actor, board: Board) -> str:
    """Where a subscriber is, and what happened to it."""
    if not actor.is_started:
        return "joins later"
    behind = board.published - actor.position
    state = "current" if behind <= 0 else "catching up" if behind >= _FAR_BEHIND else ""
    state = state if actor.is_running else ""
    parts = [f"{actor.position}/{board.total}", *(text for text in (actor.note, state, actor.error) if text)]
    return "  ".join(parts)

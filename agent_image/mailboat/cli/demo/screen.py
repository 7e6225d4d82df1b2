"""How the demo shows itself: bars on a terminal, a line whenever something happens elsewhere.

Twenty bars must fit a terminal of 24 lines and 80 columns, so a line shows one process, with a short bar for each of
its subscribers; where a process holds very many, a column of growing height for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mailboat.cli.demo.demo_state import DemoProcess, DemoState, MistakenDelete
from mailboat.cli.output import bytes_text
from mailboat.printable import printable

NAME_WIDTH: Final = 8
BARS_WIDTH: Final = 35
_BAR: Final = " ▏▎▍▌▋▊▉█"
_COLUMN: Final = " ▁▂▃▄▅▆▇█"
_SHORTEST_BAR: Final = 2


class Screen(Protocol):
    """What shows the run."""

    def say(self, line: str) -> None:
        """Print a line that stays."""

    def update(self, state: DemoState) -> None:
        """Show all positions."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def screen_for(stream: TextIO) -> Screen:
    """Bars for a terminal, lines for everything else."""
    return BarScreen(stream) if stream.isatty() else LineScreen(stream)


class LineScreen:
    """For pipes and logs: what happens, and where every process is at each quarter of the way."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown: dict[str, int] = {}

    def say(self, line: str) -> None:
        self._stream.write(f"{printable(line)}\n")
        self._stream.flush()

    def update(self, state: DemoState) -> None:
        for agent in state.agents:
            done = agent.slowest if agent.followers else state.appended
            quarter = done * 4 // state.total
            if agent.is_started and quarter > self._shown.get(agent.name, 0):
                self._shown[agent.name] = quarter
                self.say(f"{'':>7}  {agent.name:<{NAME_WIDTH}} {progress_text(agent, state)}")

    def close(self) -> None:
        """See `Screen`."""


class BarScreen:
    """For terminals."""

    def __init__(self, stream: TextIO) -> None:
        """Take over the lower lines of the terminal."""
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None

    def say(self, line: str) -> None:
        self._console.print(Text(printable(line)), soft_wrap=True)

    def update(self, state: DemoState) -> None:
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        lines = [line[: self._console.width - 1] for line in bar_lines(state)]
        self._live.update(Text("\n".join(["", *lines])), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def bar_lines(state: DemoState) -> Sequence[str]:
    """A line for each process: name, bars, figures."""
    return [
        f"  {agent.name:<{NAME_WIDTH}} {_bars(agent, state):<{BARS_WIDTH}}  {progress_text(agent, state)}".rstrip()
        for agent in state.agents
    ]


def _bars(agent: DemoProcess, state: DemoState) -> str:
    positions = [follower.position for follower in agent.followers] if agent.followers else [state.appended]
    width = (BARS_WIDTH + 1) // len(positions) - 1
    if width < _SHORTEST_BAR:
        return "".join(_COLUMN[_eighths(position, state.total, 1)] for position in positions)[:BARS_WIDTH]
    filled = [divmod(_eighths(position, state.total, width), 8) for position in positions]
    return " ".join(("█" * full + (_BAR[part] if part else "")).ljust(width, "·") for full, part in filled)


def _eighths(done: int, total: int, width: int) -> int:
    return min(done, total) * width * 8 // total


def progress_text(agent: DemoProcess, state: DemoState) -> str:
    """Where a process is: its slowest and fastest subscriber, and what is the matter."""
    if not agent.followers:
        return f"{state.appended}/{state.total} packages  {bytes_text(state.published_bytes)}"
    if not agent.is_started:
        return "joins later" if agent.is_late else "starts after author"
    low, high = agent.slowest, agent.fastest
    where = f"{low}/{state.total}" if low == high else f"{low}-{high}/{state.total}"
    return "  ".join([where, *_remarks(agent, state)])


def _remarks(agent: DemoProcess, state: DemoState) -> Sequence[str]:
    if not agent.is_running:
        return ["killed"]
    if not agent.is_ready:
        return ["starting"]
    if state.mistake is MistakenDelete.BLOCKING:
        errors = [follower.error for follower in agent.followers if follower.error]
        return ["BLOCKED"] if errors else ["waits for golden"]
    return ["current"] if agent.slowest >= state.appended else []

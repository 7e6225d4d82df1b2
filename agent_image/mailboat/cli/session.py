"""What every command is given: where the home or the agent is, how to print, and the way to the engine.

Independent of the command line's framework, so that a subscriber can start without it (`fast_path.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mailboat.cli.error_report import heed_unwritable
from mailboat.cli.output import Output, Report, show
from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import Settings
from mailboat.config.storage import Secret
from mailboat.errors import UsageError
from mailboat.frozen import Frozen
from mailboat.printable import printable

if TYPE_CHECKING:
    from mailboat.api.archive import Archive
    from mailboat.api.client import HttpControl
    from mailboat.api.control import Control
    from mailboat.cli.home_publisher import HomePublisher
    from mailboat.cli.transfer import TransferProgress
    from mailboat.composition.home import Home
    from mailboat.composition.workspace import Workspace
    from mailboat.content.watched_sources import Phases
    from mailboat.maintenance.blob_sweep import SweepWatch


_SHOWN_NAMES: Final = 20


class Session(Frozen):
    """One run of one command.

    Attributes:
        home_path: Where the home is.
        output: The form of the result.
        is_verbose: Whether errors come with their traces.
        is_home_given: Whether an option said where the home is, not the environment or the default.
        url: The agent to talk to; None works on the home.
        token: The bearer token for it.
    """

    home_path: Path
    output: Output = Output.TABLE
    is_verbose: bool = False
    is_home_given: bool = False
    url: str | None = None
    token: str | None = field(default=None, repr=False)

    def home(self) -> Home:
        return self.workspace().home  # which opens nothing before it is used

    def workspace(self, home: Home | None = None) -> Workspace:
        """The home, or the given one, whose journal and blobs open when used; to be used as a context manager."""
        from mailboat.composition.workspace import Workspace, open_home  # the engine is not imported for help

        return open_home(self.home_path) if home is None else Workspace(home)

    def publisher(
        self, place: str = "", transfer: TransferProgress | None = None, *, is_compared: bool = False
    ) -> HomePublisher:
        """What publishes from the home. Arguments are those of `HomePublisher`. Raises: HomeMissingError."""
        from mailboat.cli.home_publisher import HomePublisher

        return HomePublisher(self.home(), place, transfer, is_compared=is_compared, is_verbose=self.is_verbose)

    @contextmanager
    def control(self, workspace: Workspace | None = None) -> Iterator[Control]:
        """The verbs, answered by the agent at the URL, else by the home itself, which may be open."""
        if self.url is not None:
            with self.agent(self.url) as client:
                yield client
            return
        from mailboat.control.service import ControlService

        opening = self.workspace() if workspace is None else nullcontext(workspace)
        with opening as opened, closing(ControlService(opened)) as control:
            yield control

    @contextmanager
    def archive(
        self, home: Home | None = None, watch: SweepWatch | None = None, phases: Phases | None = None
    ) -> Iterator[Archive]:
        """The stored journal, blobs and snapshots of the agent at the URL, else of the home.

        Args:
            home: Replaces the home, where a configuration file was given.
            watch: Receives the progress of listing and sweeping blobs of a home.
            phases: Receives the progress of storing a snapshot of a home.
        """
        if self.url is not None:
            with self.agent(self.url) as client:
                yield client
            return
        from mailboat.control.journal_archive import JournalArchive

        with self.workspace(home) as workspace:
            yield JournalArchive(workspace, watch, phases)

    @contextmanager
    def agent(self, url: str) -> Iterator[HttpControl]:
        from mailboat.api.client import HttpControl

        with closing(HttpControl(url, self.token)) as client:
            yield client

    def default_publisher(self, given: str | None) -> str:
        """The publisher that a command publishes as."""
        if given is not None:
            return given
        return self.home().config.publisher.name if self.url is None else self._only_publisher()

    def shown_publisher(self, given: str | None) -> str:
        """The publisher whose queues and packages a command shows."""
        if given is not None:
            return given
        if self.url is not None:
            return self._only_publisher()
        home = self.home()
        names = {file.stem for file in home.publishers_path.glob("*.db")}
        names |= {publisher.name for publisher in home.config.agents.publishers}
        # of the configured one, where it is not among them, all queues would look empty
        configured = home.config.publisher.name
        is_named = configured != type(home.config.publisher)().name
        return configured if is_named or configured in names or not names else _only_of(sorted(names))

    def _only_publisher(self) -> str:
        with self.control() as control:
            known = control.status().publishers
        # others, without a state, are of other processes: the log names them
        own = [publisher.name for publisher in known if publisher.state is not None]
        names = own or [publisher.name for publisher in known]
        if not names:
            raise UsageError(f"the agent at {self.url} has no publisher", next_step="--publisher NAME")
        return _only_of(names)

    def show(self, report: Report) -> None:
        """Print the result in the form that was asked for."""
        show(report, self.output)

    def note(self, line: str) -> None:
        """Print a message to standard error, unless its reader is gone; programs read standard output only."""
        try:
            sys.stderr.write(printable(line) + "\n")
            sys.stderr.flush()
        except OSError as error:
            heed_unwritable(sys.stderr, error)


def _only_of(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    raise UsageError("which publisher is meant?", next_step=f"--publisher NAME, one of: {shown}")


class SharedOptions(NamedTuple):
    """The options that all commands share, as one place of the command line says them."""

    home: Path | None = None
    output: Output = Output.TABLE
    is_verbose: bool = False
    url: str | None = None
    token_file: Path | None = None


class Defaults:
    """The options before the command's name; those behind it win. One per process, made by `main`."""

    def __init__(self) -> None:
        self.given = SharedOptions()

    def take(self, given: SharedOptions) -> None:
        """These options were given before the command's name."""
        self.given = given

    def be_verbose(self) -> None:
        """An option behind the command's name asks for traces."""
        self.given = self.given._replace(is_verbose=True)

    @property
    def is_verbose(self) -> bool:
        """Whether errors come with their traces, as far as is known yet."""
        return self.given.is_verbose


def session_from(settings: Settings, defaults: Defaults, given: SharedOptions) -> Session:
    """Decide what holds: behind the command, before it, environment, default.

    Raises: UsageError for a home together with a URL, or a token that can't be read.
    """
    before = defaults.given
    home, url = given.home or before.home, given.url or before.url
    if home is not None and url is not None:
        raise UsageError("--home and --url can't both be given: a command works on a home, or talks to an agent")
    token_file = given.token_file or before.token_file
    return Session(
        home_path=home or settings.home,
        output=given.output,
        is_verbose=given.is_verbose or before.is_verbose or settings.is_verbose,
        is_home_given=home is not None,
        url=url or (settings.url if home is None else None),
        token=settings.token
        if token_file is None
        else read_secret(Secret(file=str(token_file)), "--token-file", Path()),
    )

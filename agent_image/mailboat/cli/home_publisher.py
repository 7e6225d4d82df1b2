"""The publisher of a home for one command: its source on this machine, its control service, and maintenance.

Imported only for a home: the engine behind it takes a third of the CPU time of a command that asks an agent.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from mailboat.api.control import Control
from mailboat.cli.error_report import print_warning
from mailboat.composition.home import Home
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace, known_publisher
from mailboat.content.port import Source
from mailboat.content.watched_sources import WatchedSource
from mailboat.control.publisher_service import LocalSource
from mailboat.control.service import ControlService
from mailboat.errors import MailboatError, UsageError
from mailboat.maintenance.blob_sweep import sweep
from mailboat.maintenance.schedule import maintain
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.builder import Unpublished, owned_of, unpublished_of
from mailboat.publisher.publisher import own_roots

if TYPE_CHECKING:
    from mailboat.cli.transfer import TransferProgress


class HomePublisher:
    """Publishes from a home, and from a source of this machine where content is read.

    Attributes:
        place: The source.
        unpublished: What a publication leaves out of the source's metadata, once the source was opened.
    """

    def __init__(
        self, home: Home, place: str, transfer: TransferProgress | None, *, is_compared: bool, is_verbose: bool
    ) -> None:
        """Open nothing yet.

        Args:
            home: The home.
            place: The source; empty for requests that read no content.
            transfer: Receives the progress of reading it.
            is_compared: Whether what changed in it is published.
            is_verbose: Whether errors of the maintenance come with their traces.
        """
        self.place = place
        self._home = home
        self._transfer = transfer
        self._is_compared = is_compared
        self._is_verbose = is_verbose
        self.unpublished: Unpublished | None = None

    def roots(self) -> tuple[NodePath, ...]:
        """The roots that the source declares. Raises: UsageError without roots; `/` is never assumed."""
        with closing(self._open()) as source:
            roots, uri = own_roots(source), source.uri
        if roots:
            return roots
        text = shlex.quote(uri)
        raise UsageError(
            f"no path is given, and all of {uri} would replace everything that subscribers have",
            next_step=f"to publish what changed: mailboat publish --source {text} --changed\n"
            f"some paths:              mailboat publish --source {text} /PATH\n"
            f"to replace everything:   mailboat publish --source {text} /",
        )

    def owned(self, request: DistributionRequest) -> WorkspaceFilter:
        """What the package of an ADD would own."""
        with closing(self._open()) as source:
            return owned_of(request, source)

    @contextmanager
    def control(self, name: str, *, is_new: bool = False, is_dry_run: bool = False) -> Iterator[Control]:
        """The verbs of the home, whose publisher of that name begins to exist with that; then maintenance.

        Args:
            name: The publisher.
            is_new: Whether it may be one that has not published from this home.
            is_dry_run: Leave maintenance to the next publication.

        Raises: AgentMissingError for an unknown publisher.
        """
        local = LocalSource(self._open_watched, self._transfer) if self.place else None
        with Workspace(self._home) as workspace:
            # Opened first: the control service takes the publishers whose databases it finds.
            workspace.publisher(known_publisher(workspace, name, is_new=is_new))
            with closing(ControlService(workspace, local=local)) as control:
                yield control
            if not is_dry_run:
                self._maintain(workspace)

    def _maintain(self, workspace: Workspace) -> None:
        """Run due maintenance. Its failure does not fail the publish, since users would then publish again."""
        try:
            maintain(workspace, sweep)
        except MailboatError as error:
            what = "the publication is complete; retention or sweep failed and is retried within the hour"
            print_warning(error, sys.stderr, what, is_verbose=self._is_verbose)

    def _open_watched(self) -> Source:
        opened, transfer = self._open(), self._transfer
        self.unpublished = unpublished_of(opened, self._home.config.publisher.package_type)
        if transfer is None or not transfer.is_shown:
            return opened
        # Changed nodes are read one by one. Of whole trees, those are ancestors and roots, which the walk counts.
        return WatchedSource(opened, transfer.advance, transfer.advance if self._is_compared else None)

    def _open(self) -> Source:
        return open_source(self.place, self._home.known_files_path)

"""The public Python API: `mailboat.open(…)` and what a program does with a home. `docs/python.md` has the examples.

Everything else in the package is private and may change in any release, except what `docs/python.md` names. A thin
facade: each method is one call of the use case that the command line and the agents run. Publications call the
publisher without the control service: one thread has no callers to be fair to, and lagging subscribers do not delay it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from mailboat.agent.subscriber_process import ExternalParts, SubscriberProcess, Subscription
from mailboat.api.job_views import JobDetailView
from mailboat.api.records import StatusView
from mailboat.composition.configured_roots import configured_roots
from mailboat.composition.environment import check_encoding
from mailboat.composition.home import create_home
from mailboat.composition.places import absolute_target
from mailboat.composition.source_openers import open_source
from mailboat.composition.workspace import Workspace, initialise, known_publisher, open_home
from mailboat.config.document import Config
from mailboat.content.port import Source, Target
from mailboat.control.service import ControlService
from mailboat.errors import MailboatError
from mailboat.jobs.handlers import JobContext, JobHandlers, encode_payload
from mailboat.maintenance.blob_sweep import sweep
from mailboat.maintenance.schedule import maintain
from mailboat.model.identifiers import parse_agent_name, parse_request_id
from mailboat.model.jobs import NewJob, parse_job_id, parse_topic
from mailboat.model.messages import Action
from mailboat.model.paths import parse_path
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.publisher.appender import Receipt
from mailboat.subscriber.figures import SubscriberStatistics
from mailboat.subscriber.subscriber import Until
from mailboat.subscriber.subscriber_settings import Processors

__all__ = ["JobContext", "JobHandlers", "Mailboat", "open_mailboat"]
Place = str | os.PathLike[str]
_LOG: Final = logging.getLogger(__name__)


class Mailboat:
    """An opened home. A context manager; use it from one thread.

    Methods raise the errors of `mailboat.errors`; `docs/errors.md` has the reaction to each.
    """

    def __init__(self, workspace: Workspace) -> None:
        """Use `mailboat.open` instead."""
        self._workspace = workspace

    def publish(
        self,
        source: Place | Source,
        paths: Iterable[str] = ("/",),
        *,
        deep: bool = True,
        request_id: str | None = None,
        publisher: str | None = None,
    ) -> Receipt:
        """Publish paths of a source as one package; the message is durable when it returns.

        Args:
            source: A folder, a FileVault checkout or zip, `sqlite:FILE`, or an object of your own.
            paths: What to publish.
            deep: With everything below the paths.
            request_id: Idempotency key: reusing it never publishes twice.
            publisher: The publisher's name. Default: the configured one.

        Raises: AgentMissingError: the publisher is not known here.
        """
        name = known_publisher(self._workspace, publisher)
        named = None if request_id is None else parse_request_id(request_id)
        request = add_request(map(parse_path, paths), is_deep=deep, request_id=named)
        with self._source(source) as opened:
            receipt = self._workspace.publisher(name).publish(request, opened)
        self._maintain()
        return receipt

    def publish_changed(self, source: Place | Source) -> list[Receipt]:
        """Publish what changed in a source since its last `publish_changed`, deletes included; empty if nothing did."""
        with self._source(source) as opened:
            receipts = list(self._workspace.publisher().publish_changed(opened))
        self._maintain()
        return receipts

    def delete(self, paths: Iterable[str], *, request_id: str | None = None) -> Receipt:
        """Publish the deletion of paths, with everything below them."""
        named = None if request_id is None else parse_request_id(request_id)
        once = tuple(dict.fromkeys(map(parse_path, paths)))
        receipt = self._workspace.publisher().publish(DistributionRequest(Action.DELETE, once, request_id=named))
        self._maintain()
        return receipt

    def subscribe(
        self, name: str, target: str | Target, *, follow: Iterable[str] = (), processors: Processors | None = None
    ) -> SubscriberStatistics:
        """Import everything that the journal holds now into a target, each package exactly once, and return.

        Args:
            name: The subscriber's name. Its target keeps the position, so the next call goes on from there.
            target: `files:DIR`, `generations:DIR`, `sqlite:FILE`, or an open target of your own, which is closed.
            follow: Import only the packages of these publishers. Default: all.
            processors: Called before and after each package.

        Returns:
            Figures: `imported`, `failed`, `next_offset`, `log_next_offset`, …
        """
        home = self._workspace.home
        subscriber = parse_agent_name(name)
        subscription = Subscription(
            subscriber,
            absolute_target(target) if isinstance(target, str) else target.uri,
            tuple(map(parse_agent_name, follow)),
            configured_roots(home.config, subscriber),
            max_retries=home.config.subscriber.max_retries,
        )
        parts = ExternalParts(None if isinstance(target, str) else target, processors)
        process = SubscriberProcess(self._workspace, subscription, lambda _: None, parts=parts)
        with closing(process):
            process.claim()
            return process.run(Until.CAUGHT_UP)

    def add_job(
        self,
        topic: str,
        data: object = None,
        *,
        key: str = "",
        delay: float = 0.0,
        request_id: str = "",
        keep: bool = False,
    ) -> str:
        """Add a job for workers; it is durable when this returns. Returns its id.

        Args:
            topic: Chooses the queue and the handler, such as `purge.cdn`.
            data: The payload: a dataclass or a value with a JSON form; bytes are kept as they are.
            key: Order, fairness and merging are by key.
            delay: Start after so many seconds.
            request_id: Idempotency key: reusing it never adds a second job.
            keep: Keep the job in the history when it succeeded.
        """
        delay_ms = int(delay * 1000)
        payload = encode_payload(data)
        new = NewJob(parse_topic(topic), payload, key, delay_ms=delay_ms, request_id=request_id, keep=keep)
        with closing(ControlService(self._workspace)) as service:
            return service.jobs.add([new])[0].job

    def job(self, job: str) -> JobDetailView:
        """A job with its state, progress and payload. Raises: JobMissingError."""
        with closing(ControlService(self._workspace)) as service:
            return service.jobs.show(parse_job_id(job))

    def status(self) -> StatusView:
        """Journal, publishers and subscribers with position and lag, as `mailboat status` shows them."""
        with closing(ControlService(self._workspace)) as service:
            return service.status()

    def close(self) -> None:
        """Close journal and blobs."""
        self._workspace.__exit__(None, None, None)

    def _maintain(self) -> None:
        """Run due maintenance, as `mailboat publish` does: no other process may ever use the home."""
        try:
            maintain(self._workspace, sweep)
        except MailboatError as error:
            # not raised: the message is durable, and the caller would publish it again
            _LOG.warning("retention or sweep failed and is retried within the hour: %s", error)

    @contextmanager
    def _source(self, source: Place | Source) -> Iterator[Source]:
        """The source: the caller's own, left open, or one opened at a place, as the command line opens it."""
        if isinstance(source, str | os.PathLike):
            with closing(open_source(os.fspath(source), self._workspace.home.known_files_path)) as opened:
                yield opened
        else:
            yield source

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._workspace.__exit__(kind, error, trace)


def open_mailboat(path: Place, *, create: bool = False) -> Mailboat:
    """Open a home.

    Args:
        path: Its folder, as for `mailboat --home`.
        create: Create it if it does not exist, as `mailboat init` does.

    Raises: HomeMissingError, ConfigInvalidError; UsageError in a locale that is not UTF-8.
    """
    check_encoding(sys.getfilesystemencoding())
    folder = Path(path)
    if create and not (folder.is_dir() and any(folder.iterdir())):
        return Mailboat(initialise(create_home(folder, Config())))
    return Mailboat(open_home(folder))

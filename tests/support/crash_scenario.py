"""What the processes of the crash tests do: publish a day's requests, or import them, until they die or are done.

Each function is the whole of a child process. It is given a folder and a failpoint, and finds there what an earlier
process has left. Doing everything again after a crash is what a caller would do: the same requests, the same ids.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mailboat.config.document import Transfer
from mailboat.content.sources.folder import FolderSource
from mailboat.failpoints import Failpoint, Failpoints, NoFailpoints
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.job_rules import JobRule
from mailboat.model.messages import Action, CommandMessage, PackageMessage, RedriveMessage
from mailboat.model.paths import ROOT, NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.subscriber.commands import SubscriberSuspendedError
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.subscriber.subscriber import Until
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat.wire.messages import encode_message
from support.crashes import KillingFailpoints
from support.engines import (
    AUTHOR,
    COMMANDS,
    EDGE,
    PACKAGES,
    SLING_ID,
    Engine,
    EngineParts,
    StopWhen,
    watched_subscriber,
    write_site,
)

POISON: Final = RequestId("poison")
CLEARED: Final = Offset(0)
"""The package that a command drops; `all` brings its content later."""
_MISSING_BLOB: Final = f"sha256:{'00' * 32}:5"
_FIRST: Final[dict[str, str | bytes]] = {
    "index.html": "<h1>Home</h1>",
    "news/a.html": "a" * 500,
    "news/b.html": "b" * 500,
    "img/large.bin": bytes(range(256)) * 400,
    **{f"heavy/{number:02}.bin": bytes([number]) * 60_000 for number in range(40)},
}
_CHANGED: Final[dict[str, str | bytes]] = {
    "index.html": "<h1>New</h1>",
    "late/page.html": "late",
    "img/large.bin": b"\x07" * 100_000,
}


def prepare(folder: Path) -> None:
    """Make the source and the home."""
    write_site(folder / "site", _FIRST)
    Engine(folder / "home").close()


def publish(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Publish everything that is to be published; at the n-th time that `failpoint` is reached, die."""
    parts = EngineParts(failpoints=_failpoints(failpoint, count))
    with Engine(Path(folder) / "home", parts) as engine:
        publisher = engine.publisher(engine.publishing_with(max_change_nodes=2))
        source = FolderSource(Path(folder) / "site")
        for request in _requests():
            publisher.publish(request, source if request.action is Action.ADD else None)
        list(publisher.publish_changed(source, [NodePath("/img"), NodePath("/news")]))
        _append_poison(engine)
        cut = engine.publishing_with(transfer=Transfer.CHUNKS, piece_bytes=100_000, append_bytes=300_000)
        in_pieces = engine.publisher(cut)
        in_pieces.publish(add_request([NodePath("/heavy")], request_id=RequestId("in-pieces")), source)
        source = write_site(Path(folder) / "site", _CHANGED)
        (Path(folder) / "site/news/a.html").unlink(missing_ok=True)
        for _ in publisher.publish_changed(source):
            pass


def subscribe(folder: str, kind: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Import everything that is there, and do as commanded; at the n-th time that `failpoint` is reached, die."""
    parts = EngineParts(failpoints=_failpoints(failpoint, count))
    with Engine(Path(folder) / "home", parts) as engine:
        target = engine.target(kind)
        settings = engine.with_settings(
            max_batch_records=3, command_topic=COMMANDS, job_rules=(JobRule("/**", "purge.cdn"),)
        )
        engine.subscriber(target, settings).prepare()
        _send_once(engine, 1, CommandMessage(SLING_ID, EDGE, CLEARED, AUTHOR, "clear"))
        engine.subscriber(target, settings).run(Until.CAUGHT_UP)
        (given_up,) = target.ledger.given_up()
        _send_once(engine, 2, RedriveMessage(SLING_ID, EDGE, given_up.offset, AUTHOR, "redrive"))
        engine.subscriber(target, settings).run(Until.CAUGHT_UP)
        target.close()


def import_unless_suspended(folder: str, failpoint: Failpoint | None = None, count: int = 1) -> None:
    """Take commands, and import what is there unless imports are suspended; at the n-th `failpoint`, die."""
    with Engine(Path(folder), EngineParts(failpoints=_failpoints(failpoint, count))) as engine:
        target = engine.target("sqlite")
        subscriber = engine.subscriber(target, engine.with_settings(command_topic=COMMANDS))
        with suppress(SubscriberSuspendedError):
            subscriber.run(Until.CAUGHT_UP)
        target.close()


def _send_once(engine: Engine, number: int, command: CommandMessage | RedriveMessage) -> None:
    """Send the n-th command, if an earlier process did not."""
    if len(engine.records(COMMANDS)) < number:
        engine.send(COMMANDS, command)


def import_without_room(home: str, kind: str) -> None:
    """A child in which no file can grow beyond 200 kB: it must wait, not give up, and stop when it is told."""
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, most))
    try:
        _wait_for_room(home, kind)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # what measures the coverage has files to write, too


def _wait_for_room(home: str, kind: str) -> None:
    with Engine(Path(home)) as engine:
        target = engine.target(kind)
        observer = StopWhen(lambda statistics: statistics.phase is SubscriberPhase.WAITING)
        statistics = watched_subscriber(engine, target, observer).run()
        codes = {item.cause.code for item in observer.seen if item.phase is SubscriberPhase.WAITING and item.cause}
        if statistics.failed or not codes or not codes <= {"StorageFull", "StorageFailed", "Retryable"}:
            raise AssertionError(f"{statistics.failed} failed, waiting for {codes}")


def publish_the_same(home: str, site: str, barrier: threading.Barrier) -> None:
    """A child that publishes the request `same` when all are ready."""
    with Engine(Path(home)) as engine:
        publisher, source = engine.publisher(), FolderSource(Path(site))
        barrier.wait(PATIENCE_SECONDS)
        publisher.publish(add_request([ROOT], request_id=RequestId("same")), source)


def publish_changes(home: str, site: str, barrier: threading.Barrier) -> None:
    """A child that publishes what changed when all are ready."""
    with Engine(Path(home)) as engine:
        publisher, source = engine.publisher(), FolderSource(Path(site))
        barrier.wait(PATIENCE_SECONDS)
        for _ in publisher.publish_changed(source):
            pass


def _failpoints(failpoint: Failpoint | None, count: int) -> Failpoints:
    return NoFailpoints() if failpoint is None else KillingFailpoints(failpoint, count)


def _requests() -> Sequence[DistributionRequest]:
    return [
        DistributionRequest(
            Action.ADD, (NodePath("/index.html"), NodePath("/img")), frozenset({NodePath("/img")}), RequestId("first")
        ),
        DistributionRequest(Action.ADD, (NodePath("/heavy"),), frozenset({NodePath("/heavy")}), RequestId("heavy")),
        DistributionRequest(Action.TEST, request_id=RequestId("ping")),
        DistributionRequest(Action.ADD, (NodePath("/news"),), frozenset({NodePath("/news")}), RequestId("news")),
        DistributionRequest(Action.DELETE, (NodePath("/heavy/03.bin"),), request_id=RequestId("delete")),
        DistributionRequest(Action.ADD, (ROOT,), frozenset({ROOT}), RequestId("all")),
    ]


def _append_poison(engine: Engine) -> None:
    """A package whose blob no one has stored; appended once."""
    if any(b"poison" in record.value for record in engine.records()):
        return
    message = PackageMessage(
        SLING_ID,
        PackageId("dstrpck-0-poison"),
        Action.ADD,
        "tree",
        AUTHOR,
        payload_ref=_MISSING_BLOB,
        package_length_bytes=5,
        paths=(NodePath("/poisoned"),),
        request_id=POISON,
    )
    headers, value = encode_message(message)
    engine.journal.append(PACKAGES, [NewRecord(value, headers)])

"""A whole distribution in one process under one seed: random requests, random faults and crashes, and an invariant.

After every step the content of the target must be the replay of the log up to the stored position, without what stands
in the error queue. Journal, blobs and target live in memory and outlive crashes; the publisher's state is a real file.
One seed is one run: a seed that fails is a bug to keep.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from mailboat.blobs.memory import MemoryBlobStore
from mailboat.config.document import LimitsConfig
from mailboat.errors import MailboatError, RetryableError
from mailboat.journal.memory import MemoryJournal
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, PackageId, RequestId
from mailboat.model.messages import Action, PackageMessage, PackageStatus
from mailboat.model.nodes import Binary, file_node, folder_node
from mailboat.model.paths import ROOT, NodePath, ancestors_of, is_within
from mailboat.model.requests import DistributionRequest
from mailboat.packages.tree import TreeCodec
from mailboat.publisher.publisher_settings import PublisherSettings
from mailboat.subscriber.subscriber import Until
from mailboat.testing.clocks import SkippingClock
from mailboat.testing.memory_content import MemorySource, MemoryStore, MemoryTarget
from mailboat.wire.headers import PACKAGE_HEADERS
from mailboat.wire.messages import encode_message
from mailboat.wire.package_messages import decode_package
from support.crashes import CrashError, RaisingFailpoints
from support.engines import AUTHOR, PACKAGES, SLING_ID, Engine, EngineParts

_PATHS: Final = tuple(NodePath(f"/{top}/{name}") for top in "ab" for name in ("x", "y", "z"))
_STRANGER: Final = AgentName("stranger")
_MISSING: Final = f"sha256:{'11' * 32}:3"


class Simulation:
    """One run."""

    def __init__(self, seed: int, folder: Path) -> None:
        """Everything random comes of `seed`."""
        self.chance = random.Random(seed)  # one seed, one run
        self.clock = SkippingClock()
        self.failpoints = RaisingFailpoints(self.chance, rate=self.chance.choice([0.0, 0.02, 0.1]))
        self.journal = MemoryJournal(self.clock)
        self.blobs = MemoryBlobStore(self.clock)
        self.store = MemoryStore()
        self.source = MemorySource([])
        self.requested: list[RequestId] = []
        self._requests: dict[RequestId, DistributionRequest] = {}
        self._folder = folder
        self._engine = self._start()

    def run(self, steps: int = 14) -> None:
        """Do random things, checking after each; then let everything come to rest and check what must hold then."""
        for _ in range(steps):
            self.chance.choice([self._publish, self._publish, self._publish_changed, self._import, self._disturb])()
            self.check_content()
        self.failpoints.calm()
        for request_id in list(self.requested):
            self._repeat(request_id)
        self._import()
        self.check_content()
        self.check_rest()

    # ---------------------------------------------------------------------------------------------------- invariants

    def check_content(self) -> None:
        """The content is the replay of the log up to the stored position, without what was given up."""
        position = self.store.position
        end = 0 if position is None else position.next_offset
        expected = MemoryTarget()
        for record in self._engine.records():
            if record.offset < end and record.offset not in self.store.errors:
                self._replay(expected, record.offset, record.value)
        if self.store.bodies != expected.store.bodies:
            raise AssertionError(f"the content at {end} is not the replay of the log")

    def check_rest(self) -> None:
        """At rest: everything is imported or given up, each confirmed once; each request has one message."""
        records = {record.offset: record.value for record in self._engine.records()}
        position = self.store.position
        if position is None or position.next_offset != len(records):
            raise AssertionError(f"the subscriber rests at {position}, the log ends at {len(records)}")
        messages = {offset: _decoded(value) for offset, value in records.items()}
        requests = Counter(
            message.request_id for message in messages.values() if message is not None and message.request_id
        )
        if set(requests.values()) > {1} or not set(self.requested) <= set(requests):
            raise AssertionError(f"requests and messages differ: {requests}, {self.requested}")
        wanted = {
            offset: 1
            for offset, one in messages.items()
            if one is not None and one.pub_agent_name == AUTHOR and one.action is not Action.TEST
        }
        if self.store.pending or dict(Counter(self._settled())) != wanted:
            raise AssertionError(f"confirmations differ: {Counter(self._settled())}, wanted {wanted}")

    def _settled(self) -> list[Offset]:
        """Offsets of confirmations, without the failure of what was re-driven with success."""
        statuses = self._engine.statuses()
        imported = {status.offset for status in statuses if status.status is PackageStatus.IMPORTED}
        return [
            status.offset
            for status in statuses
            if status.status is PackageStatus.IMPORTED or status.offset not in imported
        ]

    def _replay(self, target: MemoryTarget, offset: Offset, value: bytes) -> None:
        message = _decoded(value)
        if message is None or message.pub_agent_name != AUTHOR or message.action in {Action.TEST, Action.INVALIDATE}:
            return
        with target.batch() as batch:
            if message.action is Action.DELETE:
                batch.remove(message.paths, offset)
            elif message.payload is not None:
                batch.apply(TreeCodec().read_bytes(message.payload, LimitsConfig(), self._open_blob), offset)
            batch.commit(self._engine.position(offset + 1))

    def _open_blob(self, digest: bytes) -> BinaryIO:
        known = self.blobs.stat(digest)
        if known is None:
            raise AssertionError("a message names a blob that is not stored")
        return self.blobs.open(digest, known.length_bytes)

    # --------------------------------------------------------------------------------------------------------- steps

    def _publish(self) -> None:
        path = self.chance.choice([*_PATHS, NodePath("/a"), NodePath("/b")])
        self._edit()
        request_id = RequestId(f"request-{len(self.requested)}")
        action = self.chance.choice([Action.ADD] * 4 + [Action.DELETE, Action.INVALIDATE, Action.TEST])
        if action is Action.ADD and self.source.node(path) is None:
            action = Action.DELETE
        is_deep = self.chance.random() < 0.7
        self._requests[request_id] = DistributionRequest(
            action, (path,), frozenset([path] if is_deep and action is Action.ADD else []), request_id
        )
        self.requested.append(request_id)
        self._repeat(request_id)

    def _repeat(self, request_id: RequestId) -> None:
        request = self._requests[request_id]
        if request.action is Action.ADD and any(self.source.node(path) is None for path in request.paths):
            for path in request.paths:
                self._put(path, b"again")
        source = self.source if request.action is Action.ADD else None
        self._surviving(lambda: self._engine.publisher(self._publishing()).publish(request, source))

    def _publish_changed(self) -> None:
        self._edit()
        if self.source.nodes:
            self._surviving(lambda: list(self._engine.publisher(self._publishing()).publish_changed(self.source)))

    def _import(self) -> None:
        settings = self._engine.with_settings(
            follow=frozenset({AUTHOR}),
            max_batch_records=self.chance.choice([1, 3, 100]),
            max_retries=2,
            first_pause_seconds=0.1,
            skipped_records=3,
        )
        if self.store.errors and self.chance.random() < 0.5:
            self.store.wanted.add(self.chance.choice(sorted(self.store.errors)))
        self._surviving(lambda: self._engine.subscriber(MemoryTarget(self.store), settings).run(Until.CAUGHT_UP))

    def _disturb(self) -> None:
        """Something that no publisher of ours would append."""
        stranger = PackageMessage(SLING_ID, PackageId("p"), Action.ADD, "tree", _STRANGER, payload=b"?", paths=(ROOT,))
        broken = stranger._replace(pub_agent_name=AUTHOR, package_digest=b"\x01" * 32, paths=(NodePath("/broken"),))
        absent = broken._replace(payload=None, payload_ref=_MISSING, package_digest=None)
        foreign = broken._replace(package_type="other")
        headers, value = encode_message(self.chance.choice([stranger, stranger, broken, absent, foreign]))
        garbage = self.chance.choice([NewRecord(b"\xff\xff", PACKAGE_HEADERS), NewRecord(b"", ())])
        record = NewRecord(value, headers) if self.chance.random() < 0.8 else garbage
        self.journal.append(PACKAGES, [record])

    # ------------------------------------------------------------------------------------------------------- helpers

    def _surviving(self, action: Callable[[], object]) -> None:
        """Do it again after each crash and each passing fault, as a supervisor and a careful caller do."""
        for _ in range(200):
            try:
                action()
            except CrashError:
                self._engine.close()
                self._engine = self._start()
            except RetryableError:
                continue
            else:
                return
        raise AssertionError("it never came to an end")

    def _start(self) -> Engine:
        parts = EngineParts(self.clock, self.failpoints, self.chance, synchronous="OFF")
        return Engine(self._folder, parts, journal=self.journal, blobs=self.blobs)

    def _publishing(self) -> PublisherSettings:
        return self._engine.publishing_with(max_change_nodes=3, inline_binary_bytes=100)

    def _edit(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            path = self.chance.choice(_PATHS)
            if self.chance.random() < 0.3:
                for gone in [node for node in self.source.nodes if is_within(node, path)]:
                    del self.source.nodes[gone]
            else:
                self._put(path, self.chance.randbytes(self.chance.choice([5, 300])))

    def _put(self, path: NodePath, data: bytes) -> None:
        for above in ancestors_of(path):
            self.source.nodes.setdefault(above, folder_node(above))
        self.source.nodes[path] = file_node(path, Binary(data))


def _decoded(value: bytes) -> PackageMessage | None:
    try:
        return decode_package(value)
    except MailboatError:
        return None

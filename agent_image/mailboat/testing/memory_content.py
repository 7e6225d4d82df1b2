"""A source and a target in memory: the ports of content with nothing behind them, for unit tests and simulated runs.

`MemoryStore` is the disk: it outlives the target that was opened on it, as a file outlives a process. A batch works on
a copy that replaces the store's content at the commit, so a batch that dies leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from mailboat.content.keys import key_of
from mailboat.content.port import (
    NOTHING_DONE,
    Attempt,
    GivenUp,
    OpenBuild,
    OpenCommand,
    PendingJob,
    PendingStatus,
    ReportStarts,
    RestoreRecord,
)
from mailboat.errors import TargetOwnedError, UsageError
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.filters import FilterSet, WorkspaceFilter
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import NewJob, Token
from mailboat.model.messages import AfterCall, CommandResult, CommandVerb, FailureCause, StatusMessage, Suspension
from mailboat.model.namespaces import NO_NAMESPACES, NamespaceTable, table_of
from mailboat.model.nodes import Node, NodeRecord, folder_node
from mailboat.model.paths import ROOT, NodePath, ancestors_of, is_within
from mailboat.model.positions import Position
from mailboat.wire.node_bodies import decode_node, encode_node


class MemorySource:
    """Nodes by path, to be read and changed."""

    def __init__(
        self, nodes: Sequence[Node] = (), uri: str = "memory:source", namespaces: NamespaceTable = NO_NAMESPACES
    ) -> None:
        """Hold these nodes, whose prefixes stand for the namespaces."""
        self.uri = uri
        self._namespaces = namespaces
        self.nodes = {node.path: node for node in nodes}

    def node(self, path: NodePath) -> Node | None:
        return self.nodes.get(path)

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        """See `Source.walk`; siblings come by name."""
        for found in sorted(self.nodes, key=key_of):
            if found == path or (is_deep and is_within(found, path)):
                yield self.nodes[found]

    def namespaces(self) -> NamespaceTable:
        return self._namespaces

    def close(self) -> None:
        """See `Source.close`."""


@dataclass
class MemoryStore:
    """What lasts: bodies by path, and the ledger."""

    bodies: dict[NodePath, bytes] = field(default_factory=dict)
    namespaces: set[tuple[str, str]] = field(default_factory=set)
    position: Position | None = None
    owner: AgentName | None = None
    attempt: Attempt | None = None
    pending: list[PendingStatus] = field(default_factory=list)
    last_sequence: int = 0
    errors: dict[Offset, GivenUp] = field(default_factory=dict)
    wanted: set[Offset] = field(default_factory=set)
    unfollowed: set[str] = field(default_factory=set)
    after_calls: dict[Offset, AfterCall] = field(default_factory=dict)
    jobs: list[PendingJob] = field(default_factory=list)
    last_job: int = 0
    commits: int = 0
    report_starts: ReportStarts = field(default_factory=dict)
    open_builds: Sequence[OpenBuild] = ()
    command_position: Position | None = None
    suspension: Suspension | None = None
    open_commands: dict[int, OpenCommand] = field(default_factory=dict)
    last_command: int = 0
    answers: dict[str, CommandResult] = field(default_factory=dict)
    marker: str | None = None
    restored: RestoreRecord | None = None
    done: dict[Offset, Token] = field(default_factory=dict)

    def send(self, message: StatusMessage | CommandResult) -> None:
        """Add a confirmation or an answer to those to send."""
        self.last_sequence += 1
        self.pending = [*self.pending, PendingStatus(self.last_sequence, message)]

    def add_job(self, job: NewJob) -> None:
        """Add a job to those to append."""
        self.last_job += 1
        self.jobs.append(PendingJob(self.last_job, job))

    def took_commands(self, position: Position, suspension: Suspension | None) -> None:
        """Store where the command topic was read to, and the suspension that holds from then on."""
        self.command_position, self.suspension = position, suspension

    def mark(self, marker: str) -> None:
        """Make it the target of a shared pool."""
        self.marker = marker

    def restore(self, record: RestoreRecord, position: Offset) -> None:
        """Forget the packages of the content that was replaced; see `Target.batch`."""
        self.restored = record
        self.errors, self.wanted, self.unfollowed, self.done, self.report_starts = {}, set(), set(), {}, {}
        opened = {sequence: one for sequence, one in self.open_commands.items() if one.command_id is not None}
        self.open_commands = {sequence: replace(one, is_void=True) for sequence, one in opened.items()}
        self.after_calls = {offset: call for offset, call in self.after_calls.items() if offset < position}

    def note_done(self, done: Mapping[Offset, Token], position: Offset) -> None:
        """Add packages that a pool is done with; forget those that the position covers."""
        known = {**self.done, **done}
        self.done = {offset: token for offset, token in known.items() if offset >= position}

    def note_command(self, command: OpenCommand, answer: CommandResult | None) -> None:
        """Store how far a command is."""
        self.open_commands[command.sequence] = command
        if answer is not None:
            del self.open_commands[command.sequence]
            if command.command_id is not None:
                self.answers[command.command_id] = answer
                self.send(answer)


class MemoryCommands:
    """See `CommandLedger`."""

    def __init__(self, store: MemoryStore) -> None:
        """Keep it in `store`."""
        self._store = store

    def position(self) -> Position | None:
        return self._store.command_position

    def suspension(self) -> Suspension | None:
        return self._store.suspension

    def take(
        self,
        opened: Sequence[OpenCommand],
        answers: Sequence[CommandResult],
        position: Position,
        suspension: Suspension | None = None,
    ) -> None:
        store = self._store
        for command in opened:
            store.last_command += 1
            store.open_commands[store.last_command] = replace(command, sequence=store.last_command)
            if command.verb is CommandVerb.REDRIVE and command.offset in store.errors:
                store.wanted.add(command.offset)
        for answer in answers:
            store.answers[answer.command_id] = answer
            store.send(answer)
        store.took_commands(position, suspension)

    def open_commands(self) -> Sequence[OpenCommand]:
        return list(self._store.open_commands.values())

    def answer_to(self, command_id: str) -> CommandResult | None:
        return self._store.answers.get(command_id)

    def settle(self, command: OpenCommand, answer: CommandResult) -> None:
        self._store.note_command(command, answer)


class MemoryHookCalls:
    """See `HookCallLedger`."""

    def __init__(self, store: MemoryStore) -> None:
        """Keep it in `store`."""
        self._store = store

    def calls(self, limit: int, *, is_set_aside: bool = False) -> Sequence[AfterCall]:
        calls = [self._store.after_calls[offset] for offset in sorted(self._store.after_calls)]
        return [call for call in calls if call.is_set_aside is is_set_aside][:limit]

    def counts(self) -> tuple[int, int]:
        set_aside = sum(call.is_set_aside for call in self._store.after_calls.values())
        return len(self._store.after_calls) - set_aside, set_aside

    def store(self, call: AfterCall) -> None:
        self._store.after_calls[call.offset] = call

    def forget(self, offsets: Iterable[Offset]) -> None:
        for offset in offsets:
            self._store.after_calls.pop(offset, None)

    def resume(self) -> None:
        for offset, one in self._store.after_calls.items():
            if one.is_set_aside:
                self._store.after_calls[offset] = replace(one, attempts=0, is_set_aside=False)

    def retry(self, offset: Offset) -> bool:
        known = self._store.after_calls.get(offset)
        if known is not None:
            self._store.after_calls[offset] = replace(known, attempts=0, is_set_aside=False)
        return known is not None


class MemoryJobs:
    """See `PendingJobs`."""

    def __init__(self, store: MemoryStore) -> None:
        """Keep them in `store`."""
        self._store = store

    def pending(self, limit: int) -> Sequence[PendingJob]:
        return self._store.jobs[:limit]

    def forget(self, up_to_sequence: int) -> None:
        self._store.jobs[:] = [job for job in self._store.jobs if job.sequence > up_to_sequence]


class MemoryPoolImports:
    """See `PoolImports`."""

    def __init__(self, store: MemoryStore) -> None:
        """Serve from `store`."""
        self._store = store

    def marker(self) -> str | None:
        """See `PoolImports.marker`."""
        return self._store.marker

    def mark(self, marker: str) -> None:
        """See `PoolImports.mark`."""
        self._store.mark(marker)

    def is_done(self, offset: Offset) -> bool:
        """See `PoolImports.is_done`."""
        return offset in self._store.done

    def end(self) -> Offset | None:
        """See `PoolImports.end`."""
        return Offset(max(self._store.done) + 1) if self._store.done else None

    def forget(self) -> None:
        """See `PoolImports.forget`."""
        self._store.done.clear()


class MemoryLedger:
    """See `Ledger`."""

    def __init__(self, store: MemoryStore) -> None:
        """Keep it in `store`."""
        self._store = store
        self.commands = MemoryCommands(store)
        self.hook_calls = MemoryHookCalls(store)
        self.jobs = MemoryJobs(store)
        self.pool = MemoryPoolImports(store)

    def position(self) -> Position | None:
        return self._store.position

    def subscriber(self) -> AgentName | None:
        return self._store.owner

    def claim(self, name: AgentName) -> None:
        if self._store.owner not in {None, name}:
            raise TargetOwnedError(f"the target belongs to {self._store.owner}")
        self._store.owner = name

    def reset_position(
        self, position: Position, accepted: Iterable[str] = (), report_starts: ReportStarts | None = None
    ) -> None:
        self._store.unfollowed.difference_update(accepted)
        errors, stored = self._store.errors, self._store.position
        if stored is not None and position.next_offset < stored.next_offset:
            for offset in [offset for offset in errors if offset >= position.next_offset]:
                del errors[offset]
        self._store.position = position
        self._store.report_starts = self._store.report_starts if report_starts is None else report_starts

    @property
    def report_starts(self) -> ReportStarts:
        return self._store.report_starts

    def attempt(self) -> Attempt | None:
        return self._store.attempt

    def store_attempt(self, attempt: Attempt | None) -> None:
        self._store.attempt = attempt

    @property
    def restored(self) -> RestoreRecord | None:
        return self._store.restored

    @property
    def passed_over(self) -> frozenset[str]:
        return frozenset(self._store.unfollowed)

    def pending_statuses(self, limit: int) -> Sequence[PendingStatus]:
        return self._store.pending[:limit]

    def forget_statuses(self, up_to_sequence: int) -> None:
        self._store.pending = [
            confirmation for confirmation in self._store.pending if confirmation.sequence > up_to_sequence
        ]

    def given_up(self) -> Sequence[GivenUp]:
        return [self._store.errors[offset] for offset in sorted(self._store.errors)]

    @property
    def given_up_count(self) -> int:
        return len(self.given_up())

    @property
    def given_up_offsets(self) -> frozenset[Offset]:
        return frozenset(self._store.errors)

    @property
    def open_builds(self) -> Sequence[OpenBuild]:
        return self._store.open_builds

    def redrives(self) -> Sequence[GivenUp]:
        return [entry for entry in self.given_up() if entry.offset in self._store.wanted]

    def request_redrive(self, offset: Offset) -> None:
        if offset not in self._store.errors:
            raise UsageError(f"there is no entry {offset}")
        self._store.wanted.add(offset)

    def refuse_redrive(self, offset: Offset, cause: FailureCause) -> None:
        self._store.wanted.discard(offset)
        if offset in self._store.errors:
            self._store.errors[offset] = replace(self._store.errors[offset], cause=cause)


class MemoryTarget:
    """See `Target`."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        """Open `store`, or a new one."""
        self.store = MemoryStore() if store is None else store
        self.uri = "memory:target"
        self._ledger = MemoryLedger(self.store)

    @property
    def ledger(self) -> MemoryLedger:
        return self._ledger

    def batch(self, *, restored: RestoreRecord | None = None) -> MemoryBatch:
        return MemoryBatch(self.store, restored)

    def source(self) -> MemorySource:
        nodes = [decode_node(path, body) for path, body in self.store.bodies.items()]
        return MemorySource(nodes, self.uri, table_of(sorted(self.store.namespaces)))

    def statistics(self) -> Mapping[str, int]:
        return {"commits": self.store.commits, "nodes": len(self.store.bodies)}

    def close(self) -> None:
        """See `Target.close`."""


class MemoryBatch:
    """See `Batch`. Simple filters only."""

    def __init__(self, store: MemoryStore, restored: RestoreRecord | None = None) -> None:
        """Work on a copy."""
        self._store = store
        self._restored = restored
        self._bodies = dict(store.bodies)
        self._namespaces = set(store.namespaces)
        self._statuses: list[StatusMessage] = []
        self._entries: list[GivenUp] = []
        self._resolved: list[Offset] = []
        self._commands: list[tuple[OpenCommand, CommandResult | None]] = []
        self._builds = store.open_builds if restored is None else ()
        self._passed_over: set[str] = set()
        self._after_calls: list[AfterCall] = []
        self._jobs: list[NewJob] = []

    def apply(self, change: TreeChange, stamp: Offset) -> ChangeCount:  # noqa: ARG002  # part of the port
        carried = set()
        content_bytes = 0
        for record in change.records:
            for binary in record.binaries:
                with binary.open() as stream:
                    content_bytes += len(stream.read())
            self._make_ancestors(record.path)
            if not change.filter.covers(record.path):
                self._bodies.setdefault(record.path, record.body)
                continue
            carried.add(record.path)
            self._bodies[record.path] = record.body
            content_bytes += len(record.body)
        gone = [path for path in self._bodies if change.filter.covers(path) and path not in carried]
        for path in gone:
            del self._bodies[path]
        self._keep(change.namespaces)
        return ChangeCount(len(carried), len(gone), content_bytes)

    def apply_subtrees(self, subtrees: Subtrees, first: int) -> tuple[int, ChangeCount]:
        """See `Batch.apply_subtrees`; every one is taken."""
        total, end = ChangeCount(), sum(subtrees.counts[:first])
        for root, count in zip(subtrees.roots[first:], subtrees.counts[first:], strict=True):
            begin, end = end, end + count
            records = [NodeRecord(subtrees.paths[at], subtrees.bodies[at]) for at in range(begin, end)]
            total += self.apply(TreeChange(WorkspaceFilter((FilterSet(root),)), records), Offset(0))
        for table in subtrees.namespaces:
            self._keep(table)
        return len(subtrees.roots) - first, total

    def _keep(self, table: NamespaceTable) -> None:
        self._namespaces |= {(prefix, uri) for prefix, uris in table.items() for uri in uris}

    def remove(self, paths: Sequence[NodePath], stamp: Offset) -> ChangeCount:  # noqa: ARG002  # part of the port
        gone = [path for path in self._bodies if any(is_within(path, root) for root in paths)]
        for path in gone:
            del self._bodies[path]
        return ChangeCount(removed=len(gone))

    def add_status(self, message: StatusMessage) -> None:
        self._statuses.append(message)

    def add_job(self, job: NewJob) -> None:
        self._jobs.append(job)

    def pass_over(self, publishers: Iterable[str]) -> None:
        self._passed_over.update(publishers)

    def expect_after(self, offsets: Iterable[Offset]) -> None:
        self._after_calls += [AfterCall(offset) for offset in offsets]

    def give_up(self, entry: GivenUp) -> None:
        self._entries.append(entry)

    def resolve(self, offset: Offset) -> None:
        self._resolved.append(offset)

    def note_command(self, command: OpenCommand, answer: CommandResult | None = None) -> None:
        self._commands.append((command, answer))

    def note_builds(self, builds: Sequence[OpenBuild]) -> None:
        """See `Batch.note_builds`; what is committed is shown all the same."""
        self._builds = builds

    def commit(self, position: Position, done: Mapping[Offset, Token] = NOTHING_DONE) -> ChangeCount:
        store = self._store
        if self._restored is not None:
            store.restore(self._restored, position.next_offset)
        store.open_builds = self._builds
        store.unfollowed |= self._passed_over
        store.bodies, store.position, store.attempt = self._bodies, position, None
        store.namespaces = self._namespaces
        store.commits += 1
        for message in self._statuses:
            store.send(message)
        for job in self._jobs:
            store.add_job(job)
        store.note_done(done, position.next_offset)
        store.after_calls |= {call.offset: call for call in self._after_calls}
        for entry in self._entries:
            store.errors[entry.offset] = entry
        for offset in self._resolved:
            store.errors.pop(offset, None)
            store.wanted.discard(offset)
        for command, answer in self._commands:
            store.note_command(command, answer)
        return ChangeCount()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to do: without a commit the copy is dropped."""

    def _make_ancestors(self, path: NodePath) -> None:
        if path == ROOT:
            return
        for above in ancestors_of(path):
            self._bodies.setdefault(above, encode_node(folder_node(above)).body)

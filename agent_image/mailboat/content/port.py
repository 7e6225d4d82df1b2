"""The ports of content: a source to read a tree from, and a target that holds a tree and a position as one.

Every target passes `mailboat.testing.target_contract`: whatever instant the process dies at, the content is that of
the journal up to the stored position, and no other.

A target also keeps jobs, calls of the hook `after`, the imports of a shared pool, and commands, each in the
transaction of the content that it is about. A command is durable with the position on the command topic behind it. It
is open until what it asks for is done; then the answer becomes durable together with the last of its effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

from mailboat.frozen import Frozen
from mailboat.model.changes import ChangeCount, Subtrees, TreeChange
from mailboat.model.filters import WorkspaceFilter
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId
from mailboat.model.jobs import NewJob, Token
from mailboat.model.messages import (
    AfterCall,
    CommandResult,
    CommandVerb,
    FailureCause,
    ReportStart,
    StatusMessage,
    Suspension,
)
from mailboat.model.namespaces import NamespaceTable
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.model.positions import Position


class OpenCommand(Frozen):
    """A command that was taken and is not done yet.

    Attributes:
        sequence: Names it within the target; 0 before it was taken.
        verb: What it asks for.
        offset: The last package to drop (clear), or the one to try again (redrive).
        pub_agent_name: Whose packages; None: any publisher's.
        command_id: The sender's name for it; None asks for no answer.
        removed: Packages that it has dropped so far.
        is_void: A restore replaced the content that it was about: it has no effect, and is still to be answered.
    """

    sequence: int
    verb: CommandVerb
    offset: Offset
    pub_agent_name: AgentName | None
    command_id: str | None
    removed: int = 0
    is_void: bool = False


class RestoreRecord(Frozen):
    """The last restore of a target, stored in the transaction that replaced its content.

    Attributes:
        snapshot: `blob:NAME`, or the file.
        begun_ms: When it was asked for, milliseconds since 1970 UTC.
        next_offset: The position that it set.
        given_up: Packages that it put into the error queue.
    """

    snapshot: str
    begun_ms: int
    next_offset: Offset
    given_up: int


class CommandLedger(Protocol):
    """Commands of one target. Each call is one durable step, outside of a batch."""

    def position(self) -> Position | None:
        """Where the command topic was read to; None before anything was read."""

    def suspension(self) -> Suspension | None:
        """The suspension of imports that was taken last; None where a command resumed them, or none came."""

    def take(
        self,
        opened: Sequence[OpenCommand],
        answers: Sequence[CommandResult],
        position: Position,
        suspension: Suspension | None = None,
    ) -> None:
        """Remember new commands, and answers that can be given at once, with the position behind them.

        `suspension` is what holds from then on; None: imports are not suspended. The entry that a redrive names is
        marked to be tried again. An answer whose command id was answered before is only sent again.
        """

    def open_commands(self) -> Sequence[OpenCommand]:
        """The commands that are not done, in the order taken."""

    def answer_to(self, command_id: str) -> CommandResult | None:
        """The answer to a command of that id. The last 1,000 are remembered."""

    def settle(self, command: OpenCommand, answer: CommandResult) -> None:
        """The command is over without any effect on content: send the answer, where one is wanted."""


class HookCallLedger(Protocol):
    """The calls that are still to be made. Each call is one durable step of its own, outside of a batch."""

    def calls(self, limit: int, *, is_set_aside: bool = False) -> Sequence[AfterCall]:
        """Calls that wait, or that were set aside, oldest first."""

    def counts(self) -> tuple[int, int]:
        """How many calls wait, and how many were set aside."""

    def store(self, call: AfterCall) -> None:
        """The call failed: it stays, as it is now."""

    def forget(self, offsets: Iterable[Offset]) -> None:
        """These calls were made."""

    def resume(self) -> None:
        """Calls that were set aside wait again, as if they had never been made."""

    def retry(self, offset: Offset) -> bool:
        """Give the call of a package all its attempts again; whether it is still to be made."""


class PendingJob(NamedTuple):
    """A job to append to the job topic."""

    sequence: int
    job: NewJob


class PendingJobs(Protocol):
    """The jobs of one target. Each call is one durable step of its own, outside of a batch."""

    def pending(self, limit: int) -> Sequence[PendingJob]:
        """Jobs not yet known to be in the job topic, oldest first."""

    def forget(self, up_to_sequence: int) -> None:
        """Remove jobs that are in the job topic."""


class PoolImports(Protocol):
    """The packages that a pool is done with. Each call is one durable step of its own, outside of a batch."""

    def marker(self) -> str | None:
        """The random name that the pool gave this target: members that see another one see another target.

        None in a target that belongs to no pool.
        """

    def mark(self, marker: str) -> None:
        """Make it the target of a pool."""

    def is_done(self, offset: Offset) -> bool:
        """Whether the package at this offset, not below the position, was imported, dropped or given up."""

    def end(self) -> Offset | None:
        """The offset behind the last package that is done; None where no package at or above the position is."""

    def forget(self) -> None:
        """Forget all packages: the offsets are of another log."""


class Source(Protocol):
    """A tree to read. A source may be read from one thread at a time."""

    @property
    def uri(self) -> str:
        """As a user would give it: `./site` or `sqlite:FILE`."""

    def node(self, path: NodePath) -> Node | None:
        """One node, without its children; None if absent."""

    def walk(self, path: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
        """The node at `path`, when deep also all below it: parents first, children in order. Bounded memory.

        The root `/` of a source that has no node for it is left out, its children are not. Nothing is yielded where
        nothing is.

        Raises:
            SourceChangedError: The data read is no longer consistent.
            UntrustedInputError: A name or value that content can't have, with its path.
        """

    def close(self) -> None:
        """Release what the source holds."""


@runtime_checkable
class DigestedSource(Protocol):
    """A source that has digests without giving nodes."""

    def digests(self, path: NodePath) -> Iterator[tuple[NodePath, bytes]]:
        """Path and `node_digest` of every node of a subtree: parents first, siblings by name."""


@runtime_checkable
class NamedSource(Protocol):
    """A source that has the namespaces of the prefixes in its names."""

    def namespaces(self) -> NamespaceTable:
        """The namespaces of prefixes that are not generally known; grows while nodes are read.

        Raises: PackageCorruptError: What says so can't be understood.
        """


@runtime_checkable
class DescribedSource(NamedSource, Protocol):
    """A source whose documents say more than its nodes do: FileVault checkouts and zips."""

    @property
    def filter(self) -> WorkspaceFilter | None:
        """What its own filter covers; None when it has none."""

    def filter_within(self, asked: WorkspaceFilter) -> WorkspaceFilter:
        """What a package of these roots owns: their part of the source's filter, with its modes and rules.

        Roots that the filter does not know stay as they are.

        Raises: UsageError, where a rule decides about a path that is asked for without its children.
        """

    def ancestors(self, owned: WorkspaceFilter) -> Iterator[Node]:
        """The nodes above covered ones that the filter does not cover, and that a document or a file defines.

        They lie above roots, or below one whose rules leave them out. Mere directories are not among them.
        """

    def directories(self, owned: WorkspaceFilter) -> Sequence[NodePath]:
        """The mere directories among the nodes above covered ones: no document says what they are."""

    def package_properties(self) -> Mapping[str, str]:
        """What its `properties.xml` says; a package of the content keeps it."""

    def other_metadata(self) -> Sequence[str]:
        """Other files of `META-INF`, such as hooks and node types; a package keeps node types at most."""

    def node_types(self) -> Mapping[str, bytes]:
        """The files of `META-INF` that define node types. Raises: LimitExceededError."""


class Attempt(Frozen):
    """That the package at `offset` failed before: persisted, so that a restart does not reset the count."""

    offset: Offset
    count: int
    cause: FailureCause
    next_try_ms: int


class GivenUp(Frozen):
    """A package that was given up, or cleared: an entry of the error queue.

    Attributes:
        paths: The first paths of the package: `first_paths` of them.
        more_paths: How many it has beyond those.
    """

    offset: Offset
    package_id: PackageId
    pub_agent_name: AgentName | None
    paths: tuple[NodePath, ...]
    cause: FailureCause
    attempts: int
    given_up_ms: int
    more_paths: int = 0


NOTHING_DONE: Final[Mapping[Offset, Token]] = MappingProxyType({})

ReportStarts = Mapping[AgentName | None, ReportStart | None]
"""By publisher, None for all without an entry; None as a start: a publisher that was followed once and is not now."""


class OpenBuild(Frozen):
    """A bulk build of which some packages are in a target, and the last one is not.

    Attributes:
        publisher: Whose it is.
        build_id: The build.
        done: How many of its packages the target is past, by the number of the last one.
        total: How many it has.
        last_ms: When the log took the last one of them, milliseconds since 1970 UTC.
    """

    publisher: AgentName
    build_id: BuildId
    done: int
    total: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class PendingStatus:
    """A confirmation to send, stored with the content that it confirms, or the answer to a command."""

    sequence: int
    message: StatusMessage | CommandResult


class Ledger(Protocol):
    """A subscriber's records besides the content. Each call is one durable step, outside of a batch."""

    @property
    def commands(self) -> CommandLedger:
        """What is kept of commands."""

    @property
    def hook_calls(self) -> HookCallLedger:
        """What is kept of calls of the hook `after`."""

    @property
    def jobs(self) -> PendingJobs:
        """Jobs to append to the job topic."""

    @property
    def pool(self) -> PoolImports:
        """The packages that a shared pool is done with."""

    def position(self) -> Position | None:
        """Where the content stands; None in a target that nothing was imported into."""

    def subscriber(self) -> AgentName | None:
        """Whose target this is."""

    def claim(self, name: AgentName) -> None:
        """Make it the target of `name`. Raises: TargetOwnedError when it is another's."""

    def reset_position(
        self, position: Position, accepted: Iterable[str] = (), report_starts: ReportStarts | None = None
    ) -> None:
        """Move the position without content: at a first start, with `--accept-gap`, by a restore.

        Forgets that packages of the `accepted` publishers were skipped, and entries of the error queue whose packages
        come again; stores the report starts, if given.
        """

    @property
    def report_starts(self) -> ReportStarts:
        """Offsets from which packages passed without an import are reported; empty if never stored."""

    def attempt(self) -> Attempt | None:
        """The failed attempt that waits for its next try."""

    def store_attempt(self, attempt: Attempt | None) -> None:
        """Remember a failed attempt; None forgets it."""

    @property
    def restored(self) -> RestoreRecord | None:
        """The last restore; None where the content was imported from the beginning."""

    @property
    def passed_over(self) -> frozenset[str]:
        """The publishers whose packages were skipped, as they were not followed: see `Batch.pass_over`."""

    def pending_statuses(self, limit: int) -> Sequence[PendingStatus]:
        """Confirmations and answers not yet known to be sent, oldest first."""

    def forget_statuses(self, up_to_sequence: int) -> None:
        """They are sent."""

    def given_up(self) -> Sequence[GivenUp]:
        """The error queue, oldest first."""

    @property
    def given_up_count(self) -> int:
        """How many packages are in the error queue, without reading them: each may have kilobytes of text."""

    @property
    def given_up_offsets(self) -> frozenset[Offset]:
        """Which packages are in the error queue, without reading more of them."""

    @property
    def open_builds(self) -> Sequence[OpenBuild]:
        """The builds that the target waits for before it shows them; empty if it shows every commit."""

    def redrives(self) -> Sequence[GivenUp]:
        """Entries of the error queue that a person wants tried again."""

    def request_redrive(self, offset: Offset) -> None:
        """Ask for an entry to be tried again. Raises: UsageError when there is no such entry."""

    def refuse_redrive(self, offset: Offset, cause: FailureCause) -> None:
        """The entry failed again: it stays, with the new cause."""


class Batch(Protocol):
    """One transaction of a target: content, position and confirmations become visible together or never.

    Leaving it without `commit` (or by an exception) rolls back. Calls come from one thread.
    """

    def apply(self, change: TreeChange, stamp: Offset) -> ChangeCount:
        """Put and remove what the change says. `stamp` is the package's offset, larger with every package.

        Raises:
            UntrustedInputError: Nothing of the batch will be kept.
            StorageFullError, StorageReadOnlyError, BlobMissingError, BlobCorruptError.
        """

    def apply_subtrees(self, subtrees: Subtrees, first: int) -> tuple[int, ChangeCount]:
        """Take some of the subtrees from the one numbered `first` on, where that is faster than one by one.

        Returns how many were taken, none too, and what they amounted to. The one behind them, if there is any, is to be
        given to `apply`. Raises: as `apply`, for all that were taken.
        """

    def remove(self, paths: Sequence[NodePath], stamp: Offset) -> ChangeCount:
        """Remove the subtrees at `paths`; where there is nothing, nothing happens."""

    def add_status(self, message: StatusMessage) -> None:
        """A confirmation to send after the commit."""

    def add_job(self, job: NewJob) -> None:
        """A job to append to the job topic after the commit."""

    def pass_over(self, publishers: Iterable[str]) -> None:
        """Store that packages of these publishers were not imported, as they are not followed."""

    def expect_after(self, offsets: Iterable[Offset]) -> None:
        """The hook `after` is to be called for these packages."""

    def give_up(self, entry: GivenUp) -> None:
        """Put an entry into the error queue."""

    def resolve(self, offset: Offset) -> None:
        """Take an entry out of the error queue: its package is imported now."""

    def note_command(self, command: OpenCommand, answer: CommandResult | None = None) -> None:
        """Store what a command has done so far and, with an answer, that it is over."""

    def note_builds(self, builds: Sequence[OpenBuild]) -> None:
        """Store which builds are open, in place of those stored before.

        While any is, a target that can do so shows its readers the content of before; it keeps all that is committed
        meanwhile, and shows it as one.
        """

    def commit(self, position: Position, done: Mapping[Offset, Token] = NOTHING_DONE) -> ChangeCount:
        """Make everything durable and visible, with the position; also forgets the failed attempt before it.

        `done` are packages that a member of a shared pool is done with, each with the token of the member's lease. The
        token is kept for people who look for the attempt; what fences is that `PoolImports.is_done` is asked first.

        Returns what the calls before have not counted: a target may find out late what packages removed.
        """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Target(Protocol):
    """An open target, locked against other processes until it is closed."""

    @property
    def uri(self) -> str:
        """As a user would give it: `files:DIR`, `generations:DIR`, `sqlite:FILE`."""

    @property
    def ledger(self) -> Ledger:
        """What is kept besides the content."""

    def batch(self, *, restored: RestoreRecord | None = None) -> Batch:
        """Begin a transaction. One at a time.

        `restored`: a restore replaces all content. The commit keeps this record of it, and forgets what the ledger has
        about packages: error queue, skipped publishers, report starts, open builds, imports of a pool, and calls of the
        hook `after` for packages that are imported again. Commands that are not done become void. Confirmations, jobs
        and a suspension stay.
        """

    def source(self) -> Source:
        """The committed content, to read."""

    def statistics(self) -> Mapping[str, int]:
        """Counts for people and tests: `commits`, `fsyncs` where known, `nodes` where cheap."""

    def close(self) -> None:
        """Release the target and its lock."""

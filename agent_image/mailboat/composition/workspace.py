"""The composition root: what a home or a configuration is made of, opened when it is first needed and closed together.

Everything that may be exchanged (journal, blob store, codecs, clock) is chosen here and nowhere else; later journals
and blob stores plug in at `_open_journal` and `_open_blobs`. Engine modules are imported where they are needed: a
command pays for the parts that it uses. Called by the command line; pods will use it with a rendered configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol, Self

from mailboat.clock import Clock, SystemClock
from mailboat.config.document import PackageType, Transfer
from mailboat.errors import AgentMissingError, TopicMissingError
from mailboat.folder_handle import make_path
from mailboat.model.identifiers import AgentName, TopicName, parse_agent_name, parse_topic_name
from mailboat.model.messages import TopicRole

if TYPE_CHECKING:
    from mailboat.blobs.port import BlobStore
    from mailboat.composition.home import Home
    from mailboat.config.document import AgentsConfig, Config, LimitsConfig
    from mailboat.journal.port import Journal, TopicSettings
    from mailboat.packages.port import PackageCodec, PackageLimits
    from mailboat.packages.registry import PackageRegistry
    from mailboat.publisher.metering import PublicationMeter
    from mailboat.publisher.publication import Publisher
    from mailboat.tracing import Tracer

_SUBSCRIBER_TOPICS: Final = (TopicRole.PACKAGE, TopicRole.STATUS, TopicRole.DISCOVERY, TopicRole.COMMAND)


class Meters(Protocol):
    """Meters and tracer of an agent process."""

    @property
    def tracer(self) -> Tracer:
        """Records spans."""

    def publisher_meter(self, name: str) -> PublicationMeter:
        """The meter of a publisher, the same one each time."""


class Workspace:
    """An opened home. A context manager; leaving it closes what was opened."""

    def __init__(self, home: Home, clock: Clock | None = None, meters: Meters | None = None) -> None:
        """Open nothing yet.

        Args:
            home: Its configuration and places.
            clock: Time.
            meters: Measure and trace the publishers; only processes that stay have them.
        """
        self.home = home
        self.clock: Clock = SystemClock() if clock is None else clock
        self._opened = ExitStack()
        self._meters = meters

    @cached_property
    def journal(self) -> Journal:
        """The log. Raises: as `open_journal`."""
        from mailboat.composition.journals import open_journal

        return self._opened.enter_context(open_journal(self.home, self.clock))

    @cached_property
    def blobs(self) -> BlobStore:
        """The blob store, one for the whole process. Raises: as `open_blobs`."""
        from mailboat.composition.stores import open_blobs

        store = open_blobs(self.home, self.clock, lambda: str(self.journal.identity(self.package_topic)))
        self._opened.callback(store.close)
        return store

    @cached_property
    def codecs(self) -> Mapping[str, PackageCodec]:
        """The package formats by package type, each loaded when it is first needed."""
        return CodecsOnDemand(codec_names(self.home.config), namespaces_of(self.home.config))

    @cached_property
    def limits(self) -> PackageLimits:
        """What packages may be."""
        return package_limits(self.home.config.limits)

    def open_blob(self, digest: bytes) -> BinaryIO:
        """A blob by its digest alone. Raises: BlobMissingError, BlobCorruptError."""
        from mailboat.errors import BlobMissingError

        info = self.blobs.stat(digest)
        if info is None:
            raise BlobMissingError(f"the blob {digest.hex()} is not in {self.blobs.description}")
        return self.blobs.open(digest, info.length_bytes)

    @property
    def package_topic(self) -> TopicName:
        """The topic that packages travel on."""
        return self.topic(TopicRole.PACKAGE)

    def topic(self, role: TopicRole) -> TopicName:
        """The name of a topic in this configuration."""
        return parse_topic_name(self.home.config.journal.topic_name(role))

    def ensure_topics(self) -> None:
        """Make the topics, or apply the settings to those that are there."""
        for role in TopicRole:
            self.journal.ensure_topic(self.topic(role), self.topic_settings(role))

    def have_topics(self, roles: Iterable[TopicRole] = TopicRole) -> None:
        """Make what is missing. A log that keeps its topics by itself is not told how: that is `journal ensure`'s.

        So an agent needs no right to change topics, and agents whose configurations differ do not change them in turns.

        Args:
            roles: Of the topics that are needed where rights are given by topic; a file's topics are all made.
        """
        if not self.journal.upkeep.is_automatic:
            self.ensure_topics()
            return
        for role in roles:
            try:
                self.journal.identity(self.topic(role))
            except TopicMissingError:
                self.journal.ensure_topic(self.topic(role), self.topic_settings(role))

    def topic_settings(self, role: TopicRole) -> TopicSettings:
        """How a topic of this configuration is kept."""
        from mailboat.composition.journals import topic_settings

        config = self.home.config
        return topic_settings(role, config.retention, is_head_kept=is_head_kept(config))

    def publisher(self, name: str | None = None) -> Publisher:
        """A publisher agent of this home. Raises: UsageError for a name that can't be one."""
        from mailboat.publisher.changes import ChangeBudget
        from mailboat.publisher.pieces import PieceSettings
        from mailboat.publisher.publication import Publisher
        from mailboat.publisher.settings import PublisherPorts, PublisherSettings
        from mailboat.publisher.state import PublisherState

        config = self.home.config.publisher
        agent = parse_agent_name(config.name if name is None else name)
        state = PublisherState(self.home.publishers_path / f"{agent}.db")
        self._opened.callback(state.close)
        settings = PublisherSettings(
            name=agent,
            sling_id=self.home.sling_id,
            package_topic=self.topic(TopicRole.PACKAGE),
            package_type=package_type_of(self.home.config),
            inline_package_bytes=config.inline_package_bytes,
            inline_binary_bytes=config.inline_binary_bytes,
            max_package_bytes=self.home.config.limits.max_total_bytes,
            is_self_contained=config.transfer is Transfer.INLINE,
            are_pieces_cut=are_pieces_cut(self.home.config),
            are_large_refused=config.transfer is Transfer.INLINE,
            are_collisions_refused=self.home.config.limits.are_collisions_refused,
            pieces=PieceSettings(piece_bytes=config.piece_bytes),
            changes=ChangeBudget(max_content_bytes=config.changed_package_bytes),
        )
        ports = PublisherPorts(self.journal, self.blobs, self.codecs, state, self.clock)
        if self._meters is not None:
            ports = replace(ports, meter=self._meters.publisher_meter(agent), tracer=self._meters.tracer)
        return Publisher(settings, ports)

    def publisher_names(self) -> Sequence[AgentName]:
        """The publishers that ever published from this home, and the default one."""
        found = {file.stem for file in self.home.publishers_path.glob("*.db")}
        return sorted(AgentName(name) for name in found | {self.home.config.publisher.name})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)


def known_publisher(workspace: Workspace, name: str | None, *, is_new: bool = False) -> AgentName:
    """The publisher that is meant; a mistyped name would publish as a publisher of its own.

    Args:
        workspace: The home.
        name: Its name; None is the configured default.
        is_new: Whether it may be one that is not known. The first that publishes from a home may always be.

    Raises:
        UsageError: The name can't be one.
        AgentMissingError: Others have published from this home, and this one has not.
    """
    config = workspace.home.config
    publisher = parse_agent_name(config.publisher.name if name is None else name)
    known = {*workspace.publisher_names(), *(one.name for one in config.agents.publishers)}
    is_first = not any(workspace.home.publishers_path.glob("*.db"))
    if publisher in known or is_first or is_new:
        return publisher
    named = ", ".join(sorted(known))
    raise AgentMissingError(
        f"there is no publisher {publisher} here; publishers: {named}",
        next_step="add --new-publisher to publish under a new name",
    )


def initialise(home: Home, clock: Clock | None = None, roles: Iterable[TopicRole] = TopicRole) -> Workspace:
    """Make what a new home's configuration names: journal, topics, blob folder. What is there stays."""
    from mailboat.composition.home import translated_writes
    from mailboat.composition.journals import make_journal
    from mailboat.composition.locations import check_folder_place

    if home.config.blobs.s3 is None:
        check_folder_place(home.blobs_path)
    workspace = Workspace(home, clock)
    make_journal(home, workspace.clock)
    workspace.have_topics(roles)
    if home.config.blobs.s3 is None:
        with translated_writes(home.blobs_path):
            make_path(home.blobs_path)
    return workspace


def prepare(home: Home, clock: Clock | None = None) -> None:
    """Make what an agent needs where its home is new. One that is made stays as it is: a lost journal stays lost.

    Raises: StorageReadOnlyError, StorageFullError; the journal's errors.
    """
    from mailboat.composition.home import make_folders, make_identity

    if home.is_made:
        return
    make_folders(home.path)
    with initialise(home, clock, topic_roles(home.config.agents)):
        make_identity(home.path)


def topic_roles(agents: AgentsConfig) -> Sequence[TopicRole]:
    """The topics that these agents use; brokers may show them no others. Where no agents are named it is all."""
    if agents.subscribers and not agents.publishers:
        return _SUBSCRIBER_TOPICS
    return tuple(TopicRole)


def are_pieces_cut(config: Config) -> bool:
    """Whether packages that don't fit a message travel in pieces, instead of through the blob store."""
    if config.publisher.transfer is Transfer.AUTO:
        return config.blobs.s3 is None and config.journal.kafka is not None  # who shares no folder shares the journal
    return config.publisher.transfer is Transfer.CHUNKS


def is_head_kept(config: Config) -> bool:
    """Whether agents apply age and size to the package topic, though the log does so: brokers cut through packages."""
    return config.journal.kafka is not None and are_pieces_cut(config)


def package_type_of(config: Config) -> str:
    """What the publisher's messages call its package format."""
    is_filevault = config.publisher.package_type is PackageType.FILEVAULT
    return config.publisher.filevault_name if is_filevault else config.publisher.package_type


def codec_names(config: Config) -> Mapping[str, PackageType]:
    """What messages may call the package formats; what we call them counts in any case."""
    called = (config.publisher.filevault_name, *config.subscriber.filevault_names)
    return dict.fromkeys(called, PackageType.FILEVAULT) | {str(kind): kind for kind in PackageType}


def namespaces_of(config: Config) -> Mapping[str, str]:
    """The namespaces that the configuration names, by prefix."""
    return {one.prefix: one.uri for one in config.publisher.namespaces}


class CodecsOnDemand(Mapping[str, "PackageCodec"]):
    """All formats, imported one by one: a subscriber that meets tree packages only never loads the other one."""

    def __init__(self, names: Mapping[str, PackageType], namespaces: Mapping[str, str] | None = None) -> None:
        """Load nothing yet.

        Args:
            names: What messages may call the formats.
            namespaces: Of prefixes in packages, beyond those that are generally known.
        """
        self._names = names
        self._namespaces = namespaces or {}
        self._loaded: dict[str, PackageCodec] = {}

    def __getitem__(self, package_type: str) -> PackageCodec:
        if package_type not in self._loaded:
            self._loaded[package_type] = _load_codec(self._names[package_type], self._namespaces)
        return self._loaded[package_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load_codec(package_type: PackageType, namespaces: Mapping[str, str]) -> PackageCodec:
    if package_type is PackageType.TREE:
        from mailboat.packages.tree import TreeCodec

        return TreeCodec(namespaces)
    from mailboat.packages.filevault.codec import FilevaultCodec, FilevaultSettings

    return FilevaultCodec(FilevaultSettings(namespaces=namespaces))


def package_registry(namespaces: Mapping[str, str] | None = None) -> PackageRegistry:
    """The package formats that this version reads and writes; `namespaces` as in `CodecsOnDemand`."""
    from mailboat.packages.registry import PackageRegistry

    return PackageRegistry(_load_codec(kind, namespaces or {}) for kind in PackageType)


def package_limits(limits: LimitsConfig) -> PackageLimits:
    """What packages may be, as codecs want to know it."""
    from mailboat.packages.port import PackageLimits

    return PackageLimits(
        max_entries=limits.max_entries,
        max_entry_bytes=limits.max_entry_bytes,
        max_total_bytes=limits.max_total_bytes,
        max_ratio=limits.max_ratio,
        max_xml_depth=limits.max_xml_depth,
        are_collisions_refused=limits.are_collisions_refused,
    )

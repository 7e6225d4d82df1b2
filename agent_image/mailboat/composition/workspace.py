"""The composition root: what a home or a configuration is made of, opened when it is first needed and closed together.

Called by commands on a home, and by the agent process. Adapters and codecs are imported when they are opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from mailboat.clock import Clock, SystemClock
from mailboat.composition.home import Home, make_folders, make_identity, translated_writes
from mailboat.composition.journals import make_journal, open_journal
from mailboat.composition.package_formats import (
    CodecsOnDemand,
    codec_names,
    namespaces_of,
)
from mailboat.composition.places import check_folder_place
from mailboat.composition.stores import open_blobs
from mailboat.config.topic_settings import settings_of
from mailboat.errors import AgentMissingError, BlobMissingError, TopicMissingError
from mailboat.folder_handle import make_path
from mailboat.model.identifiers import AgentName, TopicName, parse_agent_name, parse_topic_name
from mailboat.model.messages import TopicRole

if TYPE_CHECKING:
    from mailboat.blobs.port import BlobStore
    from mailboat.composition.publisher_setup import Meters
    from mailboat.config.document import AgentsConfig, LimitsConfig
    from mailboat.config.topic_settings import TopicSettings
    from mailboat.journal.port import Journal
    from mailboat.packages.port import PackageCodec
    from mailboat.publisher.publisher import Publisher

_SUBSCRIBER_TOPICS: Final = (TopicRole.PACKAGE, TopicRole.STATUS, TopicRole.DISCOVERY, TopicRole.COMMAND)


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
        self._publishers: dict[AgentName, Publisher] = {}
        self._meters = meters

    @cached_property
    def journal(self) -> Journal:
        """The log. Raises: as `open_journal`."""
        return self._opened.enter_context(open_journal(self.home, self.clock))

    @cached_property
    def blobs(self) -> BlobStore:
        """The blob store, one for the whole process. Raises: as `open_blobs`."""
        store = open_blobs(self.home, self.clock, lambda: str(self.journal.identity(self.package_topic)))
        self._opened.callback(store.close)
        return store

    @cached_property
    def codecs(self) -> Mapping[str, PackageCodec]:
        """The package formats by package type, each loaded when it is first needed."""
        return CodecsOnDemand(codec_names(self.home.config), namespaces_of(self.home.config))

    @cached_property
    def limits(self) -> LimitsConfig:
        """What packages may be."""
        return self.home.config.limits

    def open_blob(self, digest: bytes) -> BinaryIO:
        """A blob by its digest alone. Raises: BlobMissingError, BlobCorruptError."""
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
        """Make missing topics. A log that applies retention itself is not reconfigured: `journal ensure` does that.

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
        return settings_of(role, self.home.config)

    def publisher(self, name: str | None = None) -> Publisher:
        """A publisher agent of this home, opened once; None names the configured one.

        Raises: UsageError for an invalid name.
        """
        from mailboat.composition.publisher_setup import (  # a subscriber's restart does without
            PublisherParts,
            open_publisher,
        )

        agent = parse_agent_name(self.home.config.publisher.name if name is None else name)
        if agent not in self._publishers:
            parts = PublisherParts(self.journal, self.blobs, self.codecs, self.clock, self._meters)
            self._publishers[agent] = self._opened.enter_context(open_publisher(self.home, agent, parts))
        return self._publishers[agent]

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


def open_home(path: Path) -> Workspace:
    """The home at a path. Raises: HomeMissingError."""
    return Workspace(Home(path))


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
    known = {*workspace.publisher_names(), *(publisher.name for publisher in config.agents.publishers)}
    is_first = not any(workspace.home.publishers_path.glob("*.db"))
    if publisher in known or is_first or is_new:
        return publisher
    named = ", ".join(sorted(known))
    raise AgentMissingError(
        f"there is no publisher {publisher} here; publishers: {named}",
        next_step="add --new-publisher to publish under a new name",
    )


def initialise(home: Home, clock: Clock | None = None, roles: Iterable[TopicRole] = TopicRole) -> Workspace:
    """Make what a new home's configuration names: journal, topics, blob folder. Existing ones stay."""
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
    if home.is_made:
        return
    make_folders(home.path)
    # the identity comes last: a crash before it leaves a home that the next start prepares again
    with initialise(home, clock, topic_roles(home.config.agents)):
        make_identity(home.path)


def topic_roles(agents: AgentsConfig) -> Sequence[TopicRole]:
    """The topics that these agents use; brokers may show them no others. Where no agents are named it is all."""
    if agents.subscribers and not agents.publishers:
        return _SUBSCRIBER_TOPICS
    return tuple(TopicRole)

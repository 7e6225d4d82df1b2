"""Which Topics claim which topic of which brokers: of several the oldest has it, and the others report that.

An index of the Topics and Journals that are served, kept by the watches and filled by a list before the first look. Two
Journals, of two namespaces too, count as one where they lead to the same brokers. Used from one event loop.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from mailboat.errors import UntrustedInputError
from mailboat.frozen import Frozen

from mailboat_operator.definition.conditions import ReclaimPolicy
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.kinds.journal.spec import Journal, JournalTopics
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.topic.plan import CompetingTopics, topic_name
from mailboat_operator.kinds.topic.spec import JournalRole, Topic

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)
_EVER: Final = datetime.min.replace(tzinfo=UTC)
Place = tuple[str, str]
"""Namespace and name of an object."""


class _Claim(Frozen):
    """What is known of a Topic."""

    place: Place
    journal: Place
    last_name: str
    """The topic's name, or the role that its name ends in."""
    has_role: bool
    made_at: datetime
    is_deleted: bool
    is_reclaimed: bool


class _Lead(Frozen):
    """Where a Journal leads to."""

    topics: JournalTopics
    cluster_id: str | None
    servers: frozenset[str]

    @property
    def own_names(self) -> Iterator[tuple[str, JournalRole]]:
        """The names that the Journal gives single topics, with their roles."""
        names = self.topics.names
        found = ((getattr(names, role, None), role) for role in JournalRole)
        return ((name, role) for name, role in found if name is not None)


class TopicClaims:
    """All claims of the namespaces that are served."""

    def __init__(self) -> None:
        """No claims yet."""
        self._hidden: Sequence[str] = ()
        self._claims: dict[Place, _Claim] = {}
        self._by_last_name: dict[str, set[Place]] = {}
        self._reclaimed: dict[Place, set[Place]] = {}
        self._leads: dict[Place, _Lead] = {}
        self._own_names: dict[str, set[tuple[Place, JournalRole]]] = {}

    def hide(self, namespaces: Collection[str]) -> None:
        """These namespaces should be served and may not be listed: they may need what others delete."""
        self._hidden = sorted(namespaces)

    @property
    def hidden(self) -> str | None:
        """A namespace that may not be listed; None where all are."""
        return next(iter(self._hidden), None)

    def saw(self, manifest: Mapping[str, Any], *, is_gone: bool = False) -> None:
        """Record a Topic or Journal that was seen or deleted; others and undecodable ones claim nothing."""
        # first, whatever it is now: an object that can no longer be decoded claims nothing
        self._forget(manifest)
        if is_gone:
            return
        try:
            found = decode(manifest)
        except UntrustedInputError:
            return
        if isinstance(found, Topic):
            claim = _claim_of(found)
            self._claims[claim.place] = claim
            self._by_last_name.setdefault(claim.last_name, set()).add(claim.place)
            if claim.is_reclaimed:
                self._reclaimed.setdefault(claim.journal, set()).add(claim.place)
        elif isinstance(found, Journal):
            place, lead = _place(found.metadata), _lead_of(found)
            self._leads[place] = lead
            for name, role in lead.own_names:
                self._own_names.setdefault(name, set()).add((place, role))

    def rivals(self, topic: Topic, journal: Journal) -> CompetingTopics:
        """The other Topics that claim the topic, without those that are being deleted."""
        ours, lead, name = _claim_of(topic), _lead_of(journal), topic_name(topic, journal)
        others = [claim for claim in self._claims_of(name, lead) if claim.place != ours.place and not claim.is_deleted]
        # by place, too: creation times have whole seconds, and both sides must name the same owner
        older = sorted((other.made_at, other.place) for other in others)
        owner = older[0][1] if older and older[0] < (ours.made_at, ours.place) else None
        heir = others[0].place if others else None
        if heir is None and self.hidden is not None:
            heir = self.hidden, f"of namespace {self.hidden}, which may not be listed, perhaps"
        return CompetingTopics(owner, heir)

    def beside(self, manifest: Mapping[str, Any]) -> list[Place]:
        """Other Topics to reconcile when this one came, went or changed."""
        metadata = manifest["metadata"]
        ours = self._claims.get((metadata["namespace"], metadata["name"]))
        names = set() if ours is None else self._by_last_name.get(ours.last_name, set())
        return sorted(names - {(metadata["namespace"], metadata["name"])})

    def reclaimed(self, journal: Journal) -> list[str]:
        """Names of the Topics that want their topics deleted with them, and that need the Journal for it."""
        found = (self._claims[place] for place in self._reclaimed.get(_place(journal.metadata), ()))
        return sorted(claim.place[1] for claim in found if claim.is_deleted or not journal.metadata.is_deleted)

    def is_needed(self, journal: Place) -> bool:
        """Whether any Topic needs the Journal for its deletion."""
        return bool(self._reclaimed.get(journal))

    def _claims_of(self, name: str, lead: _Lead) -> Iterator[_Claim]:
        # a topic of a role has that as the end of its name, or a name that its Journal gives it
        named = {role for _, role in self._own_names.get(name, ())}
        roles = (str(role) for role in JournalRole if name.endswith(role) or role in named)
        for last_name in dict.fromkeys((name, *roles)):
            for place in sorted(self._by_last_name.get(last_name, ())):
                claim = self._claims[place]
                theirs = self._leads.get(claim.journal)
                if theirs is None or not _are_one(theirs, lead):
                    continue
                if name == (theirs.topics.name_of(JournalRole(last_name)) if claim.has_role else last_name):
                    yield claim

    def _forget(self, manifest: Mapping[str, Any]) -> None:
        place = (manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        if manifest["kind"] == "Journal":
            lead = self._leads.pop(place, None)
            for name, role in [] if lead is None else [*lead.own_names]:
                _drop(self._own_names, name, (place, role))
        elif manifest["kind"] == "Topic" and place in self._claims:
            claim = self._claims.pop(place)
            _drop(self._by_last_name, claim.last_name, place)
            _drop(self._reclaimed, claim.journal, place)


def _drop(index: dict[K, set[V]], key: K, value: V) -> None:
    """Take a value out of an index, and its entry with the last one: names come and go for as long as we run."""
    values = index.get(key, set())
    values.discard(value)
    if not values:
        index.pop(key, None)


def _claim_of(topic: Topic) -> _Claim:
    metadata, spec = topic.metadata, topic.spec
    return _Claim(
        place=_place(metadata),
        journal=(metadata.namespace, spec.journal_ref.name),
        last_name=str(spec.topic_name if spec.role is None else spec.role),
        has_role=spec.role is not None,
        made_at=_EVER if metadata.created_at is None else metadata.created_at,
        is_deleted=metadata.is_deleted,
        is_reclaimed=spec.reclaim_policy is ReclaimPolicy.DELETE,
    )


def _lead_of(journal: Journal) -> _Lead:
    spec = journal.spec
    return _Lead(spec.topics, journal.status.cluster_id, frozenset(spec.kafka.bootstrap_servers))


def _place(metadata: Metadata) -> Place:
    return metadata.namespace, metadata.name


def _are_one(one: _Lead, other: _Lead) -> bool:
    if one.cluster_id is not None and other.cluster_id is not None:
        return one.cluster_id == other.cluster_id
    # until the brokers of both have answered, a common address is the only sign
    return bool(one.servers & other.servers)

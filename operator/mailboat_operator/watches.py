"""The watches, with kopf: each event only queues a reconciliation of an object.

Only raw events are taken, so kopf puts no finalizer and no annotation on anything, and keeps no progress. What changed
in a status alone, ours above all, queues nothing. Children are watched by our label, all but Secrets, which are never
listed. Called by `main`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import kopf

from mailboat_operator.definition import GROUP, VERSION
from mailboat_operator.kinds.registry import KINDS, KINDS_BY_NAME
from mailboat_operator.plan.child_manifest import Manifest
from mailboat_operator.plan.labels import FIELD_MANAGER, MANAGED_BY
from mailboat_operator.reconciliation import ObjectKey
from mailboat_operator.topic_claims import TopicClaims

_LOG: Final = logging.getLogger("mailboat.operator")

# Streams can go silent without an error: https://github.com/nolar/kopf/issues/810. 70 s: https://github.com/nolar/kopf/pull/1268
INACTIVITY_SECONDS: Final = 70.0
"""A watch is restarted after so long without an event; the API server sends bookmarks every minute."""

_KOPF_FINALIZER: Final = f"{GROUP}/kopf"
"""Never put on anything: kopf takes its finalizer off whatever has no handler of deletions, so it must not be ours."""

CHILDREN: Final = (
    ("", "v1", "configmaps"),
    ("", "v1", "services"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("spark.apache.org", "v1", "sparkapplications"),
    ("sparkoperator.k8s.io", "v1beta2", "sparkapplications"),
)
"""Kinds of children that are watched; Topics, a Journal's children, are among our own kinds."""

WAITING_FOR_JOURNALS: Final = ("Publisher", "SubscriberPool")
"""Kinds whose agents start when a Journal's status allows that."""


class RequestedState(NamedTuple):
    """What of an object is asked for; a new status leaves it as it is."""

    uid: str
    generation: int | None
    deleted_at: str | None
    annotations: tuple[tuple[str, str], ...]


class LastEvent(NamedTuple):
    """The last event of an object.

    Attributes:
        wish: What of it is asked for.
        version: Its resource version; they count up, as Kubernetes 1.35 promises and all before it did.
        standing: What its status says of a Journal; empty for other kinds.
    """

    wish: RequestedState
    version: int
    standing: tuple[object, ...] = ()


class Watched:
    """The existing objects, by the watches' events."""

    def __init__(self, ask: Callable[[ObjectKey], None], claims: TopicClaims) -> None:
        """Nothing is known yet; `ask` receives the objects to reconcile."""
        self._ask = ask
        self._claims = claims
        self._last_events: dict[ObjectKey, LastEvent] = {}

    @property
    def last_events(self) -> Mapping[ObjectKey, LastEvent]:
        """The last event of each existing object."""
        return self._last_events

    async def object_changed(self, type: str | None, body: Mapping[str, Any], **_: object) -> None:  # noqa: A002
        """One of our objects was made, changed or deleted."""
        metadata, key = body["metadata"], key_of_object(body)
        known, wish = self._last_events.get(key), _wish_of(metadata)
        if type == "DELETED":
            self._last_events.pop(key, None)
            # a Journal makes a Topic of its own again, and a timetable goes on without the run
            await self.child_changed(body)
        else:
            standing = _standing_of(body) if key.kind == "Journal" else ()
            self._last_events[key] = LastEvent(wish, version_of(body), standing)
            # a status that we wrote comes back as an event, and would start an endless loop of reconciliations
            if known is not None and known.wish == wish:
                if key.kind == "Topic":  # its journal counts those that are ready
                    await self.child_changed(body)
                if known.standing != standing:  # agents start once its topics are checked
                    self._claims.saw(body)  # by its cluster Journals with different addresses are known to be one
                    for kind in WAITING_FOR_JOURNALS:
                        self._ask_all_of(kind, key.namespace)
                return
            self._ask(key)
        if key.kind in ("JobQueue", "JobSchedule") and (known is None or type == "DELETED"):  # two may name one record
            self._ask_all_named(key)
        if key.kind == "SubscriberPool" and (known is None or type == "DELETED"):  # publishers note whom they wait for
            self._ask_all_of("Publisher", key.namespace)
        self._ask_others(key, dict(body), is_gone=type == "DELETED")

    async def forget_missing(self, existing: Collection[ObjectKey]) -> None:
        """Treat known objects that do not exist as deleted: no event says so if nothing was watched meanwhile."""
        for key, event in [*self._last_events.items()]:
            if key not in existing:
                metadata = {"namespace": key.namespace, "name": key.name, "uid": event.wish.uid}
                await self.object_changed("DELETED", {"kind": key.kind, "metadata": metadata, "spec": {}})

    async def child_changed(self, body: Mapping[str, Any], **_: object) -> None:
        """A child was changed, or its pods were."""
        metadata = body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] in KINDS_BY_NAME:
                self._ask(ObjectKey(owner["kind"], metadata["namespace"], owner["name"]))

    def _ask_all_of(self, kind: str, namespace: str) -> None:
        for other in self._last_events:
            if (other.kind, other.namespace) == (kind, namespace):
                self._ask(other)

    def _ask_all_named(self, key: ObjectKey) -> None:
        for other in self._last_events:
            if (other.kind, other.name) == (key.kind, key.name) and other != key:
                self._ask(other)

    def _ask_others(self, key: ObjectKey, body: Manifest, *, is_gone: bool) -> None:
        """Queue the objects that refer to this Journal, or claim the same topic."""
        if key.kind == "Journal":
            self._claims.saw(body, is_gone=is_gone)
            for other in self._last_events:
                if other.namespace == key.namespace and other.kind != key.kind:
                    self._ask(other)
        elif key.kind == "Topic":
            journal = (key.namespace, str(body["spec"].get("journalRef", {}).get("name")))
            # before and after: a Topic that is renamed frees one name and claims another
            before, was_needed = self._claims.beside(body), self._claims.is_needed(journal)
            self._claims.saw(body, is_gone=is_gone)
            for namespace, name in {*before, *self._claims.beside(body)}:
                self._ask(ObjectKey("Topic", namespace, name))
            event = self._last_events.get(ObjectKey("Journal", *journal))
            is_going = event is not None and event.wish.deleted_at is not None
            if is_going or (event is not None and self._claims.is_needed(journal) != was_needed):
                self._ask(ObjectKey("Journal", *journal))


def registry_of(watched: Watched) -> kopf.OperatorRegistry:
    """The handlers."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="account", errors=kopf.ErrorsMode.IGNORED)(kopf.login_with_service_account)
    kopf.on.login(registry=registry, id="kubeconfig", errors=kopf.ErrorsMode.IGNORED)(kopf.login_with_kubeconfig)
    for kind in KINDS:
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(watched.object_changed)
    for group, version, plural in CHILDREN:
        kopf.on.event(group, version, plural, labels={MANAGED_BY: FIELD_MANAGER}, registry=registry)(
            watched.child_changed
        )
    return registry


def kopf_settings(*, is_clusterwide: bool, inactivity_seconds: float = INACTIVITY_SECONDS) -> kopf.OperatorSettings:
    """How kopf watches: alone, without a word to any object, and of others' kinds only what is ours."""
    settings = kopf.OperatorSettings()
    # the lease decides who acts: peering would need a custom resource of kopf's
    settings.peering.standalone = True
    # Events are actions of plans; kopf would post each line of its log as one
    settings.posting.enabled = False
    settings.persistence.finalizer = _KOPF_FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-seen", v1=False)
    settings.scanning.disabled = not is_clusterwide  # no right to list namespaces and definitions is needed
    settings.watching.inactivity_timeout = inactivity_seconds
    for group, version, plural in CHILDREN:
        settings.watching.label_selectors[group, version, plural] = f"{MANAGED_BY}={FIELD_MANAGER}"
    settings.process.ultimate_exiting_timeout = 10.0
    return settings


_WATCHES: Final = ("Watcher for ", "Multidimensional multitasker")
"""What kopf calls the watch of a kind, and all of them together, which it ends with the one that failed."""


class DefinitionGone(logging.Filter):
    """Logs a definition's deletion in one line. kopf's watch fails, and resumes with the kind."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record as it is."""
        error = record.exc_info[1] if record.exc_info else None
        watch, failed, _ = record.getMessage().partition(" has failed")
        # Other requests end with 404, too: only a watch says that its whole kind is gone.
        is_watch = record.name.startswith("kopf") and watch.startswith(_WATCHES) and failed
        if not is_watch or getattr(error, "status", None) != HTTPStatus.NOT_FOUND:
            return True
        _LOG.warning("a definition was deleted: its objects are watched again when it exists (%s)", watch)
        return False


def key_of_object(body: Mapping[str, Any]) -> ObjectKey:
    """Which object it is."""
    return ObjectKey(str(body["kind"]), body["metadata"]["namespace"], body["metadata"]["name"])


def version_of(body: Mapping[str, Any]) -> int:
    """The version of what was read."""
    return int(body["metadata"]["resourceVersion"])


def silent_objects(
    last_events: Mapping[ObjectKey, LastEvent], known_before: Iterable[ObjectKey], listed: Mapping[ObjectKey, int]
) -> list[ObjectKey]:
    """Objects whose listed state was not seen by a watch.

    Args:
        last_events: The last event of each object.
        known_before: The objects with events when the list was requested.
        listed: The versions in the list.
    """
    late = {key for key, version in listed.items() if key not in last_events or last_events[key].version < version}
    gone = {key for key in known_before if key not in listed and key in last_events}
    return sorted(late | gone)


def _standing_of(journal: Mapping[str, Any]) -> tuple[object, ...]:
    """The generation that was observed, the cluster, and each condition without its message."""
    status = journal.get("status") or {}
    conditions = status.get("conditions") or ()
    found = sorted(
        (condition.get("type"), condition.get("status"), condition.get("reason")) for condition in conditions
    )
    return status.get("observedGeneration"), status.get("clusterId"), *found


def _wish_of(metadata: Mapping[str, Any]) -> RequestedState:
    annotations = tuple(sorted((metadata.get("annotations") or {}).items()))
    return RequestedState(metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp"), annotations)

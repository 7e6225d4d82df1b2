"""What is watched, with kopf: every cause is nothing but a wish to look at an object.

Only raw events are taken, so kopf puts no finalizer and no annotation on anything, and keeps no progress. What changed
in a status alone, ours above all, is no cause. Called by `main`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import kopf

from mailboat_operator.api import GROUP, VERSION
from mailboat_operator.api.kinds import KINDS, KINDS_BY_NAME
from mailboat_operator.manifests.names import FIELD_MANAGER, FINALIZER, MANAGED_BY
from mailboat_operator.reconciliation import ObjectKey
from mailboat_operator.workers import Workers

_INACTIVITY_SECONDS: Final = 70.0


class Watched:
    """The objects that there are, as the watches tell."""

    def __init__(self, workers: Workers) -> None:
        """Nothing is known yet."""
        self._workers = workers
        self._seen: dict[ObjectKey, object] = {}

    async def object_changed(self, type: str | None, body: Mapping[str, Any], **_: object) -> None:  # noqa: A002
        """One of our objects was made, changed or deleted."""
        metadata = body["metadata"]
        key = ObjectKey(str(body["kind"]), metadata["namespace"], metadata["name"])
        if type == "DELETED":
            self._seen.pop(key, None)
        elif self._seen.get(key) == (wish := _wish_of(metadata)):
            if key.kind == "Topic":  # its journal counts those that are ready
                await self.child_changed(body)
            return
        else:
            self._seen[key] = wish
            self._workers.ask(key)
        if key.kind == "Journal":
            self._ask_beside(key)

    async def child_changed(self, body: Mapping[str, Any], **_: object) -> None:
        """A child was changed, or its pods were."""
        metadata = body["metadata"]
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller") and owner["kind"] in KINDS_BY_NAME:
                self._workers.ask(ObjectKey(owner["kind"], metadata["namespace"], owner["name"]))

    async def resync(self, seconds: float) -> None:
        """Look at everything now and then, for what no watch tells: children of kinds that are not watched."""
        while True:
            await asyncio.sleep(seconds)
            for key in list(self._seen):
                self._workers.ask(key)

    def _ask_beside(self, journal: ObjectKey) -> None:
        """Whoever names a journal stands beside it."""
        for key in self._seen:
            if key.namespace == journal.namespace and key.kind != journal.kind:
                self._workers.ask(key)


def registry_of(watched: Watched) -> kopf.OperatorRegistry:
    """The handlers."""
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry, id="account", errors=kopf.ErrorsMode.IGNORED)(kopf.login_with_service_account)
    kopf.on.login(registry=registry, id="kubeconfig", errors=kopf.ErrorsMode.IGNORED)(kopf.login_with_kubeconfig)
    for kind in KINDS:
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(watched.object_changed)
    ours = {MANAGED_BY: FIELD_MANAGER}
    kopf.on.event("apps", "v1", "statefulsets", labels=ours, registry=registry)(watched.child_changed)
    return registry


def kopf_settings(*, is_clusterwide: bool) -> kopf.OperatorSettings:
    """How kopf watches: alone, without a word to any object."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.persistence.finalizer = FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP, v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP, key="last-seen", v1=False)
    settings.scanning.disabled = not is_clusterwide  # no right to list namespaces and definitions is needed
    settings.watching.inactivity_timeout = _INACTIVITY_SECONDS
    settings.process.ultimate_exiting_timeout = 10.0
    return settings


def _wish_of(metadata: Mapping[str, Any]) -> object:
    """What of an object is asked for; a new status leaves it as it is."""
    annotations = tuple(sorted((metadata.get("annotations") or {}).items()))
    return metadata["uid"], metadata.get("generation"), metadata.get("deletionTimestamp"), annotations

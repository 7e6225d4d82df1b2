"""What all children have in common: names, labels, an owner, and a digest of what was asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mailboat.frozen import Frozen

from mailboat_operator.definition import API_VERSION
from mailboat_operator.definition.metadata import Metadata
from mailboat_operator.plan.labels import APPLIED, child_labels, child_name, selector_labels

Manifest = dict[str, Any]
"""A Kubernetes object as JSON."""

KUBEFLOW_APPLICATION: Final = "SparkApplication.sparkoperator.k8s.io"
APACHE_APPLICATION: Final = "SparkApplication.spark.apache.org"
"""Two groups have a kind of this name, so it is never named without its group."""

API_VERSIONS: Final = MappingProxyType(
    {
        "ConfigMap": "v1",
        "Secret": "v1",
        "Service": "v1",
        "StatefulSet": "apps/v1",
        "Deployment": "apps/v1",
        "PodDisruptionBudget": "policy/v1",
        "HorizontalPodAutoscaler": "autoscaling/v2",
        "NetworkPolicy": "networking.k8s.io/v1",
        "ScaledObject": "keda.sh/v1alpha1",
        "TriggerAuthentication": "keda.sh/v1alpha1",
        "Topic": API_VERSION,
        "PackageBuild": API_VERSION,
        KUBEFLOW_APPLICATION: "sparkoperator.k8s.io/v1beta2",
        APACHE_APPLICATION: "spark.apache.org/v1",
    }
)
"""The kinds of children."""


class ChildKey(NamedTuple):
    """Which child: its kind, as manifests write it, and its name; all are of the owner's namespace."""

    kind: str
    name: str


class Owner(Frozen):
    """Whose children are rendered.

    Attributes:
        kind: As manifests write it.
        component: `publisher`, `pool`, `workers`, `build` or `journal`: a label of its children.
        metadata: Of the owner.
    """

    kind: str
    component: str
    metadata: Metadata

    def name_of(self, ending: str = "") -> str:
        """The name of a child."""
        return child_name(self.metadata.name, ending)

    @property
    def labels(self) -> dict[str, str]:
        """Of its children and pods."""
        return child_labels(self.component, self.metadata.name)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that its pods have, and no others."""
        return selector_labels(self.component, self.metadata.name)

    def child(
        self, kind: str, ending: str, content: Mapping[str, Any], annotations: Mapping[str, str] | None = None
    ) -> Manifest:
        """A child with everything that all children have."""
        manifest: Manifest = {
            "apiVersion": API_VERSIONS[kind],
            "kind": kind.partition(".")[0],
            "metadata": {
                "name": self.name_of(ending),
                "namespace": self.metadata.namespace,
                "labels": self.labels,
                "ownerReferences": [self._reference()],
                **({"annotations": dict(annotations)} if annotations else {}),
            },
            **content,
        }
        # of the rendering alone: defaults and fields that the API server and others add do not change it
        digest = digest_of(manifest)
        manifest["metadata"].setdefault("annotations", {})[APPLIED] = digest
        return manifest

    def _reference(self) -> Mapping[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


def key_of(manifest: Manifest) -> ChildKey:
    """Which child a manifest is."""
    return ChildKey(kind_of(manifest), manifest["metadata"]["name"])


def kind_of(manifest: Manifest) -> str:
    """The kind as `ChildKey` names it: with its group where two groups have one of that name."""
    kind: str = manifest["kind"]
    qualified = f"{kind}.{manifest['apiVersion'].partition('/')[0]}"
    return qualified if qualified in API_VERSIONS else kind


def condition_in(manifest: Manifest, type: str) -> Mapping[str, Any]:  # noqa: A002
    """A condition in the status of any object, as the API server gave it; empty if absent."""
    conditions = (manifest.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == type), {})


def digest_of(document: object) -> str:
    """A short digest of a document: the same for the same content, whatever the order of keys."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]

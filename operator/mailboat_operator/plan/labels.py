"""Names of what the operator makes, and the labels and annotations that it is found by.

Services and pods have their owner's name, as people look for them; what else there is has an ending. Pure.
"""

from __future__ import annotations

from typing import Final

from mailboat_operator.definition import GROUP

FIELD_MANAGER: Final = "mailboat-operator"
FINALIZER: Final = f"{GROUP}/finalizer"
APPLIED: Final = f"{GROUP}/applied"
"""Annotation: digest of the manifest as it was rendered; another one means that the wish changed."""
CONFIG_DIGEST: Final = f"{GROUP}/config"
"""Annotation of a pod: digest of what it reads at its start; another one rolls the pods."""
PAUSED: Final = f"{GROUP}/paused"
"""Annotation of one of our objects: `true` leaves it alone, as `spec.suspend` does."""
ACCEPTED_CLUSTER: Final = f"{GROUP}/accepted-cluster"
"""Annotation of a Journal: the id of another Kafka cluster than the one that it used, and is to use from now on."""
ACCEPTED_TOPIC: Final = f"{GROUP}/accepted-topic"
"""Annotation of a Topic: the id of a topic that the object did not create, and that it is to manage. Of a Journal: the
ids for its Topics, separated by commas."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
INSTANCE: Final = "app.kubernetes.io/instance"
NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"

TOKEN_KEY: Final = "token"  # noqa: S105  # the name of an entry
"""The entry of a Secret that has a bearer token."""

PUBLISHER: Final = "publisher"
POOL: Final = "pool"
BUILD: Final = "build"
WORKERS: Final = "workers"


def child_name(owner: str, ending: str = "") -> str:
    """The name of a child: `author`, `author-config`. Callers check that it is free or ours."""
    return f"{owner}-{ending}" if ending else owner


def selector_labels(component: str, owner: str) -> dict[str, str]:
    """Labels that pods of one owner have, and no others: they are never changed."""
    return {NAME: "mailboat", COMPONENT: component, INSTANCE: owner}


def child_labels(component: str, owner: str) -> dict[str, str]:
    """Labels of everything made for one owner."""
    return {**selector_labels(component, owner), MANAGED_BY: FIELD_MANAGER}


def selector_text(component: str, owner: str) -> str:
    """The selector as the scale subresource wants it."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector_labels(component, owner).items()))

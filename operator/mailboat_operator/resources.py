"""The kinds of the Kubernetes API that the operator uses, how it connects, and what the API's errors mean to it.

Called by `cluster`; what is watched, kopf watches.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import httpx2
from lightkube import AsyncClient
from lightkube.config.kubeconfig import KubeConfig
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.generic_resource import GenericNamespacedResource, create_global_resource, create_namespaced_resource
from mailboat.errors import (
    ClusterConflictError,
    ClusterRefusedError,
    ClusterUnavailableError,
    MailboatError,
    UsageError,
)

from mailboat_operator.definition import GROUP, VERSION
from mailboat_operator.kinds.registry import KINDS
from mailboat_operator.plan.child_manifest import APACHE_APPLICATION, API_VERSIONS, KUBEFLOW_APPLICATION
from mailboat_operator.plan.labels import FIELD_MANAGER

REQUEST_SECONDS: Final = 4.0
"""Shorter than what a lease outlives its last renewal, so that no write of a leader lands after the next one began."""
LONGEST_MESSAGE: Final = 1024
_LONGEST_PAUSE_SECONDS: Final = 60.0
"""No news of an object end the pause that the API asks for: a proxy's answer must not put it off for a day."""
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_GONE: Final = 410
_INVALID: Final = 422
_TOO_MANY: Final = 429
_FAULT: Final = 500
_UNTYPED: Final = "failed to create typed patch object"
"""A fault by its code, and a refusal: two entries of a list have one key, such as a variable that we set, too."""
_VERBS: Final = ["delete", "get", "global_list", "global_watch", "list", "patch", "post", "put", "watch"]

FAILURES: Final = (ApiError, httpx2.HTTPError)
"""Everything that a request can end in but success."""

SELF_REVIEW: Final = create_global_resource(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", verbs=["post"]
)
"""The operator's own identity; every account may read its own."""

RESOURCES: Final[Mapping[str, type[GenericNamespacedResource]]] = MappingProxyType(
    {
        kind: create_namespaced_resource(group, version, kind, plural, verbs=_VERBS)
        for group, version, kind, plural in (
            ("", "v1", "ConfigMap", "configmaps"),
            ("", "v1", "Event", "events"),
            ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            ("", "v1", "Pod", "pods"),
            ("", "v1", "Secret", "secrets"),
            ("", "v1", "Service", "services"),
            ("apps", "v1", "Deployment", "deployments"),
            ("apps", "v1", "StatefulSet", "statefulsets"),
            ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
            ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            ("coordination.k8s.io", "v1", "Lease", "leases"),
            ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
            ("keda.sh", "v1alpha1", "TriggerAuthentication", "triggerauthentications"),
            ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
            *((GROUP, VERSION, kind.name, kind.plural) for kind in KINDS),
        )
    }
    | {
        kind: create_namespaced_resource(group, version, "SparkApplication", "sparkapplications", verbs=_VERBS)
        for kind in (KUBEFLOW_APPLICATION, APACHE_APPLICATION)
        for group, _, version in (API_VERSIONS[kind].partition("/"),)
    }
)


def connect(config: KubeConfig | None) -> AsyncClient:
    """A client by the pod's service account or by KUBECONFIG, or by `config`. Raises: UsageError."""
    try:
        return AsyncClient(
            config=config, timeout=httpx2.Timeout(REQUEST_SECONDS), field_manager=FIELD_MANAGER, trust_env=True
        )
    except ConfigError as error:
        raise UsageError(f"no cluster to connect to: {error}") from error


async def delete_exactly(
    client: AsyncClient, resource: type[GenericNamespacedResource], namespace: str, name: str, uid: str
) -> None:
    """Delete the object of that uid. The client's own `delete` sends no body, and so no precondition.

    Raises: see `FAILURES`.
    """
    generic: Any = client._client  # noqa: SLF001
    prepared = generic.prepare_request("delete", resource, name=name, namespace=namespace)
    prepared.data = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
    answer = await generic.send(generic.build_adapter_request(prepared))
    generic.handle_response("delete", answer, prepared)


def is_missing(error: BaseException | None) -> bool:
    """Whether there is no such object, or no such kind."""
    return _code_of(error) == _NOT_FOUND


def is_forbidden(error: BaseException | None) -> bool:
    """Whether our account lacks the right, as it does in a namespace that went with our Role in it."""
    return _code_of(error) == _FORBIDDEN


def is_invalid(error: BaseException | None) -> bool:
    """Whether the object would be invalid after the request."""
    return isinstance(error, ApiError) and _code_of(error) == _INVALID


def is_of_going_namespace(error: MailboatError) -> bool:
    """Whether a request was refused because its namespace is being deleted."""
    cause = error.__cause__
    details = cause.status.details if isinstance(cause, ApiError) else None
    return any(
        cause.reason == "NamespaceTerminating" for cause in (details.causes if details is not None else None) or ()
    )


def is_out_of_sight(error: Exception) -> bool:
    """Whether the kind is missing or hidden from us: the answer for an unserved path is not a Status."""
    return is_forbidden(error) or (_code_of(error) == _NOT_FOUND and not isinstance(error, ApiError))


def mapped(error: Exception, doing: str) -> MailboatError:
    """Our error for one of the client's or the network's."""
    code = _code_of(error)
    if code in {_CONFLICT, _NOT_FOUND, _GONE}:
        return ClusterConflictError(f"{doing}: {_text_of(error)}")
    # no code: the request got no answer
    if code is None or code == _TOO_MANY or (code >= _FAULT and _UNTYPED not in str(error)):
        return ClusterUnavailableError(f"{doing}: {_text_of(error)}", retry_after_seconds=_retry_after(error))
    return ClusterRefusedError(f"{doing}: {_text_of(error)}")


def _code_of(error: BaseException | None) -> int | None:
    if isinstance(error, ApiError):
        return error.status.code
    return error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None


def _text_of(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:LONGEST_MESSAGE]


def _retry_after(error: Exception) -> float | None:
    """Said in the answer's body, or, by a server that sheds load, in its header alone."""
    details = error.status.details if isinstance(error, ApiError) else None
    if details is not None and details.retryAfterSeconds is not None:
        return min(float(details.retryAfterSeconds), _LONGEST_PAUSE_SECONDS)
    response = getattr(error, "response", None)
    header = "" if response is None else response.headers.get("Retry-After", "")
    return min(float(header), _LONGEST_PAUSE_SECONDS) if header.isdecimal() else None

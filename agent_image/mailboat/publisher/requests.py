"""Distribution requests: what a caller asks of a publisher, checked before anything is read or written.

A request stands for itself through its fingerprint: two requests under one request id are the same request when their
fingerprints are equal, whatever the source held at the time. Made by the command line and the HTTP API.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mailboat.content.port import Source
from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.filters import WorkspaceFilter, filter_for
from mailboat.model.identifiers import RequestId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath

MAX_PATHS: Final = 500


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """One request, which becomes one package.

    Attributes:
        action: What to do.
        paths: All paths concerned, each once.
        deep_paths: Those of them that mean their whole subtree (ADD only; a DELETE always removes subtrees).
        request_id: The caller's name for the request. The same id again is the same request: it gives the same
            receipt, and one message. None means that the caller won't retry.
        user_id: Who asked.
        trace_parent: W3C trace context of the caller; what is none is dropped.
    """

    action: Action
    paths: tuple[NodePath, ...] = ()
    deep_paths: frozenset[NodePath] = frozenset()
    request_id: RequestId | None = None
    user_id: str | None = None
    trace_parent: str | None = None

    @property
    def filter(self) -> WorkspaceFilter:
        """What the package of an ADD will own."""
        return filter_for(self.paths, self.deep_paths)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of what is asked for, without request id and user: equal for equal requests."""
        total = hashlib.sha256(self.action.value.encode())
        for path in sorted(self.paths):
            total.update(b"\0deep\0" if path in self.deep_paths else b"\0path\0")
            total.update(path.encode())
        return total.digest()


def add_request(
    paths: Iterable[NodePath],
    *,
    is_deep: bool = True,
    request_id: RequestId | None = None,
    user_id: str | None = None,
) -> DistributionRequest:
    """The ADD of some paths, all deep or all shallow; a path that is named twice counts once."""
    once = tuple(dict.fromkeys(paths))
    return DistributionRequest(Action.ADD, once, frozenset(once if is_deep else ()), request_id, user_id)


def check_request(request: DistributionRequest, max_paths: int = MAX_PATHS) -> None:
    """Refuse what can't be meant.

    Raises:
        UsageError: No paths (all but TEST need some), a path twice, or a deep path that is not among the paths.
        LimitExceededError: More than `max_paths` paths. Publish a common parent, or several requests.
    """
    if not request.paths and request.action is not Action.TEST:
        raise UsageError(f"{request.action} needs at least one path", action=request.action)
    if len(request.paths) > max_paths:
        raise LimitExceededError(
            f"a request has {len(request.paths)} paths, the limit is {max_paths}",
            next_step="publish a common parent of the paths, or make several requests",
            limit=max_paths,
        )
    if len(set(request.paths)) != len(request.paths):
        twice = next(path for path in request.paths if request.paths.count(path) > 1)
        raise UsageError(f"the request names {twice} twice", path=twice)
    strays = request.deep_paths.difference(request.paths)
    if strays:
        raise UsageError(f"{min(strays)} is deep but not among the request's paths", path=min(strays))
    if request.action is Action.DELETE and "/" in request.paths:
        raise UsageError("the root can't be deleted; name the paths below it", path="/")


def check_source(request: DistributionRequest, source: Source | None) -> None:
    """An ADD has a source, and nothing else has. Raises: UsageError."""
    if request.action is Action.ADD and source is None:
        raise UsageError("an ADD needs a source to read the content from")
    if request.action is not Action.ADD and source is not None:
        raise UsageError(f"{request.action} carries no content, so it takes no source")

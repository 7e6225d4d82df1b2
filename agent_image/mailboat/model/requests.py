"""Distribution requests: what a caller asks of a publisher, validated before anything is read or written.

Two requests with one request id are the same request when their fingerprints are equal, whatever the source held at the
time. The command line, the HTTP API and the operator build them; the control API and publishers take them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.filters import WorkspaceFilter, filter_for
from mailboat.model.identifiers import RequestId, parse_request_id
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath, parse_path

MAX_PATHS: Final = 500
MAX_PATHS_BYTES: Final = 128 * 1024
"""Of the paths of one of many packages: its message names each of them, and deep ones twice."""
MAX_USER_LENGTH: Final = 200
BULK_CONTENT_BYTES: Final = 4 * 1024 * 1024
"""Of one package of a bulk build, unless it says otherwise; here, as the operator has the same default."""
BULK_NODES: Final = 2_000
"""Of one package of a bulk build, unless it says otherwise."""
_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class DistributionRequest:
    """One request, which becomes one package.

    Attributes:
        action: ADD, DELETE, INVALIDATE or TEST.
        paths: The content paths concerned, each once.
        deep_paths: The paths of an ADD that stand for their whole subtree; a DELETE always removes subtrees.
        request_id: Idempotency key: reusing it never publishes twice. None: the caller will not retry.
        user_id: The caller.
        trace_parent: W3C trace context of the caller; an invalid one is ignored.
    """

    action: Action
    paths: tuple[NodePath, ...] = ()
    deep_paths: frozenset[NodePath] = frozenset()
    request_id: RequestId | None = None
    user_id: str | None = None
    trace_parent: str | None = None

    @property
    def filter(self) -> WorkspaceFilter:
        """The filter of the package of an ADD."""
        return filter_for(self.paths, self.deep_paths)

    @property
    def fingerprint(self) -> bytes:
        """SHA-256 of action and paths, without request id and user: equal for equal requests."""
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
    """Refuse an invalid request.

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


def parse_request(
    action: str,
    paths: Sequence[str] = (),
    deep_paths: Sequence[str] = (),
    request_id: str | None = None,
    user_id: str | None = None,
    trace_parent: str | None = None,
) -> DistributionRequest:
    """The request that untrusted texts describe, as they come over HTTP.

    Raises:
        UsageError: An unknown action, an invalid request id or user id, or what `check_request` refuses.
        PathRefusedError: A path is invalid.
        LimitExceededError: More paths than a request may have.
    """
    for texts in (paths, deep_paths):
        if len(texts) > MAX_PATHS:
            raise LimitExceededError(f"a request has {len(texts)} paths, the limit is {MAX_PATHS}", limit=MAX_PATHS)
    known = _action(action)
    deep = deep_paths if known is Action.ADD else ()  # the other actions have no depth to choose
    request = DistributionRequest(
        known,
        tuple(map(parse_path, paths)),
        frozenset(map(parse_path, deep)),
        None if request_id is None else parse_request_id(request_id),
        _user_id(user_id),
        trace_parent,
    )
    check_request(request)
    return request


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as error:
        raise UsageError(f"unknown action {text[:_SHOWN]!r}; expected one of {', '.join(Action)}") from error


def _user_id(text: str | None) -> str | None:
    if text is not None and (len(text) > MAX_USER_LENGTH or not text.isprintable()):
        raise UsageError(f"a user id has at most {MAX_USER_LENGTH} printable characters")
    return text or None

"""From what a caller orders to a request that a publisher takes. An order is hostile until it is checked here."""

from __future__ import annotations

from typing import Final

from mailboat.api.records import DistributionOrder
from mailboat.errors import LimitExceededError, UsageError
from mailboat.model.identifiers import parse_request_id
from mailboat.model.messages import Action
from mailboat.model.paths import parse_path
from mailboat.publisher.requests import MAX_PATHS, DistributionRequest, check_request

MAX_USER_LENGTH: Final = 200
ANONYMOUS: Final = "anonymous"
_SHOWN: Final = 40


def request_of(order: DistributionOrder) -> DistributionRequest:
    """The request that an order means.

    Raises:
        UsageError: An action that there isn't, no path, one twice, a deep path that is not among the paths.
        PathRefusedError: One is no path.
        LimitExceededError: More paths than a request may have.
    """
    for paths in (order.paths, order.deep_paths):
        if len(paths) > MAX_PATHS:
            raise LimitExceededError(f"a request has {len(paths)} paths, the limit is {MAX_PATHS}", limit=MAX_PATHS)
    action = _action(order.action)
    deep_paths = order.deep_paths if action is Action.ADD else ()  # the other actions have no depth to choose
    request = DistributionRequest(
        action,
        tuple(map(parse_path, order.paths)),
        frozenset(map(parse_path, deep_paths)),
        None if order.request_id is None else parse_request_id(order.request_id),
        _user_id(order.user_id),
        order.trace_parent,
    )
    check_request(request)
    return request


def _action(text: str) -> Action:
    try:
        return Action(text)
    except ValueError as error:
        names = ", ".join(Action)
        raise UsageError(f"{text[:_SHOWN]!r} is no action: one of {names} is expected") from error


def _user_id(text: str | None) -> str | None:
    if text is not None and (len(text) > MAX_USER_LENGTH or not text.isprintable()):
        raise UsageError(f"a user id has at most {MAX_USER_LENGTH} printable characters")
    return text or None

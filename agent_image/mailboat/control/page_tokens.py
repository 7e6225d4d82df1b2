"""Page tokens: where a page of a sorted list ended, as the sort key of its last item.

A page begins behind a key instead of at a number, so the order is stable while items come and go: none is shown twice,
and none that stays is left out. Used by the control service and by the HTTP API for all lists that have no offsets.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TypeVar

from mailboat.errors import UsageError

Key = tuple[str | int, ...]
T = TypeVar("T")


def page_of(
    items: Iterable[T], key: Callable[[T], Key], token: str | None, max_items: int
) -> tuple[list[T], str | None]:
    """The items of one page, ordered by key, and the token of the next page; None after the last.

    Raises: UsageError: the token is not one of this list.
    """
    ordered = sorted(items, key=key)
    if token is not None and ordered:
        after = _key_of(token, key(ordered[0]))
        ordered = [item for item in ordered if key(item) > after]
    page = list(islice(ordered, max_items))
    return page, _token_of(key(page[-1])) if len(ordered) > len(page) else None


def _token_of(key: Key) -> str:
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _key_of(token: str, like: Key) -> Key:
    try:
        found = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or [type(load) for load in found] != [_plain_type(value) for value in like]:
        raise UsageError(f"unknown page token {token[:40]!r}", next_step="begin again without a page token")
    return tuple(found)


def _plain_type(part: str | int) -> type:
    return str if isinstance(part, str) else int

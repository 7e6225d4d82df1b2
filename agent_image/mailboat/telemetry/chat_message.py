"""A distributed event as a message for chat systems that take Slack's incoming webhooks. Pure.

The text holds what others wrote: paths and names. Slack makes links and mentions of `<…>`, Mattermost of `@name`; both
are disarmed. Source: https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import json
from typing import Final

from mailboat.model.messages import DistributedEvent

CONTENT_TYPE: Final = "application/json; charset=utf-8"

_NAMED: Final = 5
_LONGEST: Final = 300
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "@\u200b", "`": "'"})
"""A zero-width space behind `@` keeps it from being a mention; a backtick would end the code that shows a path."""


def encode_chat_message(event: DistributedEvent) -> bytes:
    """The body of a post: `text`, in one or two lines."""
    paths = ", ".join(f"`{_plain(path)}`" for path in event.paths[:_NAMED])
    more = len(event.paths) - _NAMED
    what = f"{paths or 'a package'}{f' and {more} more' if more > 0 else ''} (offset {event.offset})"
    name = _plain(event.pub_agent_name)
    if not event.missed:
        return _body(f"{name}: {what} is distributed to all subscribers")
    missed = ", ".join(f"{_plain(one.subscriber)} ({one.reason})" for one in event.missed[:_NAMED])
    others = len(event.missed) - _NAMED
    return _body(f":warning: {name}: {what} is missing at {missed}{f' and {others} more' if others > 0 else ''}")


def _plain(text: str) -> str:
    shown = "".join(one if one.isprintable() else " " for one in text[:_LONGEST])
    return f"{shown.translate(_ESCAPES)}{'…' if len(text) > _LONGEST else ''}"


def _body(text: str) -> bytes:
    return json.dumps({"text": text}, ensure_ascii=False).encode()

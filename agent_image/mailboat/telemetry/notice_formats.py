"""Makes messages of notices: CloudEvents, chat systems, lines of an e-mail. Pure.

A notice holds paths, names and reasons that strangers wrote. Each format shows such text as code, or as plain text,
so that it is not a link, a mention or markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mailboat.config.receivers import EventSeverity, WebhookFormat
from mailboat.telemetry.notices import Notice, UntrustedText

CLOUD_EVENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
JSON_TYPE: Final = "application/json; charset=utf-8"

_LONGEST_PART: Final = 200
_LONGEST_TEXT: Final = 2000
"""Discord refuses longer messages: https://docs.discord.com/developers/resources/webhook#execute-webhook"""

_SIGNS: Final[Mapping[EventSeverity, str]] = {EventSeverity.WARNING: "\u26a0\ufe0f ", EventSeverity.ERROR: "\u274c "}
_CODE: Final = str.maketrans({"`": "'", "@": "@\u200b"})
"""A backtick would end the code that shows the text; a zero-width space behind `@` keeps it from being a mention."""

_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""Slack makes links and mentions of `<…>`, also in code: https://docs.slack.dev/messaging/formatting-message-text"""

_SUPPRESS_EMBEDS: Final = 1 << 2
"""A flag of Discord's messages: no previews of what looks like a link."""


def encode_notice(notice: Notice, body: WebhookFormat) -> bytes:
    """The body of a request."""
    return json.dumps(_DOCUMENTS[body](notice), ensure_ascii=False).encode()


def media_type(body: WebhookFormat) -> str:
    """The media type of a format's bodies."""
    return CLOUD_EVENT_TYPE if body is WebhookFormat.CLOUDEVENTS else JSON_TYPE


def plain_text(notice: Notice) -> str:
    """One line without markup."""
    return _joined(notice.text, shown)


def shown(text: str) -> str:
    """Foreign text in one line, shortened, without control characters and changes of direction."""
    line = "".join(char if char.isprintable() else " " for char in text[:_LONGEST_PART]).strip()
    return f"{line or '(empty)'}{'…' if len(text) > _LONGEST_PART else ''}"


def _joined(parts: Sequence[str], foreign: Callable[[str], str]) -> str:
    """The parts as one text; what is too long ends after a whole part, so that no markup stays open."""
    found, length = list[str](), 0
    for part in parts:
        text = foreign(part) if isinstance(part, UntrustedText) else part
        length += len(text)
        if length > _LONGEST_TEXT - 1:
            return f"{''.join(found)}…"
        found.append(text)
    return "".join(found)


def _marked(notice: Notice, foreign: Callable[[str], str]) -> str:
    return _joined([_SIGNS.get(notice.severity, ""), *notice.text], foreign)


def _code(text: str) -> str:
    return f"`{shown(text).translate(_CODE)}`"


def _slack_code(text: str) -> str:
    return f"`{shown(text).translate(_ENTITIES).translate(_CODE)}`"


def _slack(notice: Notice) -> dict[str, object]:
    return {"text": _marked(notice, _slack_code)}


def _mattermost(notice: Notice) -> dict[str, object]:
    return {"text": _marked(notice, _code)}


def _discord(notice: Notice) -> dict[str, object]:
    return {"content": _marked(notice, _code), "allowed_mentions": {"parse": []}, "flags": _SUPPRESS_EMBEDS}


def _teams(notice: Notice) -> dict[str, object]:
    """An adaptive card. Its text runs are the element that does not parse Markdown.

    Source: https://adaptivecards.io/explorer/TextRun.html, and Microsoft's page on webhooks of Teams workflows.
    """
    runs: list[dict[str, Any]] = [{"type": "TextRun", "text": _SIGNS.get(notice.severity, "")}]
    for part in notice.text:
        is_foreign = isinstance(part, UntrustedText)
        run = {"type": "TextRun", "text": shown(part) if is_foreign else part}
        runs.append({**run, "fontType": "Monospace"} if is_foreign else run)
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [{"type": "RichTextBlock", "inlines": [run for run in runs if run["text"]]}],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "contentUrl": None, "content": card}]}


_DOCUMENTS: Final[Mapping[WebhookFormat, Callable[[Notice], Mapping[str, object]]]] = {
    WebhookFormat.CLOUDEVENTS: lambda notice: notice.document,
    WebhookFormat.SLACK: _slack,
    WebhookFormat.MATTERMOST: _mattermost,
    WebhookFormat.TEAMS: _teams,
    WebhookFormat.DISCORD: _discord,
}

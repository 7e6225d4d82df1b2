"""Notices of packages in each format, with hostile text, and the filter that selects them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email import message_from_bytes, policy
from typing import Any

import pytest
from mailboat.config.receivers import EventKind, EventSeverity, MailConfig, RelayConfig, WebhookFormat
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import DistributedEvent, Missed, MissedReason
from mailboat.model.path_patterns import parse_subtree
from mailboat.model.paths import NodePath
from mailboat.telemetry.mail_client import MailSender, RelayAccess, compose_mail
from mailboat.telemetry.notice_formats import encode_notice, plain_text
from mailboat.telemetry.notices import EventFilter
from mailboat.telemetry.package_events import package_notice

EDGE = "5a1e0000-0000-0000-0000-000000000000-edge-3"
MISSED = Missed(EDGE, MissedReason.FAILED)
CHATS = [WebhookFormat.SLACK, WebhookFormat.MATTERMOST, WebhookFormat.DISCORD]
HOSTILE = [
    "/<!channel>",
    "/@all",
    "/`x`",
    "/<https://evil.example|ok>",
    "/[ok](https://evil.example)",
    "/a\r\nBcc: spy@evil.example",
    "/\u202egnp.exe",
    "/" + "x" * 5000,
]


def event(*paths: str, missed: tuple[Missed, ...] = (), deep: tuple[str, ...] = ()) -> DistributedEvent:
    nodes, deep_nodes = tuple(map(NodePath, paths)), tuple(map(NodePath, deep))
    return DistributedEvent(AgentName("author"), PackageId("p1"), Offset(41), nodes, deep_nodes, missed=missed)


def document_of(sent: DistributedEvent, body: WebhookFormat) -> Any:
    return json.loads(encode_notice(package_notice(sent, 0), body))


def text_of(sent: DistributedEvent, body: WebhookFormat = WebhookFormat.SLACK) -> str:
    document = document_of(sent, body)
    text: str = document["content" if body is WebhookFormat.DISCORD else "text"]
    return text


def test_message_names_publisher_paths_and_offset() -> None:
    text = text_of(event(*(f"/news/{n}" for n in range(7))))
    assert text.startswith("`author`: `/news/0`, `/news/1`")
    assert text.endswith("and 2 more (offset 41) is distributed to all subscribers")


def test_message_of_a_missed_package_names_subscriber_reason_and_severity() -> None:
    text = "`author`: `/a` (offset 41) is missing at `edge-3` "
    assert text_of(event("/a", missed=(MISSED,))) == f"\u274c {text}(failed)"
    absent = Missed(EDGE, MissedReason.ABSENT)
    assert text_of(event("/a", missed=(absent,))) == f"\u26a0\ufe0f {text}(absent)"
    assert text_of(event("/a", missed=(MISSED,) * 9)).endswith("and 4 more")


@pytest.mark.parametrize("body", CHATS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_paths_and_names_are_code_in_chats(hostile: str, body: WebhookFormat) -> None:
    text = text_of(event(hostile, missed=(Missed(hostile, MissedReason.FAILED),)), body)
    outside = text.split("`")[::2]
    assert "".join(outside) == "\u274c :  (offset 41) is missing at  (failed)"
    assert text.isprintable() or "\u200b" in text or "\ufe0f" in text
    assert not {"\r", "\n", "\u202e"} & set(text)
    assert "@all" not in text
    assert body is not WebhookFormat.SLACK or "<" not in text
    assert len(text) < 700


def test_long_messages_stay_below_the_limit_of_discord_with_closed_code() -> None:
    long = event(*("/" + "x" * 5000 for _ in range(9)), missed=(Missed("y" * 5000, MissedReason.FAILED),) * 9)
    document = document_of(long, WebhookFormat.DISCORD)
    assert len(document["content"]) <= 2000
    assert document["content"].count("`") % 2 == 0
    assert document["allowed_mentions"] == {"parse": []}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_card_for_teams_has_hostile_text_in_runs_without_markdown(hostile: str) -> None:
    document = document_of(event(hostile), WebhookFormat.TEAMS)
    (attachment,) = document["attachments"]
    (block,) = attachment["content"]["body"]
    assert block["type"] == "RichTextBlock"
    (path,) = [run["text"] for run in block["inlines"] if run["text"].startswith("/")]
    assert path.isprintable()
    assert {run["type"] for run in block["inlines"]} == {"TextRun"}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_mail_has_no_header_and_no_line_of_a_stranger(hostile: str) -> None:
    notices = [package_notice(event(hostile, missed=(Missed(hostile, MissedReason.FAILED),)), 0)] * 2
    for sent in (notices, notices[:1]):
        mail = compose_mail(sent, "ops", "mailboat@example.org", ["ops@example.org"], datetime(2026, 1, 1, tzinfo=UTC))
        parsed = message_from_bytes(mail.as_bytes(policy=policy.SMTP), policy=policy.default)
        assert parsed["To"] == "ops@example.org"
        assert parsed["Bcc"] is None
        assert len(parsed["Subject"]) < 160
        lines = parsed.get_content().splitlines()
        assert [line[:9] for line in lines] == ["error    "] * len(sent) + ["", "Sent by M"]
        assert "\u202e" not in parsed.get_content()


def test_repeat_of_a_mail_has_the_same_message_id() -> None:
    ids = set()
    for hour in (1, 2):
        now = datetime(2026, 1, 1, hour, tzinfo=UTC)
        mail = compose_mail([package_notice(event("/a"), 0)], "ops", "a@example.org", ["b@example.org"], now)
        ids.add(mail["Message-ID"])
    assert len(ids) == 1


@pytest.mark.parametrize(
    "address", ["", "ops", "a@b@c", "a b@c", "a@b\r\nBcc: x@y", "Ops <a@b>", "ä@b", "a@" + "b" * 300]
)
def test_address_that_is_not_one_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="not a mail address"):
        MailSender(MailConfig("ops", (address,)), RelayConfig("relay", "a@example.org"), RelayAccess())


@pytest.mark.parametrize("host", ["", "a b", "http://relay", "relay\r\nx"])
def test_relay_host_that_is_not_one_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="not a host name"):
        MailSender(MailConfig("ops", ("b@example.org",)), RelayConfig(host, "a@example.org"), RelayAccess())


def test_plain_text_says_empty_for_nothing() -> None:
    assert plain_text(package_notice(event("\n"), 0)).startswith("author: (empty) (offset")


@pytest.mark.parametrize(
    ("paths", "deep", "is_sent"),
    [
        (("/news/1",), (), True),
        (("/en",), (), False),
        (("/",), ("/",), True),
        (("/",), (), False),
        (("/x", "/news"), (), True),
    ],
)
def test_filter_by_paths(paths: tuple[str, ...], deep: tuple[str, ...], is_sent: bool) -> None:  # a table's value
    chosen = EventFilter(patterns=(parse_subtree("/news/**"),))
    assert chosen.accepts(event(*paths, deep=deep)) is is_sent


OTHER = Missed("5a1e0000-0000-0000-0000-000000000000-hub", MissedReason.ABSENT)


@pytest.mark.parametrize(
    ("chosen", "missed", "is_sent"),
    [
        (EventFilter(), (), True),
        (EventFilter(severity=EventSeverity.WARNING), (), False),
        (EventFilter(severity=EventSeverity.WARNING), (OTHER,), True),
        (EventFilter(severity=EventSeverity.ERROR), (OTHER,), False),
        (EventFilter(severity=EventSeverity.ERROR), (OTHER, MISSED), True),
        (EventFilter(kinds=frozenset({EventKind.DISTRIBUTED})), (), True),
        (EventFilter(kinds=frozenset({EventKind.DISTRIBUTED})), (MISSED,), False),
        (EventFilter(kinds=frozenset({EventKind.ABSENT})), (MISSED, OTHER), True),
        (EventFilter(subscribers=("edge-*",)), (), False),
        (EventFilter(subscribers=("edge-*",)), (MISSED,), True),
        (EventFilter(subscribers=("edge-*",)), (OTHER,), False),
        (EventFilter(kinds=frozenset({EventKind.ABSENT}), subscribers=("edge-*",)), (MISSED, OTHER), False),
    ],
)
def test_filter_by_severity_kind_and_subscriber(
    chosen: EventFilter, missed: tuple[Missed, ...], is_sent: bool
) -> None:  # a table's value
    assert chosen.accepts(event("/a", missed=missed)) is is_sent

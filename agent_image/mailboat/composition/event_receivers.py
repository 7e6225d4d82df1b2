"""Receivers of events as the configuration describes them: webhooks, and e-mails through a relay."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mailboat.composition.credentials import read_secret
from mailboat.composition.environment import expanded_path
from mailboat.config.decoder import ConfigInvalidError, Mistake, mistakes_of
from mailboat.config.document import Config
from mailboat.config.receivers import (
    JOB_KINDS,
    PACKAGE_KINDS,
    EventFilterConfig,
    MailConfig,
    MailSecurity,
    RelayConfig,
    WebhookConfig,
)
from mailboat.model.identifiers import parse_agent_name
from mailboat.model.jobs import parse_pattern
from mailboat.model.path_patterns import parse_subtree
from mailboat.telemetry.mail_client import MailSender, RelayAccess, parse_address, parse_relay_host
from mailboat.telemetry.notices import EventFilter
from mailboat.telemetry.webhook_client import WebhookClient, WebhookSender

_RELAY: Final = "events.relay"


def event_filter(config: EventFilterConfig) -> EventFilter:
    """What a receiver gets. Raises: PathRefusedError."""
    return EventFilter(
        config.severity,
        frozenset(config.kinds),
        config.subscribers,
        tuple(parse_subtree(path) for path in config.paths),
        config.jobs,
    )


def webhook_sender(config: WebhookConfig, key: str, folder: Path) -> WebhookSender:
    """The sender of a webhook. Raises: ConfigInvalidError, also for a missing secret."""
    url = config.url
    if config.secret_url is not None:
        url = read_secret(config.secret_url, f"{key}.secret_url", folder)
    if url is None:
        raise ConfigInvalidError(f"{key} needs either url or secret_url", key=key)
    token = None if config.token is None else read_secret(config.token, f"{key}.token", folder)
    return WebhookSender(config, url, token)


def mail_sender(config: MailConfig, relay: RelayConfig, folder: Path) -> MailSender:
    """The sender of e-mails. Raises: ConfigInvalidError, also for a missing secret; UsageError for an address."""
    user = relay.user
    if relay.user_from is not None:
        user = read_secret(relay.user_from, f"{_RELAY}.user_from", folder)
    password = "" if relay.password is None else read_secret(relay.password, f"{_RELAY}.password", folder)
    access = RelayAccess(None if user is None else (user, password), _tls_context(relay, folder))
    return MailSender(config, relay, access)


def _tls_context(relay: RelayConfig, folder: Path) -> ssl.SSLContext | None:
    if relay.security is MailSecurity.NONE:
        return None
    try:
        file = None if relay.ca_file is None else str(folder / expanded_path(relay.ca_file))
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        key = f"{_RELAY}.ca_file"
        raise ConfigInvalidError(f"{key} can't be read as certificates: {error}", key=key) from error


def receiver_mistakes(config: Config, folder: Path) -> Iterator[Mistake]:
    """Everything that is wrong with the receivers, except for their secrets."""
    events = config.events
    names = Counter([*(webhook.name for webhook in events.webhooks), *(mail.name for mail in events.mails)])
    yield from (Mistake("events", f"duplicate name {name}") for name, count in names.items() if count > 1)
    for place, pattern in enumerate(events.jobs):
        yield from mistakes_of(f"events.jobs[{place}]", parse_pattern, pattern)
    publishers = {publisher.name for publisher in config.agents.publishers}
    for number, webhook in enumerate(events.webhooks):
        key = f"events.webhooks[{number}]"
        yield from mistakes_of(f"{key}.name", parse_agent_name, webhook.name)
        if (webhook.url is None) is (webhook.secret_url is None):
            yield Mistake(key, "needs either url or secret_url")
        elif webhook.url is not None:
            yield from mistakes_of(f"{key}.url", WebhookClient, webhook.url, {}, 1.0)
        yield from _filter_mistakes(webhook.filter, f"{key}.filter", publishers)
    if events.mails and events.relay is None:
        yield Mistake(_RELAY, "is missing, and events.mails needs it")
    if events.relay is not None:
        yield from _relay_mistakes(events.relay, folder)
    for number, mail in enumerate(events.mails):
        key = f"events.mails[{number}]"
        yield from mistakes_of(f"{key}.name", parse_agent_name, mail.name)
        if not mail.to:
            yield Mistake(f"{key}.to", "names no recipients")
        for place, address in enumerate(mail.to):
            yield from mistakes_of(f"{key}.to[{place}]", parse_address, address)
        yield from _filter_mistakes(mail.filter, f"{key}.filter", publishers)


def _relay_mistakes(relay: RelayConfig, folder: Path) -> Iterator[Mistake]:
    yield from mistakes_of(f"{_RELAY}.host", parse_relay_host, relay.host)
    yield from mistakes_of(f"{_RELAY}.sender", parse_address, relay.sender)
    yield from mistakes_of(f"{_RELAY}.ca_file", _tls_context, relay, folder)
    has_user = relay.user is not None or relay.user_from is not None
    if has_user is not (relay.password is not None):
        yield Mistake(_RELAY, "needs both user and password, or neither")
    if has_user and relay.security is MailSecurity.NONE:
        yield Mistake(f"{_RELAY}.security", "must be starttls or tls with a password")


def _filter_mistakes(config: EventFilterConfig, key: str, publishers: set[str]) -> Iterator[Mistake]:
    if config.jobs and (config.paths or config.publishers or config.subscribers):
        yield Mistake(f"{key}.jobs", "selects events of jobs; publishers, subscribers and paths are of packages")
    known = JOB_KINDS if config.jobs else PACKAGE_KINDS
    for place, kind in enumerate(config.kinds):
        if kind not in known:
            what = "jobs" if config.jobs else "packages"
            yield Mistake(f"{key}.kinds[{place}]", f"{kind} is not a kind of events of {what}")
    for place, name in enumerate(config.publishers):
        if name not in publishers:
            yield Mistake(f"{key}.publishers[{place}]", f"{name!r} is not a publisher of agents.publishers")
    for place, pattern in enumerate(config.jobs):
        yield from mistakes_of(f"{key}.jobs[{place}]", parse_pattern, pattern)
    for place, path in enumerate(config.paths):
        yield from mistakes_of(f"{key}.paths[{place}]", parse_subtree, path)

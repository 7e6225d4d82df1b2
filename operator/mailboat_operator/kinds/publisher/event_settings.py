"""Which events a publisher sends to which receivers: webhooks, and e-mails through a relay."""

from __future__ import annotations

from typing import ClassVar

from mailboat.config.receivers import (
    PACKAGE_KINDS,
    EventFilterConfig,
    EventKind,
    EventsConfig,
    MailConfig,
    MailSecurity,
    RelayConfig,
    WebhookConfig,
)

from mailboat_operator.definition.fields import Field, Renamed, Rule
from mailboat_operator.definition.forms import (
    CANT_BE_CONTENT,
    DURATION_OF_SECONDS,
    HOST_NAME,
    LABEL,
    MAIL_ADDRESS,
    NAME_PATTERN,
    PATH_PATTERN,
    REQUEST,
    URL,
    can_be_content,
    can_be_content_in_cel,
)
from mailboat_operator.definition.metadata import Reference

_JOB_KINDS = sorted(str(kind) for kind in frozenset(EventKind) - PACKAGE_KINDS)


class EventFilter(EventFilterConfig):
    """Which events a receiver gets: those that match every field that is set."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!has(self.kinds) || self.kinds.all(kind, !(kind in {_JOB_KINDS}))",
            "packages have the kinds distributed, failed, removed, skipped, unknown and absent",
            ".kinds",
            lambda chosen: PACKAGE_KINDS.issuperset(chosen.kinds),
        ),
        Rule(
            f"!has(self.paths) || self.paths.all(one, {can_be_content_in_cel('one')})",
            f"paths {CANT_BE_CONTENT}",
            ".paths",
            lambda chosen: all(map(can_be_content, chosen.paths)),
        ),
    )
    FIELDS: ClassVar = {
        "severity": Field(),
        "kinds": Field("Kinds of events. Default: all.", max_items=6, key=""),
        "subscribers": Field(
            "Only packages that one of these subscribers does not have, such as `edge-*`. Default: all packages.",
            form=NAME_PATTERN,
            max_items=32,
            key="",
        ),
        "paths": Field(
            "Path patterns: only packages with a path below one of them. Default: all.",
            form=PATH_PATTERN,
            max_items=32,
            key="",
        ),
    }


class Webhook(WebhookConfig):
    """A receiver that events are posted to."""

    RENAMED: ClassVar = (
        Renamed("only", "filter.severity", default="all"),
        Renamed("paths", "filter.paths", default=None),
    )
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.url) != has(self.urlSecretRef)",
            "either url or urlSecretRef is needed",
            ".url",
            lambda webhook: (webhook.url is None) is not (webhook.url_secret_ref is None),
        ),
    )
    FIELDS: ClassVar = {
        "name": Field(form=LABEL),
        "url": Field(form=URL),
        "url_secret_ref": Field("Secret with `url`, instead of `url`."),
        "token_secret_ref": Field("Secret with `token`, a bearer token to send."),
        "timeout_seconds": Field(form=REQUEST),
        "format": Field(),
        "filter": Field(),
    }

    url_secret_ref: Reference | None = None
    token_secret_ref: Reference | None = None
    filter: EventFilter = EventFilter()


class Relay(RelayConfig):
    """The SMTP relay that e-mails are handed to."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.credentialsSecretRef) || self.security != 'none'",
            "credentials need encryption: starttls or tls",
            ".security",
            lambda relay: relay.credentials_secret_ref is None or relay.security is not MailSecurity.NONE,
        ),
    )
    FIELDS: ClassVar = {
        "host": Field(form=HOST_NAME),
        "sender": Field(form=MAIL_ADDRESS),
        "port": Field(),
        "security": Field(),
        "credentials_secret_ref": Field("Secret with `username` and `password`. Default: no login."),
        "ca_secret_ref": Field(
            "Secret with `ca.crt`: CA bundle for the relay's certificate. Default: the image's trust store."
        ),
        "timeout_seconds": Field(form=REQUEST),
    }

    credentials_secret_ref: Reference | None = None
    ca_secret_ref: Reference | None = None


class Mail(MailConfig):
    """Recipients that events are mailed to, through the relay."""

    FIELDS: ClassVar = {
        "name": Field(form=LABEL),
        "to": Field(form=MAIL_ADDRESS, min_items=1, max_items=32, key=""),
        "every_seconds": Field(form=DURATION_OF_SECONDS),
        "filter": Field(),
    }

    filter: EventFilter = EventFilter()


class Events(EventsConfig):
    """Events that a publisher sends when all subscribers have a package."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.mails) || self.mails.size() == 0 || has(self.relay)",
            "mails need a relay",
            ".relay",
            lambda events: not events.mails or events.relay is not None,
        ),
        Rule(
            "!has(self.webhooks) || !has(self.mails) || "
            "self.webhooks.all(one, !self.mails.exists(other, other.name == one.name))",
            "a webhook and a mail can't have the same name",
            ".mails",
            lambda events: {hook.name for hook in events.webhooks}.isdisjoint(mail.name for mail in events.mails),
        ),
    )
    FIELDS: ClassVar = {
        "silent_seconds": Field(form=DURATION_OF_SECONDS),
        "webhooks": Field(max_items=8, key="name"),
        "relay": Field("SMTP relay for `mails`."),
        "mails": Field(max_items=8, key="name"),
    }

    webhooks: tuple[Webhook, ...] = ()
    relay: Relay | None = None
    mails: tuple[Mail, ...] = ()

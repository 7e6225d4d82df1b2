"""Which events a publisher sends to which receivers: webhooks, and e-mails through a relay."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mailboat.config.receivers import (
    PACKAGE_KINDS,
    EventFilterConfig,
    EventKind,
    EventSeverity,
    MailConfig,
    MailSecurity,
    WebhookFormat,
)
from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Renamed, Rule
from mailboat_operator.definition.forms import (
    DURATION,
    DURATION_OF_SECONDS,
    HOST_NAME,
    LABEL,
    MAIL_ADDRESS,
    NAME_PATTERN,
    PATH_PATTERN,
    URL,
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
    )

    severity: Annotated[
        EventSeverity,
        Field("Minimum severity: a given-up package is an error, one that is missing for another reason a warning."),
    ] = EventSeverity.INFO
    kinds: Annotated[tuple[EventKind, ...], Field("Kinds of events. Default: all.", max_items=6, key="")] = ()
    subscribers: Annotated[
        tuple[str, ...],
        Field(
            "Only packages that one of these subscribers does not have, such as `edge-*`. Default: all packages.",
            form=NAME_PATTERN,
            max_items=32,
            key="",
        ),
    ] = ()
    paths: Annotated[
        tuple[str, ...],
        Field(
            "Path patterns: only packages with a path below one of them. Default: all.",
            form=PATH_PATTERN,
            max_items=32,
            key="",
        ),
    ] = ()


class Webhook(Frozen):
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

    name: Annotated[str, Field("Unique name; a new one starts at the next event.", form=LABEL)]
    url: Annotated[str | None, Field("URL that events are posted to.", form=URL)] = None
    url_secret_ref: Annotated[Reference | None, Field("Secret with `url`, instead of `url`.")] = None
    token_secret_ref: Annotated[Reference | None, Field("Secret with `token`, a bearer token to send.")] = None
    timeout_seconds: Annotated[float, Field("Time limit of one request; then it is retried.", form=DURATION)] = 10.0
    format: Annotated[WebhookFormat, Field("Format of the body.")] = WebhookFormat.CLOUDEVENTS
    filter: Annotated[EventFilter, Field("Which events are posted.")] = EventFilter()


class Relay(Frozen):
    """The SMTP relay that e-mails are handed to."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.credentialsSecretRef) || self.security != 'none'",
            "credentials need encryption: starttls or tls",
            ".security",
            lambda relay: relay.credentials_secret_ref is None or relay.security is not MailSecurity.NONE,
        ),
    )

    host: Annotated[str, Field("Host of the relay.", form=HOST_NAME)]
    sender: Annotated[str, Field("Address of the sender.", form=MAIL_ADDRESS)]
    port: Annotated[int, Field("Port of the relay.", minimum=1, maximum=65_535)] = 587
    security: Annotated[MailSecurity, Field("Encryption. `tls`: from the start, usually on port 465.")] = (
        MailSecurity.STARTTLS
    )
    credentials_secret_ref: Annotated[
        Reference | None, Field("Secret with `username` and `password`. Default: no login.")
    ] = None
    ca_secret_ref: Annotated[
        Reference | None,
        Field("Secret with `ca.crt`: CA bundle for the relay's certificate. Default: the image's trust store."),
    ] = None
    timeout_seconds: Annotated[float, Field("Time limit of one e-mail.", form=DURATION)] = 30.0


class Mail(MailConfig):
    """Recipients that events are mailed to, through the relay."""

    name: Annotated[str, Field("Unique name; a new one starts at the next event.", form=LABEL)]
    to: Annotated[
        tuple[str, ...],
        Field("Addresses of the recipients.", form=MAIL_ADDRESS, min_items=1, max_items=32, key=""),
    ]
    every_seconds: Annotated[
        float,
        Field(
            "Minimum time between two e-mails; events in between are sent together, up to 100.",
            form=DURATION_OF_SECONDS,
        ),
    ] = 60.0
    filter: Annotated[EventFilter, Field("Which events are mailed.")] = EventFilter()


class Events(Frozen):
    """Events that a publisher sends when all subscribers have a package."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.mails) || self.mails.size() == 0 || has(self.relay)",
            "mails need a relay",
            ".relay",
            lambda events: not events.mails or events.relay is not None,
        ),
    )

    silent_seconds: Annotated[
        float,
        Field(
            "Time that an event waits for a silent subscriber; then it names that subscriber as `absent`.",
            form=DURATION_OF_SECONDS,
        ),
    ] = 300.0
    webhooks: Annotated[tuple[Webhook, ...], Field("Webhooks that events are posted to.", max_items=8, key="name")] = ()
    relay: Annotated[Relay | None, Field("SMTP relay for `mails`.")] = None
    mails: Annotated[tuple[Mail, ...], Field("Recipients that events are mailed to.", max_items=8, key="name")] = ()

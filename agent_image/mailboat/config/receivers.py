"""The section of events: what is sent when packages arrive or jobs change, to which receivers, in which format."""

from __future__ import annotations

import enum
from typing import Annotated, Final

from mailboat.config.section_keys import Section, Setting
from mailboat.config.storage import Secret


class WebhookFormat(enum.StrEnum):
    """What a webhook's receiver understands."""

    CLOUDEVENTS = "cloudevents"
    SLACK = "slack"
    MATTERMOST = "mattermost"
    TEAMS = "teams"
    DISCORD = "discord"


class EventSeverity(enum.StrEnum):
    """How much an event matters, in rising order."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def reaches(self, least: EventSeverity) -> bool:
        """Whether it is at least that severe."""
        order = list(EventSeverity)
        return order.index(self) >= order.index(least)


class EventKind(enum.StrEnum):
    """What happened. Packages have the first six kinds, jobs the others; both have `failed` and `removed`."""

    DISTRIBUTED = "distributed"
    FAILED = "failed"
    REMOVED = "removed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    ADDED = "added"
    STARTED = "started"
    FINISHED = "finished"
    CANCELLED = "cancelled"


_BOTH = frozenset({EventKind.FAILED, EventKind.REMOVED})
JOB_KINDS = _BOTH | {EventKind.ADDED, EventKind.STARTED, EventKind.FINISHED, EventKind.CANCELLED}
PACKAGE_KINDS = frozenset(EventKind) - JOB_KINDS | _BOTH


class MailSecurity(enum.StrEnum):
    """How the connection to the relay is encrypted."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


class EventFilterConfig(Section):
    """Which events a receiver gets: those that match every key that is set."""

    severity: Annotated[
        EventSeverity,
        Setting("Minimum severity: a given-up package is an error, one that is missing for another reason a warning."),
    ] = EventSeverity.INFO
    kinds: Annotated[tuple[EventKind, ...], Setting("Kinds of events. Empty: all.")] = ()
    publishers: Annotated[
        tuple[str, ...], Setting("Only packages of these publishers. Empty: all publishers of this agent.")
    ] = ()
    subscribers: Annotated[
        tuple[str, ...],
        Setting("Only packages that one of these subscribers does not have, such as `edge-*`. Empty: all packages."),
    ] = ()
    paths: Annotated[
        tuple[str, ...], Setting("Path patterns: only packages with a path below one of them. Empty: all.")
    ] = ()
    jobs: Annotated[
        tuple[str, ...],
        Setting("Patterns of job topics, such as `purge.**`: events of these jobs instead of those of packages."),
    ] = ()


_LONGEST_REQUEST_SECONDS: Final = 240
"""Less than the silence after which a thread counts as stuck (`agent/process.py`), and its agent is restarted."""


class WebhookConfig(Section):
    """A receiver that events are posted to."""

    name: Annotated[str, Setting("Unique name; a new one starts at the next event.")]
    url: Annotated[str | None, Setting("URL that events are posted to.")] = None
    secret_url: Annotated[Secret | None, Setting("The URL as a secret, instead of `url`.")] = None
    token: Annotated[Secret | None, Setting("Bearer token to send.")] = None
    timeout_seconds: Annotated[
        float, Setting("Time limit of one request; then it is retried.", minimum=0.1, maximum=_LONGEST_REQUEST_SECONDS)
    ] = 10.0
    format: Annotated[WebhookFormat, Setting("Format of the body.")] = WebhookFormat.CLOUDEVENTS
    filter: Annotated[EventFilterConfig, Setting("Which events are posted.")] = EventFilterConfig()


class RelayConfig(Section):
    """The SMTP relay that e-mails are handed to."""

    host: Annotated[str, Setting("Host of the relay.")]
    sender: Annotated[str, Setting("Address of the sender.")]
    port: Annotated[int, Setting("Port of the relay.", minimum=1, maximum=65_535)] = 587
    security: Annotated[MailSecurity, Setting("Encryption. `tls`: from the start, usually on port 465.")] = (
        MailSecurity.STARTTLS
    )
    ca_file: Annotated[
        str | None, Setting("CA bundle (PEM) for the relay's certificate. Default: the system trust store.")
    ] = None
    user: Annotated[str | None, Setting("User name. Without one, no login.")] = None
    user_from: Annotated[Secret | None, Setting("User name from a secret.")] = None
    password: Annotated[Secret | None, Setting("Password of the user.")] = None
    timeout_seconds: Annotated[
        float, Setting("Time limit of one e-mail.", minimum=0.1, maximum=_LONGEST_REQUEST_SECONDS)
    ] = 30.0


class MailConfig(Section):
    """Recipients that events are mailed to, through `events.relay`."""

    name: Annotated[str, Setting("Unique name; a new one starts at the next event.")]
    to: Annotated[tuple[str, ...], Setting("Addresses of the recipients.")]
    every_seconds: Annotated[
        float, Setting("Minimum time between two e-mails; events in between are sent together, up to 100.", minimum=1)
    ] = 60.0
    filter: Annotated[EventFilterConfig, Setting("Which events are mailed.")] = EventFilterConfig()


class EventsConfig(Section):
    """Events that publishers send when all subscribers have a package, and those of jobs."""

    silent_seconds: Annotated[
        float,
        Setting(
            "Time that an event waits for a silent subscriber; then it names that subscriber as `absent`.",
            minimum=1,
        ),
    ] = 300.0
    webhooks: Annotated[tuple[WebhookConfig, ...], Setting("Webhooks that events are posted to.")] = ()
    jobs: Annotated[
        tuple[str, ...],
        Setting(
            "Patterns of job topics, such as `purge.**`: events of these jobs are appended to the event topic, too."
        ),
    ] = ()
    relay: Annotated[RelayConfig | None, Setting("SMTP relay for `events.mails`. null: none.")] = None
    mails: Annotated[tuple[MailConfig, ...], Setting("Recipients that events are mailed to.")] = ()

"""What publishers and pools take from others, and how publishers slow down: limits, throttle, events."""

from __future__ import annotations

from typing import Annotated, ClassVar

from mailboat.config.document import LimitsConfig, ThrottleConfig, WebhookConfig, WebhookEvents, WebhookFormat
from mailboat.config.storage import Secret
from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Field, Renamed, Rule
from mailboat_operator.definition.forms import (
    DURATION,
    DURATION_OF_SECONDS,
    DURATION_OR_ZERO,
    LABEL,
    PATH_PATTERN,
    SIZE,
    URL,
)
from mailboat_operator.definition.references import SecretReference

_DEFAULTS = LimitsConfig()


class Limits(Frozen):
    """Limits of one package. Input beyond a limit is refused before anything is written."""

    RENAMED: ClassVar = (Renamed("areCollisionsRefused", "refuseCollisions", default=True),)

    max_entries: Annotated[
        int, Field("Maximum number of nodes or archive entries per package.", minimum=1, maximum=10**9)
    ] = _DEFAULTS.max_entries
    max_entry_size_bytes: Annotated[int, Field("Maximum unpacked size of one binary or archive entry.", form=SIZE)] = (
        _DEFAULTS.max_entry_bytes
    )
    max_total_size_bytes: Annotated[int, Field("Maximum unpacked size of a package.", form=SIZE)] = (
        _DEFAULTS.max_total_bytes
    )
    max_ratio: Annotated[int, Field("Maximum ratio of unpacked to packed size.", minimum=1, maximum=100_000)] = int(
        _DEFAULTS.max_ratio
    )
    max_xml_depth: Annotated[
        int, Field("Maximum nesting of elements in a DocView document.", minimum=1, maximum=1000)
    ] = _DEFAULTS.max_xml_depth
    refuse_collisions: Annotated[
        bool, Field("Refuse two names in one folder that differ in case or Unicode form only.")
    ] = _DEFAULTS.refuse_collisions

    @property
    def config(self) -> LimitsConfig:
        """As the agent reads it."""
        return LimitsConfig(
            max_entries=self.max_entries,
            max_entry_bytes=self.max_entry_size_bytes,
            max_total_bytes=self.max_total_size_bytes,
            max_ratio=float(self.max_ratio),
            max_xml_depth=self.max_xml_depth,
            refuse_collisions=self.refuse_collisions,
        )


class Throttle(Frozen):
    """Publishing slows down while a clearable subscriber lags: the longest delay is reached at twice the limit."""

    RENAMED: ClassVar = (Renamed("isOff", "enabled", default=False),)

    enabled: Annotated[
        bool, Field("Delay publish requests while subscribers lag; if false, the other fields have no effect.")
    ] = True
    max_queue_entries: Annotated[
        int, Field("Backlog of the slowest editable subscriber at which delays begin.", minimum=1, maximum=10**9)
    ] = 1000
    max_delay_seconds: Annotated[float, Field("Maximum delay of one request.", form=DURATION_OR_ZERO)] = 20.0

    @property
    def config(self) -> ThrottleConfig:
        """As the agent reads it."""
        return ThrottleConfig(self.max_queue_entries if self.enabled else None, self.max_delay_seconds)


class Webhook(Frozen):
    """A receiver that distributed events are posted to."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.url) != has(self.urlSecretRef)",
            "either url or urlSecretRef is needed",
            ".url",
            lambda webhook: (webhook.url is None) is not (webhook.url_secret_ref is None),
        ),
    )

    name: Annotated[str, Field("Name, under which its progress is kept.", form=LABEL)]
    url: Annotated[str | None, Field("URL that events are posted to.", form=URL)] = None
    url_secret_ref: Annotated[SecretReference | None, Field("Secret with `url`, instead of `url`.")] = None
    token_secret_ref: Annotated[SecretReference | None, Field("Secret with `token`, a bearer token to send.")] = None
    timeout_seconds: Annotated[float, Field("Time limit of one request.", form=DURATION)] = 10.0
    format: Annotated[WebhookFormat, Field("Format of the body.")] = WebhookFormat.CLOUDEVENTS
    only: Annotated[WebhookEvents, Field("Which events are posted.")] = WebhookEvents.ALL
    paths: Annotated[
        tuple[str, ...],
        Field(
            "Path patterns: only events of packages below them are posted. Default: all.",
            form=PATH_PATTERN,
            max_items=32,
            key="",
        ),
    ] = ()

    def config(self, token_file: str | None, url_file: str | None) -> WebhookConfig:
        """As the agent reads it, with the files that it finds the Secrets in."""
        url, token = (None if file is None else Secret(file=file) for file in (url_file, token_file))
        return WebhookConfig(self.name, self.url, url, token, self.timeout_seconds, self.format, self.only, self.paths)


class Events(Frozen):
    """Events that a publisher sends when all subscribers have a package."""

    silent_seconds: Annotated[
        float,
        Field(
            "Time that an event waits for a silent subscriber; then it is sent and names that subscriber.",
            form=DURATION_OF_SECONDS,
        ),
    ] = 300.0
    webhooks: Annotated[tuple[Webhook, ...], Field("Webhooks that events are posted to.", max_items=8, key="name")] = ()

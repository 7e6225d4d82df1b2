"""Observability of an agent's process: metrics, spans, distributed events and their webhook.

Made by `agent run` only; commands on a home measure nothing. The publishers' events are raised here, by threads besides
the control service: they need a process that stays. Everything is stopped within the deadline of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from mailboat.api.records import QueueView, SubscriberStatusView
from mailboat.clock import Clock, Deadline, milliseconds_now, milliseconds_of
from mailboat.composition.credentials import read_secret
from mailboat.composition.job_rules import job_rules
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import WebhookConfig, WebhookEvents, WebhookFormat
from mailboat.errors import UsageError
from mailboat.failpoints import NoFailpoints
from mailboat.maintenance.schedule import UpkeepFigures
from mailboat.model.identifiers import TopicName, parse_agent_name
from mailboat.model.jobs import parse_pattern
from mailboat.model.messages import TopicRole
from mailboat.model.path_patterns import parse_subtree
from mailboat.model.topics import JOB_TOPIC
from mailboat.publisher.distributed_memory import EventMemory
from mailboat.publisher.distributed_notifier import DistributedNotifier, EventSettings, NotifierPorts
from mailboat.queues.queue_state import Capability, QueueState
from mailboat.retention.task import RetentionFigures
from mailboat.telemetry.exposition import AgentMetrics, Exposition
from mailboat.telemetry.fleet_metrics import FleetFigures, QueueFigures
from mailboat.telemetry.job_event_log import JobEventLog, JobEventLogPorts
from mailboat.telemetry.job_events import JobEvents
from mailboat.telemetry.job_metrics import JobMetrics
from mailboat.telemetry.publisher_metrics import PublisherMetrics
from mailboat.telemetry.request_metrics import RequestRecorder
from mailboat.telemetry.state_log import StateLogger
from mailboat.telemetry.subscriber_metrics import SubscriberMetrics, measured
from mailboat.telemetry.upkeep_metrics import UpkeepMetrics
from mailboat.telemetry.webhook import EventFilter, Webhook, WebhookPorts, WebhookSettings, WebhookStatistics
from mailboat.tracing import NoTracer, Tracer

if TYPE_CHECKING:
    from mailboat.api.control import Control
    from mailboat.composition.home import Home
    from mailboat.composition.workspace import Workspace
    from mailboat.control.job_service import JobService
    from mailboat.subscriber.figures import SubscriberStatistics
    from mailboat.subscriber.settings import Processors
    from mailboat.workers import Worker


class Observability:
    """One for a process. Agents ask it for their meters while they are made.

    Attributes:
        upkeep: Where the maintenance counts what it did.
        retention: Where the keeper of the head counts what it did.
        tracer: Records spans.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        """Nothing is started. Raises: ConfigInvalidError when traces are wanted and can't be sent."""
        self._home = home
        self._clock = clock
        self._metrics = AgentMetrics(clock)
        self._metrics.watch_disk(home.path)
        self._publishers: dict[str, PublisherMetrics] = {}
        self._running: list[DistributedNotifier | JobEventLog | Webhook] = []
        self._opened = ExitStack()
        self.upkeep: Final = UpkeepFigures()
        self.retention: Final = RetentionFigures()
        self._upkeep = UpkeepMetrics(self.retention, self.upkeep)
        self._metrics.add(self._upkeep)
        self.tracer: Final = self._open_tracer()

    @property
    def requests(self) -> RequestRecorder:
        """Counts API requests; for the HTTP server to call."""
        return self._metrics.requests

    def render(self, accept: str = "") -> Exposition:
        """What `/metrics` answers to a scraper that sends this `Accept` header."""
        return self._metrics.render(accept)

    def subscriber_meter(self, name: str, statistics: Callable[[], SubscriberStatistics]) -> SubscriberMetrics:
        """The meter of a subscriber; one that is opened again goes on with it."""
        return self._metrics.subscriber(name, statistics)

    def state_logger(self, name: str) -> StateLogger:
        """Writes a subscriber's state changes to the log."""
        return StateLogger(name)

    def measured(self, processors: Processors, meter: SubscriberMetrics) -> Processors:
        """The same hooks, with the time that they take measured."""
        return measured(processors, meter, self._clock)

    def publisher_meter(self, name: str) -> PublisherMetrics:
        """The meter of a publisher, the same one each time."""
        if name not in self._publishers:
            self._publishers[name] = self._metrics.publisher(name)
        return self._publishers[name]

    def watch_upkeep(self, maintenance: Worker, retention: Worker | None) -> None:
        """Export the counters of these workers, and their failures."""
        self._upkeep.sweep_failures = lambda: maintenance.failures
        if retention is not None:
            self._upkeep.retention_failures = lambda: retention.failures

    def watch_jobs(self, jobs: JobService) -> None:
        """Export the figures of durable jobs."""
        metrics = JobMetrics(jobs.opened_queues)
        jobs.listen(metrics.see)
        self._metrics.add(metrics)

    def start(self, control: Control, workspace: Workspace) -> None:
        """Raise the events of the configured publishers, and export the figures of the control service.

        Raises: ConfigInvalidError for the webhook; the journal's errors, and those of the publishers' states.
        """
        names = tuple(one.name for one in self._home.config.agents.publishers)
        for name in names:
            self._start_events(name, workspace)
        self._metrics.watch(lambda: fleet_figures(control, self._clock, names))

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline; the last spans are sent, if there is time."""
        for one in self._running:
            one.stop(deadline.remaining_seconds())
        self._running.clear()
        self._opened.close()

    def _start_events(self, name: str, workspace: Workspace) -> None:
        meter = self.publisher_meter(name)
        memory = EventMemory(workspace.home.publishers_path / f"{name}.db")
        self._opened.callback(memory.close)
        settings = EventSettings(
            parse_agent_name(name),
            workspace.topic(TopicRole.PACKAGE),
            workspace.topic(TopicRole.STATUS),
            workspace.topic(TopicRole.DISCOVERY),
            workspace.topic(TopicRole.EVENT),
            workspace.home.config.events.silent_seconds,
            job_rules(workspace.home.config).distributed,
        )
        is_first = name == self._home.config.agents.publishers[0].name
        for number, config in enumerate(self._home.config.events.webhooks):
            # Jobs belong to no publisher: the first one of the configuration posts their events.
            if config.jobs and not is_first:
                continue
            posted = self._webhook_settings(f"events.webhooks[{number}]", config, settings)
            source = JobEvents(workspace.journal, config.jobs, config.format, JOB_TOPIC) if config.jobs else None
            webhook = Webhook(posted, WebhookPorts(workspace.journal, memory, self._clock, source=source))
            meter.watch_webhook(config.name, partial(_statistics_of, webhook))
            webhook.start()  # before the first event is raised: it posts what comes from now on
            self._running.append(webhook)
        if is_first and self._home.config.events.jobs:
            self._start_job_events(self._home.config.events.jobs, workspace, memory, settings.event_topic)
        notifier = DistributedNotifier(
            settings, NotifierPorts(workspace.journal, memory, workspace.clock, NoFailpoints())
        )
        meter.events = lambda: notifier.statistics
        notifier.start()
        self._running.append(notifier)

    def _start_job_events(
        self, patterns: Sequence[str], workspace: Workspace, memory: EventMemory, event_topic: TopicName
    ) -> None:
        for pattern in patterns:
            _check_pattern(pattern, "events.jobs")
        source = JobEvents(workspace.journal, patterns, WebhookFormat.CLOUDEVENTS, JOB_TOPIC)
        ports = JobEventLogPorts(workspace.journal, memory, self._clock, NoFailpoints())
        log = JobEventLog(source, event_topic, ports)
        log.start()
        self._running.append(log)

    def _webhook_settings(self, key: str, config: WebhookConfig, events: EventSettings) -> WebhookSettings:
        """What a webhook posts, and where. Raises: ConfigInvalidError, also for a secret that is not there."""
        home = self._home.path
        url = config.url
        if config.secret_url is not None:
            url = read_secret(config.secret_url, f"{key}.secret_url", home)
        if url is None:
            raise ConfigInvalidError(f"{key} needs either url or secret_url", key=key)
        if config.jobs and (config.paths or config.only is not WebhookEvents.ALL):
            raise ConfigInvalidError(f"{key} posts events of jobs; paths and only are of packages", key=f"{key}.jobs")
        for pattern in config.jobs:
            _check_pattern(pattern, f"{key}.jobs")
        return WebhookSettings(
            events.publisher,
            url,
            None if config.token is None else read_secret(config.token, f"{key}.token", home),
            config.timeout_seconds,
            events.event_topic,
            config.name,
            config.format,
            EventFilter(config.only is WebhookEvents.MISSED, tuple(parse_subtree(one) for one in config.paths)),
        )

    def _open_tracer(self) -> Tracer:
        endpoint = self._home.config.tracing.otlp_endpoint
        if endpoint is None:
            return NoTracer()
        try:
            from mailboat.telemetry.otlp import otlp_tracer
        except ImportError as error:
            raise ConfigInvalidError(
                "tracing.otlp_endpoint needs OpenTelemetry, which is not installed",
                next_step="pip install 'mailboat[tracing]', or leave the key out",
                key="tracing.otlp_endpoint",
            ) from error
        tracer = otlp_tracer("mailboat", endpoint)
        self._opened.callback(tracer.close)
        return tracer


def _check_pattern(pattern: str, key: str) -> None:
    try:
        parse_pattern(pattern)
    except UsageError as error:
        raise ConfigInvalidError(f"{key}: {error.message}", key=key) from error


def _statistics_of(webhook: Webhook) -> WebhookStatistics:
    return webhook.statistics


def fleet_figures(control: Control, clock: Clock, publishers: tuple[str, ...]) -> Iterator[FleetFigures]:
    """What each of the publishers sees, from the answers of the control port. Raises: as `Control.status`."""
    status = control.status()
    now_ms = milliseconds_now(clock)
    delays = {one.name: one.delay_seconds for one in status.publishers}
    # packages wait for a suspended subscriber on purpose: the alert on old packages must not fire for it
    suspended = {f"{one.sling_id}-{one.name}" for one in status.subscribers if one.suspended_at is not None}
    for name in publishers:
        queues = control.queues(name)
        yield FleetFigures(
            name,
            now_ms,
            tuple(_state_of(one) for one in status.subscribers if not one.follow or name in one.follow),
            tuple(
                _figures_of(one, is_suspended=one.name in suspended)
                for one in queues
                if one.state != QueueState.PASSIVE
            ),
            sum(one.count for one in queues if one.state == QueueState.PASSIVE),
            delays.get(name, 0.0),
        )


def _state_of(subscriber: SubscriberStatusView) -> str:
    return subscriber.state.split(" ", 1)[0]  # `waiting-for` is followed by a name, which is no label


def _figures_of(queue: QueueView, *, is_suspended: bool) -> QueueFigures:
    head = None if is_suspended else queue.head
    oldest_ms = None if head is None else milliseconds_of(head.queued_at)
    return QueueFigures(queue.state, queue.count, Capability.CLEARABLE in queue.capabilities, oldest_ms)

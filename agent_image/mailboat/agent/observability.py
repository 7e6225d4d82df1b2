"""Observability of an agent's process: metrics, spans, distributed events and their receivers.

Made by `agent run` only; commands on a home measure nothing. The publishers' events are raised here, by threads besides
the control service: they need a process that stays. Everything is stopped within the deadline of the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Final

from mailboat.api.records import QueueView, SubscriberStatusView
from mailboat.clock import Clock, Deadline, milliseconds_now, milliseconds_of
from mailboat.composition.configured_jobs import job_rules
from mailboat.composition.environment import pip_command
from mailboat.composition.event_receivers import event_filter, mail_sender, receiver_mistakes, webhook_sender
from mailboat.config.decoder import ConfigInvalidError, invalid_config
from mailboat.config.receivers import EventFilterConfig
from mailboat.content.locations import parse_target
from mailboat.control.subscriber_directory import WITHOUT_STATE, Absence
from mailboat.errors import UsageError
from mailboat.maintenance.schedule import UpkeepFigures
from mailboat.model.identifiers import AgentName, parse_agent_name
from mailboat.model.messages import JOB_TOPIC, TopicRole
from mailboat.publisher.distributed_memory import EventMemory
from mailboat.publisher.distributed_notifier import DistributedNotifier, EventPorts, EventSettings
from mailboat.queues.queue_state import Capability, QueueState
from mailboat.retention.task import RetentionFigures
from mailboat.subscriber.figures import SubscriberPhase
from mailboat.telemetry.disk_space import DiskSpace, WrittenPath
from mailboat.telemetry.event_delivery import (
    DeliveryPorts,
    EventDelivery,
    EventReceiver,
    EventSender,
)
from mailboat.telemetry.exposition import AgentMetrics, Exposition
from mailboat.telemetry.families import OTHER
from mailboat.telemetry.job_events import JobEvents
from mailboat.telemetry.job_metrics import JobMetrics
from mailboat.telemetry.memory_accounts import MemoryAccounts
from mailboat.telemetry.meters import FleetFigures, PublisherMetrics, QueueFigures, UpkeepMetrics
from mailboat.telemetry.notices import EventFilter, NoticeSource
from mailboat.telemetry.package_events import PackageEvents
from mailboat.telemetry.subscriber_metrics import SubscriberMetrics, measured
from mailboat.telemetry.topic_sender import TopicSender
from mailboat.tracing import NoTracer, Tracer

if TYPE_CHECKING:
    from mailboat.api.control import Control
    from mailboat.composition.home import Home
    from mailboat.composition.workspace import Workspace
    from mailboat.control.job_service import JobService
    from mailboat.subscriber.figures import SubscriberStatistics
    from mailboat.subscriber.subscriber_settings import Processors
    from mailboat.workers import Worker


class Observability:
    """One for a process. Agents ask it for their meters while they are made.

    Attributes:
        upkeep: Where the maintenance counts what it did.
        retention: Where the keeper of the head counts what it did.
        tracer: Records spans.
        memory: The accounts of the process.
        requests: Counts API requests; for the HTTP server to call.
    """

    def __init__(self, home: Home, clock: Clock) -> None:
        """Nothing is started. Raises: ConfigInvalidError when traces are wanted and can't be sent."""
        self._home = home
        self._clock = clock
        self._metrics = AgentMetrics(clock)
        self.requests: Final = self._metrics.requests
        self._metrics.add(DiskSpace(tuple(written_places(home))))
        self._publishers: dict[str, PublisherMetrics] = {}
        self._running: list[DistributedNotifier | EventDelivery] = []
        self._opened = ExitStack()
        self.upkeep: Final = UpkeepFigures()
        self.retention: Final = RetentionFigures()
        self._upkeep = UpkeepMetrics(self.retention, self.upkeep)
        self._metrics.add(self._upkeep)
        self.memory: Final = MemoryAccounts()
        self._metrics.add(self.memory)
        self.tracer: Final = self._open_tracer()

    def render(self, accept: str = "") -> Exposition:
        """What `/metrics` answers to a scraper that sends this `Accept` header."""
        return self._metrics.render(accept)

    def subscriber_meter(self, name: str, statistics: Callable[[], SubscriberStatistics]) -> SubscriberMetrics:
        """The meter of a subscriber; one that is opened again goes on with it."""
        return self._metrics.subscriber(name, statistics)

    def measured(self, processors: Processors, meter: SubscriberMetrics) -> Processors:
        """The same hooks, with the time that they take measured."""
        return measured(processors, meter, self._clock)

    def publisher_meter(self, name: str) -> PublisherMetrics:
        """The meter of a publisher, the same one each time."""
        if name not in self._publishers:
            self._publishers[name] = self._metrics.publisher(name)
        return self._publishers[name]

    def watch_upkeep(self, maintenance: Worker, retention: Worker | None) -> None:
        self._upkeep.watch(lambda: maintenance.failures, None if retention is None else lambda: retention.failures)

    def watch_jobs(self, jobs: JobService) -> None:
        metrics = JobMetrics(jobs.opened_queues, self._clock)
        jobs.listen(metrics.see)
        self._metrics.add(metrics)

    def start(self, control: Control, workspace: Workspace) -> None:
        """Raise the events of the configured publishers, and export the figures of the control service.

        Raises: ConfigInvalidError for a receiver; the journal's errors, and those of the publishers' states.
        """
        names = tuple(publisher.name for publisher in self._home.config.agents.publishers)
        for name in names:
            self._start_events(name, workspace)
        self._metrics.watch(lambda: fleet_figures(control, self._clock, names))

    def stop(self, deadline: Deadline) -> None:
        """End the threads within the deadline; the last spans are sent, if there is time."""
        # all are asked before one is waited for: a receiver that does not answer must not take the others' time
        for notifier in self._running:
            notifier.ask_to_stop()
        for notifier in self._running:
            notifier.stop(deadline.remaining_seconds())
        self._running.clear()
        # after the threads: they use the memories of events that are closed here
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
        for receiver, chosen, sender in self._receivers(settings.publisher):
            selected = event_filter(chosen)
            source: NoticeSource = PackageEvents(workspace.journal, settings.publisher, selected, settings.event_topic)
            if chosen.jobs:
                source = JobEvents(workspace.journal, selected, JOB_TOPIC)
            ports = DeliveryPorts(workspace.journal, memory, self._clock, source, sender)
            delivery = EventDelivery(receiver, ports)
            meter.watch_receiver(receiver.name, partial(attrgetter("statistics"), delivery))
            delivery.start()  # before the first event is raised: it sends what comes from now on
            self._running.append(delivery)
        self._start_job_events(settings, workspace, memory)
        notifier = DistributedNotifier(settings, EventPorts(workspace.journal, memory, workspace.clock))
        meter.watch_events(lambda: notifier.statistics)
        notifier.start()
        self._running.append(notifier)

    def _start_job_events(self, settings: EventSettings, workspace: Workspace, memory: EventMemory) -> None:
        config = self._home.config
        # Jobs belong to no publisher: the first one of the configuration appends their events.
        if not config.events.jobs or settings.publisher != config.agents.publishers[0].name:
            return
        source = JobEvents(workspace.journal, EventFilter(jobs=config.events.jobs), JOB_TOPIC)
        receiver = EventReceiver(settings.publisher, settings.event_topic, "topic")
        sender = TopicSender(workspace.journal, settings.event_topic)
        delivery = EventDelivery(receiver, DeliveryPorts(workspace.journal, memory, self._clock, source, sender))
        delivery.start()
        self._running.append(delivery)

    def _receivers(self, publisher: AgentName) -> Iterator[tuple[EventReceiver, EventFilterConfig, EventSender]]:
        """The receivers of a publisher's events. Raises: ConfigInvalidError, also for a missing secret."""
        config, folder = self._home.config, self._home.path
        events = config.events
        mistakes = list(receiver_mistakes(config, folder))
        if mistakes:
            raise invalid_config("the configuration", mistakes)
        # Jobs belong to no publisher: the first one of the configuration sends their events.
        is_first = publisher == config.agents.publishers[0].name
        for number, webhook in enumerate(events.webhooks):
            if _is_for(webhook.filter, publisher, is_first=is_first):
                sender = webhook_sender(webhook, f"events.webhooks[{number}]", folder)
                yield EventReceiver(publisher, webhook.name), webhook.filter, sender
        for mail in events.mails:
            if events.relay is not None and _is_for(mail.filter, publisher, is_first=is_first):
                yield EventReceiver(publisher, mail.name, "mail"), mail.filter, mail_sender(mail, events.relay, folder)

    def _open_tracer(self) -> Tracer:
        endpoint = self._home.config.tracing.otlp_endpoint
        if endpoint is None:
            return NoTracer()
        try:
            from mailboat.telemetry.otlp import otlp_tracer
        except ImportError as error:
            raise ConfigInvalidError(
                "tracing.otlp_endpoint needs OpenTelemetry, which is not installed",
                next_step=f"{pip_command('mailboat[tracing]')}   (or leave the key out)",
                key="tracing.otlp_endpoint",
            ) from error
        tracer = otlp_tracer("mailboat", endpoint)
        self._opened.callback(tracer.close)
        return tracer


def written_places(home: Home) -> Iterator[WrittenPath]:
    """What the agents of a home write to, as the configuration says."""
    yield WrittenPath("home", home.path)
    if home.config.journal.kafka is None:
        yield WrittenPath("journal", home.journal_path)
    if home.config.blobs.s3 is None:
        yield WrittenPath("blobs", home.blobs_path)
    for subscriber in home.config.agents.subscribers:
        with suppress(UsageError):  # the subscriber stops with this error, which says more
            yield WrittenPath(f"target of {subscriber.name}", parse_target(home.resolve(subscriber.target)).path)
    with suppress(FileNotFoundError):  # no folder can be written; uploads to buckets and large archives need one
        yield WrittenPath("temporary files", Path(gettempdir()))


_STATES: Final = frozenset({*SubscriberPhase, *Absence, WITHOUT_STATE})


def _is_for(chosen: EventFilterConfig, publisher: str, *, is_first: bool) -> bool:
    return is_first if chosen.jobs else not chosen.publishers or publisher in chosen.publishers


def fleet_figures(control: Control, clock: Clock, publishers: tuple[str, ...]) -> Iterator[FleetFigures]:
    """What each of the publishers sees, from the answers of the control port. Raises: as `Control.status`."""
    status = control.status()
    now_ms = milliseconds_now(clock)
    delays = {publisher.name: publisher.delay_seconds for publisher in status.publishers}
    # packages wait for a suspended subscriber on purpose: the alert on old packages must not fire for it
    suspended = {
        f"{subscriber.sling_id}-{subscriber.name}"
        for subscriber in status.subscribers
        if subscriber.suspended_at is not None
    }
    for name in publishers:
        queues = control.queues(name)
        yield FleetFigures(
            name,
            now_ms,
            tuple(
                _state_of(subscriber)
                for subscriber in status.subscribers
                if not subscriber.follow or name in subscriber.follow
            ),
            tuple(
                _figures_of(queue, is_suspended=queue.name in suspended)
                for queue in queues
                if queue.state != QueueState.PASSIVE
            ),
            sum(queue.count for queue in queues if queue.state == QueueState.PASSIVE),
            delays.get(name, 0.0),
        )


def _state_of(subscriber: SubscriberStatusView) -> str:
    word = subscriber.state.split(" ", 1)[0]  # `waiting-for` is followed by a name
    # any client of the topic may announce any word, and each would be a time series
    return word if word in _STATES else OTHER


def _figures_of(queue: QueueView, *, is_suspended: bool) -> QueueFigures:
    head = None if is_suspended else queue.head
    oldest_ms = None if head is None else milliseconds_of(head.queued_at)
    return QueueFigures(queue.state, queue.count, Capability.CLEARABLE in queue.capabilities, oldest_ms)

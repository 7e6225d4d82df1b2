"""Every metric that an agent exposes: name, kind, unit, labels and meaning, and its name in Sling.

The names follow Prometheus: `mailboat_<part>_<what>_<unit>`, counters end in `_total`. Labels are few, and their values
come from the configuration, from fixed lists or from the bounded roster of subscribers. `docs/metrics.md` is
generated from this list, and nothing is exposed that is not in it.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

SECONDS_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0)
AGE_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    120.0,
    600.0,
    3600.0,
    86400.0,
)
BYTES_BUCKETS: Final = tuple(float(4**power) for power in range(4, 18))
COUNT_BUCKETS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class MetricKind(enum.StrEnum):
    """Prometheus' kinds, as far as they are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: Its name, without the `_total` that counters get.
        kind: Its kind.
        text: What it says, as a sentence.
        labels: Names of its labels.
        original: Names of Sling's metrics that mean the same; empty where it has none.
        buckets: Upper bounds of a histogram.
    """

    name: str
    kind: MetricKind
    text: str
    labels: tuple[str, ...] = ()
    original: str = ""
    buckets: tuple[float, ...] = ()

    @property
    def shown_name(self) -> str:
        """The name as it is scraped."""
        return f"{self.name}_total" if self.kind is MetricKind.COUNTER else self.name

    @property
    def unit(self) -> str:
        """The unit, which is the last part of the name; a count where that is not a unit."""
        last = self.name.rsplit("_", 1)[-1]
        return last if last in {"seconds", "bytes"} else "count"


def _counter(name: str, text: str, labels: tuple[str, ...] = (), original: str = "") -> Metric:
    return Metric(f"mailboat_{name}", MetricKind.COUNTER, text, labels, original)


def _gauge(name: str, text: str, labels: tuple[str, ...] = (), original: str = "") -> Metric:
    return Metric(f"mailboat_{name}", MetricKind.GAUGE, text, labels, original)


def _histogram(
    name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = (), original: str = ""
) -> Metric:
    return Metric(f"mailboat_{name}", MetricKind.HISTOGRAM, text, labels, original, buckets)


_SUB: Final = ("subscriber",)
_PUB: Final = ("publisher",)

IMPORTED_BYTES: Final = _histogram(
    "subscriber_imported_package_bytes", "Size of imported packages.", BYTES_BUCKETS, _SUB, "imported_package_size"
)
IMPORT_AGE_SECONDS: Final = _histogram(
    "subscriber_import_age_seconds",
    "Time from the append of a package to the commit that imported it.",
    AGE_BUCKETS,
    _SUB,
    "request_distributed_duration, package_journal_distribution_duration",
)
BATCH_SECONDS: Final = _histogram(
    "subscriber_batch_seconds",
    "One import transaction, from its begin to its commit.",
    SECONDS_BUCKETS,
    _SUB,
    "imported_package_duration, package_install_duration, removed_package_duration",
)
BATCH_PACKAGES: Final = _histogram(
    "subscriber_batch_packages", "Packages imported in one transaction.", COUNT_BUCKETS, _SUB
)
IMPORTED: Final = _counter(
    "subscriber_imported_packages",
    "Packages imported: ADD, DELETE and INVALIDATE.",
    _SUB,
    "package_status_count{status=IMPORTED}, package_install_count, invalidation_process_success_count",
)
SKIPPED: Final = _counter("subscriber_skipped_messages", "Messages that do not concern the subscriber.", _SUB)
DROPPED: Final = _counter(
    "subscriber_dropped_packages",
    "Packages skipped because of a clear command or the golden subscriber.",
    _SUB,
    "package_status_count{status=REMOVED}",
)
PIECES_SEEN: Final = _counter("subscriber_pieces", "Pieces of large packages that were read.", _SUB)
PACKAGES_IN_PIECES: Final = _counter(
    "subscriber_packages_in_pieces",
    "Packages in pieces, by outcome: collected, read_again, dropped, expired, missing, corrupt.",
    ("subscriber", "outcome"),
)
COLLECTING: Final = _gauge("subscriber_collecting_packages", "Packages whose pieces are kept for their message.", _SUB)
COLLECTING_BYTES: Final = _gauge("subscriber_collecting_bytes", "The bytes of these pieces.", _SUB)
GIVEN_UP: Final = _counter(
    "subscriber_given_up_packages",
    "Packages put into the error queue.",
    _SUB,
    "permanent_import_errors, package_status_count{status=REMOVED_FAILED}",
)
FAILURES: Final = _counter(
    "subscriber_import_failures",
    "Failed attempts that count, by the error's name.",
    ("subscriber", "error"),
    "failed_package_imports, fv_error_count",
)
RECOVERED: Final = _counter(
    "subscriber_recovered_packages",
    "Packages that were imported after at least one failed attempt.",
    _SUB,
    "transient_import_errors",
)
BLOCKED: Final = _counter(
    "subscriber_blocking_packages", "Packages that failed three times or more.", _SUB, "import_errors"
)
WAITS: Final = _counter(
    "subscriber_waits",
    "Times that journal or storage could not be used, by the error's name.",
    ("subscriber", "error"),
)
REDRIVEN: Final = _counter("subscriber_redriven_packages", "Given-up packages that a redrive imported.", _SUB)
NODES_PUT: Final = _counter("subscriber_written_nodes", "Nodes written to the target.", _SUB)
NODES_REMOVED: Final = _counter("subscriber_removed_nodes", "Nodes removed from the target.", _SUB)
CONTENT_BYTES: Final = _counter("subscriber_written_bytes", "Bytes of nodes and binaries written.", _SUB)
COMMITS: Final = _counter("subscriber_commits", "Transactions of the target.", _SUB)
HOOK_SECONDS: Final = _histogram(
    "subscriber_hook_seconds",
    "One run of a hook: before, after, invalidate.",
    SECONDS_BUCKETS,
    ("subscriber", "hook"),
    "import_pre_process_duration, import_post_process_duration, invalidation_process_duration",
)
HOOKS: Final = _counter(
    "subscriber_hooks",
    "Runs of a hook, by outcome: done or failed.",
    ("subscriber", "hook", "outcome"),
    "*_request_count, *_success_count of the three processors",
)
CONFIRM_SECONDS: Final = _histogram(
    "subscriber_confirm_seconds",
    "Sending the confirmations of one transaction.",
    SECONDS_BUCKETS,
    _SUB,
    "send_stored_status_duration",
)
IMPORTING_SECONDS: Final = _gauge(
    "subscriber_current_import_seconds",
    "Duration of the current transaction so far; 0 between transactions.",
    _SUB,
    "current_import_duration",
)
ATTEMPTS: Final = _gauge(
    "subscriber_current_retries", "Failed attempts of the current package.", _SUB, "current_retries"
)
NEXT_OFFSET: Final = _gauge("subscriber_next_offset", "The offset that the subscriber reads next.", _SUB)
LAG_OFFSETS: Final = _gauge(
    "subscriber_lag_offsets",
    "Records, also pieces, up to the log's end, with the packages in a pool's queue. `status` counts packages.",
    _SUB,
)
BUILD_IMPORTED: Final = _gauge(
    "subscriber_build_packages_imported", "Imported packages of the current bulk build; 0 if absent.", _SUB
)
BUILD_PACKAGES: Final = _gauge("subscriber_build_packages", "Packages of the current bulk build; 0 if absent.", _SUB)
HELD_BACK: Final = _gauge(
    "subscriber_builds_held_back", "Bulk builds that must end before readers see new content.", _SUB
)
PHASE: Final = _gauge("subscriber_state", "1 for its current state.", ("subscriber", "state"))
READY: Final = _gauge(
    "subscriber_ready", "1 if it is ready to serve.", ("subscriber", "reason"), "readiness_duration{ready_reason}"
)
READY_SECONDS: Final = _gauge(
    "subscriber_readiness_seconds",
    "From its start until it was ready for the first time.",
    _SUB,
    "readiness_duration",
)

EXPORTED_BYTES: Final = _histogram(
    "publisher_exported_package_bytes", "Size of published packages.", BYTES_BUCKETS, _PUB, "exported_package_size"
)
BUILD_SECONDS: Final = _histogram(
    "publisher_build_seconds", "Building one package.", SECONDS_BUCKETS, _PUB, "build_package_duration"
)
APPEND_SECONDS: Final = _histogram(
    "publisher_append_seconds",
    "Appending a batch of messages until it is durable and read back.",
    SECONDS_BUCKETS,
    _PUB,
    "enqueue_package_duration",
)
ACCEPTED: Final = _counter(
    "publisher_accepted_requests", "Requests whose message is in the log.", ("publisher", "action"), "accepted_requests"
)
PIECES: Final = _counter("publisher_pieces", "Pieces of packages that were too large for a message.", _PUB)
IN_PIECES: Final = _counter("publisher_packages_in_pieces", "Packages that travelled in pieces.", _PUB)
REPEATED: Final = _counter("publisher_repeated_requests", "Requests that were published before.", _PUB)
REFUSED: Final = _counter(
    "publisher_refused_requests",
    "Requests that failed, by the error's name.",
    ("publisher", "error"),
    "dropped_requests",
)
EVENTS_RAISED: Final = _counter("publisher_distributed_events", "Distributed events raised by this process.", _PUB)
EVENTS_MISSED: Final = _counter(
    "publisher_distributed_events_with_missed", "Events among them that name subscribers without the content.", _PUB
)
EVENTS_FAILURES: Final = _counter("publisher_event_failures", "Times that events had to wait for the journal.", _PUB)
EVENTS_RAISING: Final = _gauge("publisher_raises_events", "1 in the process that sends the publisher's events.", _PUB)
EVENTS_NEXT: Final = _gauge("publisher_events_next_offset", "Offset below which all events were sent.", _PUB)
DELIVERED_EVENTS: Final = _counter(
    "publisher_event_deliveries",
    "Events sent to a webhook or by e-mail, and failed attempts, by outcome.",
    ("publisher", "receiver", "outcome"),
)
WAITING_EVENTS: Final = _gauge(
    "publisher_waiting_events",
    "Events that wait for a receiver that does not accept them.",
    ("publisher", "receiver"),
)

SUBSCRIBERS: Final = _gauge(
    "publisher_subscribers",
    "Subscribers that follow the publisher, by state.",
    ("publisher", "state"),
    "subscriber_count",
)
QUEUE_PACKAGES: Final = _gauge(
    "publisher_queue_packages",
    "Packages in the longest queue, of subscribers that take clear commands and of the others.",
    ("publisher", "clearable"),
    "queue_size{clearable}",
)
QUEUES: Final = _gauge("publisher_queues", "Queues in a state: idle, running, blocked.", ("publisher", "state"))
OLDEST_SECONDS: Final = _gauge(
    "publisher_oldest_queued_seconds",
    "Age of the oldest package that not all subscribers have imported. Suspended ones do not count.",
    _PUB,
)
GIVEN_UP_QUEUED: Final = _gauge("publisher_error_queue_packages", "Packages in all error queues.", _PUB)
DELAY_SECONDS: Final = _gauge("publisher_delay_seconds", "Delay of a request because subscribers lag.", _PUB)
QUEUE_ERRORS: Final = _counter(
    "agent_scrape_failures",
    "Scrapes without figures of queues or subscribers, because reading them failed.",
    (),
    "queue_access_error_count",
)
ANNOUNCE_FAILURES: Final = _counter("discovery_failed_announcements", "Announcements that could not be sent.", _SUB)

RETENTION_TURNS: Final = _counter("retention_turns", "Runs of retention by consumption on the package topic.")
RETENTION_MOVES: Final = _counter("retention_head_moves", "Runs that moved the head of the package topic.")
RETENTION_REMOVED: Final = _counter("retention_removed_messages", "Messages that these runs removed, pieces included.")
RETENTION_FREED: Final = _counter("retention_freed_bytes", "Approximate bytes of messages that these runs removed.")
RETENTION_LOSSES: Final = _counter("retention_losses", "Subscribers that lost packages to the limits of age or size.")
RETENTION_DROPPED: Final = _counter(
    "retention_dropped_subscribers", "Durable subscribers deregistered because they were silent too long."
)
RETENTION_EXPIRED: Final = _counter(
    "retention_expired_messages", "Messages of all topics that an embedded journal removed for their age and size."
)
RETENTION_FAILURES: Final = _counter("retention_failures", "Runs of retention that failed and will be retried.")
SWEEPS: Final = _counter("sweep_runs", "Completed sweeps of the blob store.", (), "cleanup_package_duration")
SWEEP_REMOVED: Final = _counter(
    "sweep_removed_blobs", "Blobs that sweeps removed.", (), "cleanup_package_removed_count"
)
SWEEP_UPLOADS: Final = _counter("sweep_abandoned_uploads", "Unfinished uploads that sweeps removed.")
SWEEP_KEPT: Final = _gauge("sweep_kept_blobs", "Blobs that the last sweep kept, by reason.", ("reason",))
SWEEP_KEPT_BYTES: Final = _gauge("sweep_kept_bytes", "Their bytes.", ("reason",))
SWEEP_FAILURES: Final = _counter("sweep_failures", "Maintenance runs that failed; they are retried within the hour.")

_QUEUE: Final = ("queue",)
JOBS_QUEUED: Final = _gauge("jobs_queued", "Jobs that wait, also those that are due later.", _QUEUE)
JOBS_DUE: Final = _gauge("jobs_due", "Calls that order and rate let start now: scale workers by it.", _QUEUE)
JOBS_ACTIVE: Final = _gauge("jobs_active", "Calls of handlers that run.", _QUEUE)
JOBS_OLDEST: Final = _gauge("jobs_oldest_due_seconds", "How long the first ready job has been due; 0 without.", _QUEUE)
JOBS_WORKERS: Final = _gauge("jobs_workers", "Live workers that take a topic of the queue.", _QUEUE)
JOBS_GIVEN_UP: Final = _gauge("jobs_given_up", "Jobs in the history that used up their retries.", _QUEUE)
JOBS_WAIT_SECONDS: Final = _histogram("jobs_wait_seconds", "From a job's due time to its start.", AGE_BUCKETS, _QUEUE)
JOBS_RUN_SECONDS: Final = _histogram("jobs_run_seconds", "Duration of an attempt.", AGE_BUCKETS, _QUEUE)
JOBS_ENDED: Final = _counter("jobs_ended", "Jobs that ended, by state.", ("queue", "state"))
JOBS_RETRIES: Final = _counter("jobs_retries", "Attempts that put the job back into its queue.", _QUEUE)
JOBS_EXPIRED: Final = _counter("jobs_expired_leases", "Jobs whose worker died or did not renew in time.", _QUEUE)
JOBS_WASTED: Final = _counter("jobs_wasted_claims", "Claimed calls that another record had taken before.", _QUEUE)

HTTP_REQUESTS: Final = _counter("http_requests", "API requests, by route and status.", ("method", "route", "status"))
HTTP_SECONDS: Final = _histogram("http_request_seconds", "Duration of API requests.", SECONDS_BUCKETS, ("route",))
_USED_BY: Final = ("used_by",)
DISK_BYTES: Final = _gauge(
    "agent_disk_bytes",
    "Size of each file system that holds the agent's home, journal, blobs, targets or temporary files.",
    _USED_BY,
)
DISK_FREE: Final = _gauge("agent_disk_free_bytes", "Bytes of it that the agent may still write.", _USED_BY)
MEMORY_LIMIT: Final = _gauge("agent_memory_limit_bytes", "Memory limit of the agent's control group.")
MEMORY_ACCOUNT: Final = _gauge("agent_memory_account_bytes", "What a bounded structure in memory holds.", ("account",))
MEMORY_ACCOUNT_LIMIT: Final = _gauge("agent_memory_account_limit_bytes", "Its limit.", ("account",))
INFO: Final = _gauge("agent_info", "Always 1; the label is the running version.", ("version",))

CATALOGUE: Final = tuple(defined for defined in list(globals().values()) if isinstance(defined, Metric))
"""All of them, in the order of this module."""

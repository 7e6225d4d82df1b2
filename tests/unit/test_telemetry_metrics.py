"""Metrics: what is measured, how it is named, and what a scraper gets."""

from __future__ import annotations

import re
import resource
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailboat.agent.observability import fleet_figures
from mailboat.api.job_views import JobQueueView
from mailboat.api.process_views import MemoryAccountView, MemoryView
from mailboat.api.records import JournalView, QueueView, StatusView, SubscriberStatusView
from mailboat.blobs.sweep import SweepDecision
from mailboat.errors import JournalUnavailableError, UsageError
from mailboat.jobs.fold import LEASE_EXPIRED, JobFold
from mailboat.jobs.job_changes import Applied, JobChange
from mailboat.journal.port import Record
from mailboat.maintenance.schedule import UpkeepFigures
from mailboat.model.identifiers import Offset, PackageId
from mailboat.model.jobs import JobId, JobState
from mailboat.model.messages import BLOCKING_FAILURES, Action, FailureCause
from mailboat.publisher.distributed_notifier import EventStatistics
from mailboat.queues.queue_state import QueueState, decide_queue_state
from mailboat.retention.task import RetentionFigures
from mailboat.subscriber.figures import ImportedBatch, SubscriberPhase, SubscriberStatistics
from mailboat.subscriber.piece_store import PieceFigures
from mailboat.subscriber.subscriber_settings import ProcessedPackage, Processors
from mailboat.telemetry import catalogue
from mailboat.telemetry.catalogue import CATALOGUE, MetricKind
from mailboat.telemetry.disk_space import DiskSpace, WrittenPath
from mailboat.telemetry.event_delivery import DeliveryStatistics
from mailboat.telemetry.exposition import AgentMetrics
from mailboat.telemetry.families import BulkHistogram, NamedCounts, TimedReading
from mailboat.telemetry.job_metrics import JobMetrics
from mailboat.telemetry.memory_accounts import MemoryAccounts
from mailboat.telemetry.meters import FleetFigures, QueueFigures, UpkeepMetrics
from mailboat.telemetry.subscriber_metrics import SubscriberMetrics, measured
from mailboat.testing.clocks import ManualClock
from mailboat.testing.examples import examples
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from metrics_page import metrics_page
from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
CAUSE = FailureCause("StorageFull", "no space left")


class Bench:
    """Metrics, and what a scraper reads of them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.metrics = AgentMetrics(self.clock)
        self.statistics = SubscriberStatistics()

    def subscriber(self) -> SubscriberMetrics:
        return self.metrics.subscriber("web", lambda: self.statistics)

    def value(self, name: str, **labels: str) -> float | None:
        """The sample of that name with exactly those labels."""
        text = self.metrics.render().content.decode()
        for family in parse_text(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None


@pytest.fixture
def bench() -> Bench:
    return Bench()


def batch_of(bench: Bench, sizes: list[int], ages_ms: list[int], seconds: float = 0.02) -> ImportedBatch:
    now_ms = int(bench.clock.now().timestamp() * 1000)
    records = [
        Record(Offset(number), b"x" * size, appended_ms=now_ms - age_ms)
        for number, (size, age_ms) in enumerate(zip(sizes, ages_ms, strict=True))
    ]
    return ImportedBatch(records, sizes, now_ms - int(seconds * 1000), now_ms, seconds)


def test_an_imported_batch_counts_each_package_in_the_histograms(bench: Bench) -> None:
    meter = bench.subscriber()
    meter.imported(batch_of(bench, [200, 300, 70_000], [3, 40, 9000]))
    meter.imported(batch_of(bench, [10], [0]))
    assert bench.value("mailboat_subscriber_imported_package_bytes_count", subscriber="web") == 4
    assert bench.value("mailboat_subscriber_imported_package_bytes_sum", subscriber="web") == 70_510
    assert bench.value("mailboat_subscriber_imported_package_bytes_bucket", subscriber="web", le="256.0") == 2
    assert bench.value("mailboat_subscriber_import_age_seconds_bucket", subscriber="web", le="0.05") == 3
    assert bench.value("mailboat_subscriber_import_age_seconds_bucket", subscriber="web", le="+Inf") == 4
    assert bench.value("mailboat_subscriber_batch_seconds_count", subscriber="web") == 2
    assert bench.value("mailboat_subscriber_batch_packages_sum", subscriber="web") == 4


def test_a_package_from_the_future_has_the_age_zero(bench: Bench) -> None:
    meter = bench.subscriber()
    meter.imported(batch_of(bench, [1], [-5000]))
    assert bench.value("mailboat_subscriber_import_age_seconds_sum", subscriber="web") == 0


def test_what_a_subscriber_counts_anyway_is_asked_at_the_scrape(bench: Bench) -> None:
    bench.subscriber()
    bench.statistics = SubscriberStatistics(
        phase=SubscriberPhase.IMPORTING, next_offset=Offset(7), log_next_offset=Offset(10), imported=5, skipped=2, put=9
    )
    assert bench.value("mailboat_subscriber_imported_packages_total", subscriber="web") == 5
    assert bench.value("mailboat_subscriber_skipped_messages_total", subscriber="web") == 2
    assert bench.value("mailboat_subscriber_written_nodes_total", subscriber="web") == 9
    assert bench.value("mailboat_subscriber_next_offset", subscriber="web") == 7
    assert bench.value("mailboat_subscriber_lag_offsets", subscriber="web") == 3
    assert bench.value("mailboat_subscriber_state", subscriber="web", state="importing") == 1
    assert bench.value("mailboat_subscriber_state", subscriber="web", state="current") == 0


def test_a_position_that_is_not_known_has_no_sample(bench: Bench) -> None:
    bench.subscriber()
    assert bench.value("mailboat_subscriber_next_offset", subscriber="web") is None
    assert bench.value("mailboat_subscriber_readiness_seconds", subscriber="web") is None


def test_failures_are_counted_by_name_and_a_success_after_them_as_recovered(bench: Bench) -> None:
    meter = bench.subscriber()
    for attempt in range(1, 6):
        meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=attempt, cause=CAUSE))
    meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=5, cause=CAUSE))  # told again
    meter.progressed(SubscriberStatistics(SubscriberPhase.IMPORTING))
    assert bench.value("mailboat_subscriber_import_failures_total", subscriber="web", error="StorageFull") == 5
    assert bench.value("mailboat_subscriber_blocking_packages_total", subscriber="web") == 1
    assert bench.value("mailboat_subscriber_recovered_packages_total", subscriber="web") == 1


@pytest.mark.parametrize("failures", [BLOCKING_FAILURES - 1, BLOCKING_FAILURES])
def test_a_package_counts_as_blocking_when_its_queue_is_blocked(bench: Bench, failures: int) -> None:
    meter = bench.subscriber()
    for attempt in range(1, failures + 1):
        meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=attempt, cause=CAUSE))
    is_blocked = decide_queue_state(1, failures) is QueueState.BLOCKED
    assert is_blocked == (failures == BLOCKING_FAILURES)
    assert bench.value("mailboat_subscriber_blocking_packages_total", subscriber="web") == int(is_blocked)


def test_a_package_that_was_given_up_did_not_recover(bench: Bench) -> None:
    meter = bench.subscriber()
    meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=1, cause=CAUSE))
    meter.given_up(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=2, cause=CAUSE, failed=1))
    meter.progressed(SubscriberStatistics(SubscriberPhase.IMPORTING))
    assert bench.value("mailboat_subscriber_import_failures_total", subscriber="web", error="StorageFull") == 2
    assert bench.value("mailboat_subscriber_recovered_packages_total", subscriber="web") == 0


def test_waiting_for_the_journal_is_no_failure_of_a_package(bench: Bench) -> None:
    meter = bench.subscriber()
    cause = FailureCause("JournalUnavailable", "away")
    meter.progressed(SubscriberStatistics(SubscriberPhase.WAITING, cause=cause))
    assert bench.value("mailboat_subscriber_waits_total", subscriber="web", error="JournalUnavailable") == 1
    assert (
        bench.value("mailboat_subscriber_import_failures_total", subscriber="web", error="JournalUnavailable") is None
    )


def test_readiness_is_told_with_its_reason_and_how_long_it_took(bench: Bench) -> None:
    meter = bench.subscriber()
    bench.clock.advance(12.5)
    bench.statistics = SubscriberStatistics(SubscriberPhase.CURRENT, is_ready=True, ready_reason="caught-up")
    meter.progressed(bench.statistics)
    bench.clock.advance(100)
    meter.progressed(bench.statistics)
    assert bench.value("mailboat_subscriber_ready", subscriber="web", reason="caught-up") == 1
    assert bench.value("mailboat_subscriber_readiness_seconds", subscriber="web") == 12.5


def test_the_transaction_at_hand_has_an_age_until_it_ends(bench: Bench) -> None:
    meter = bench.subscriber()
    assert bench.value("mailboat_subscriber_current_import_seconds", subscriber="web") == 0
    meter.began()
    bench.clock.advance(40)
    assert bench.value("mailboat_subscriber_current_import_seconds", subscriber="web") == 40
    meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=1, cause=CAUSE))
    assert bench.value("mailboat_subscriber_current_import_seconds", subscriber="web") == 0


def test_confirmations_are_timed(bench: Bench) -> None:
    bench.subscriber().confirmed(0.004)
    assert bench.value("mailboat_subscriber_confirm_seconds_bucket", subscriber="web", le="0.005") == 1


def test_hooks_are_timed_and_counted_by_how_they_end(bench: Bench) -> None:
    class Hook:
        def process(self, package: ProcessedPackage) -> None:
            bench.clock.advance(0.5)
            if package.offset:
                raise RuntimeError("no")

    hooks = measured(Processors(before=Hook()), bench.subscriber(), bench.clock)
    assert hooks.after is None
    assert hooks.before is not None
    for offset in (0, 1):
        package = ProcessedPackage(Offset(offset), PackageId("p"), "tree", Action.ADD, None, (), ())
        with pytest.raises(RuntimeError) if offset else nullcontext():
            hooks.before.process(package)
    assert bench.value("mailboat_subscriber_hook_seconds_sum", subscriber="web", hook="before") == 1
    assert bench.value("mailboat_subscriber_hooks_total", subscriber="web", hook="before", outcome="done") == 1
    assert bench.value("mailboat_subscriber_hooks_total", subscriber="web", hook="before", outcome="failed") == 1


def test_a_subscriber_that_is_opened_again_goes_on_with_its_metrics(bench: Bench) -> None:
    first = bench.subscriber()
    first.confirmed(0.1)
    again = bench.metrics.subscriber("web", lambda: SubscriberStatistics(imported=3))
    assert again is first
    assert bench.value("mailboat_subscriber_imported_packages_total", subscriber="web") == 3
    text = bench.metrics.render().content.decode()
    assert text.count('mailboat_subscriber_imported_packages_total{subscriber="web"}') == 1


def test_a_publisher_is_measured_through_its_port(bench: Bench) -> None:
    meter = bench.metrics.publisher("author")
    meter.built(5000, 0.2)
    meter.appended([Action.ADD, Action.ADD, Action.DELETE], 0.004)
    meter.repeated()
    meter.refused(UsageError("no"))
    meter.refused(KeyError("no"))
    assert bench.value("mailboat_publisher_exported_package_bytes_sum", publisher="author") == 5000
    assert bench.value("mailboat_publisher_build_seconds_bucket", publisher="author", le="0.25") == 1
    assert bench.value("mailboat_publisher_append_seconds_count", publisher="author") == 1
    assert bench.value("mailboat_publisher_accepted_requests_total", publisher="author", action="ADD") == 2
    assert bench.value("mailboat_publisher_accepted_requests_total", publisher="author", action="TEST") == 0
    assert bench.value("mailboat_publisher_repeated_requests_total", publisher="author") == 1
    assert bench.value("mailboat_publisher_refused_requests_total", publisher="author", error="Usage") == 1
    assert bench.value("mailboat_publisher_refused_requests_total", publisher="author", error="KeyError") == 1


def test_packages_in_pieces_are_counted_with_their_pieces(bench: Bench) -> None:
    meter = bench.metrics.publisher("author")
    meter.appended_in_pieces(7)
    meter.appended_in_pieces(3)
    assert bench.value("mailboat_publisher_pieces_total", publisher="author") == 10
    assert bench.value("mailboat_publisher_packages_in_pieces_total", publisher="author") == 2


def test_a_subscriber_tells_what_became_of_pieces(bench: Bench) -> None:
    bench.subscriber()
    assert bench.value("mailboat_subscriber_pieces_total", subscriber="web") == 0
    bench.statistics = SubscriberStatistics(
        pieces=PieceFigures(pieces=9, collected=2, expired=1, dropped=3, corrupt=4, collecting=1, collecting_bytes=800)
    )
    assert bench.value("mailboat_subscriber_pieces_total", subscriber="web") == 9
    outcomes = {"collected": 2, "read_again": 0, "dropped": 3, "expired": 1, "missing": 0, "corrupt": 4}
    for outcome, count in outcomes.items():
        name = "mailboat_subscriber_packages_in_pieces_total"
        assert bench.value(name, subscriber="web", outcome=outcome) == count
    assert bench.value("mailboat_subscriber_collecting_packages", subscriber="web") == 1
    assert bench.value("mailboat_subscriber_collecting_bytes", subscriber="web") == 800


def test_upkeep_is_told_by_the_process_that_does_it(bench: Bench) -> None:
    retention, sweeps = RetentionFigures(), UpkeepFigures()
    upkeep = UpkeepMetrics(retention, sweeps)
    bench.metrics.add(upkeep)
    assert bench.value("mailboat_sweep_runs_total") is None
    upkeep.watch(lambda: 1, lambda: 2)
    retention.removed, retention.freed_bytes = 5, 5000
    sweeps.sweeps, sweeps.swept_blobs, sweeps.kept = 1, 4, {SweepDecision.REFERENCED: 3}
    assert bench.value("mailboat_retention_removed_messages_total") == 5
    assert bench.value("mailboat_retention_freed_bytes_total") == 5000
    assert bench.value("mailboat_retention_failures_total") == 2
    assert bench.value("mailboat_sweep_removed_blobs_total") == 4
    assert bench.value("mailboat_sweep_kept_blobs", reason="referenced") == 3
    assert bench.value("mailboat_sweep_failures_total") == 1


def test_events_and_posts_are_told_by_who_raises_them(bench: Bench) -> None:
    meter = bench.metrics.publisher("author")
    meter.watch_events(lambda: EventStatistics(is_raising=True, next_offset=Offset(9), raised=8, missed=1))
    meter.watch_receiver("crm", lambda: DeliveryStatistics(delivered=7, refused=1))
    assert bench.value("mailboat_publisher_distributed_events_total", publisher="author") == 8
    assert bench.value("mailboat_publisher_raises_events", publisher="author") == 1
    assert bench.value("mailboat_publisher_events_next_offset", publisher="author") == 9
    assert (
        bench.value(
            "mailboat_publisher_event_deliveries_total", publisher="author", receiver="crm", outcome="delivered"
        )
        == 7
    )


def test_queues_are_told_by_the_longest_and_the_oldest(bench: Bench) -> None:
    figures = FleetFigures(
        "author",
        100_000,
        ("current", "current", "retrying"),
        (
            QueueFigures("blocked", 40, is_clearable=True, oldest_ms=40_000),
            QueueFigures("running", 900, oldest_ms=70_000),
            QueueFigures("idle", 0),
        ),
        given_up=3,
        delay_seconds=1.5,
    )
    bench.metrics.watch(lambda: [figures])
    assert bench.value("mailboat_publisher_subscribers", publisher="author", state="current") == 2
    assert bench.value("mailboat_publisher_queue_packages", publisher="author", clearable="true") == 40
    assert bench.value("mailboat_publisher_queue_packages", publisher="author", clearable="false") == 900
    assert bench.value("mailboat_publisher_queues", publisher="author", state="blocked") == 1
    assert bench.value("mailboat_publisher_oldest_queued_seconds", publisher="author") == 60
    assert bench.value("mailboat_publisher_error_queue_packages", publisher="author") == 3
    assert bench.value("mailboat_publisher_delay_seconds", publisher="author") == 1.5


def test_an_idle_system_has_queues_of_nothing(bench: Bench) -> None:
    bench.metrics.watch(lambda: [FleetFigures("author", 100_000)])
    assert bench.value("mailboat_publisher_oldest_queued_seconds", publisher="author") == 0
    assert bench.value("mailboat_publisher_queue_packages", publisher="author", clearable="true") == 0


def test_a_journal_that_is_away_costs_only_the_queues(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.subscriber()

    def fail() -> list[FleetFigures]:
        raise JournalUnavailableError("away")

    bench.metrics.watch(fail)
    assert bench.value("mailboat_subscriber_imported_packages_total", subscriber="web") == 0
    assert bench.value("mailboat_agent_scrape_failures_total") == 2
    assert "queues and subscribers could not be read" in caplog.text


def test_requests_are_counted_by_route_and_never_by_what_callers_send(bench: Bench) -> None:
    requests = bench.metrics.requests
    requests.record("GET", "/api/v1/queues/{publisher}", 200, 0.02)
    requests.record("BREW", None, 404, 0.001)
    for number in range(1000):
        requests.record("GET", f"/forged/{number}", 404, 0.001)
    value = bench.value("mailboat_http_requests_total", method="GET", route="/api/v1/queues/{publisher}", status="200")
    assert value == 1
    assert bench.value("mailboat_http_requests_total", method="OTHER", route="other", status="404") == 1
    assert bench.value("mailboat_http_request_seconds_count", route="/api/v1/queues/{publisher}") == 1
    routes = set(re.findall(r'route="([^"]+)"', bench.metrics.render().content.decode()))
    assert len(routes) <= 201


def test_errors_names_are_told_apart_up_to_a_bound() -> None:
    counts = NamedCounts(most=2)
    for name in ("a", "b", "c", "d", "a"):
        counts.add(name)
    assert counts.items() == [("Other", 2), ("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", ""),
        ("text/html, */*", "text/plain; version=0.0.4; charset=utf-8", ""),
        (f"{OPENMETRICS};q=0.9, text/plain;q=0.5", OPENMETRICS, "# EOF\n"),
    ],
)
def test_the_scraper_chooses_the_format(bench: Bench, accept: str, content_type: str, end: str) -> None:
    bench.subscriber()
    bench.metrics.publisher("author")
    shown = bench.metrics.render(accept)
    assert shown.content_type.partition(";")[0] == content_type.partition(";")[0]
    assert shown.content.decode().endswith(end)
    parse = parse_openmetrics if end else parse_text
    names = {family.name for family in parse(shown.content.decode())}
    assert "mailboat_subscriber_batch_seconds" in names
    assert "process_cpu_seconds" in names


def accounts_of(folder: Path) -> MemoryAccounts:
    """An account, in a container of 256 MiB."""
    (folder / "memory.max").write_text("268435456\n")
    (folder / "statm").write_text("9 4 1 1 0 1 0\n")
    made = MemoryAccounts(folder / "statm", folder)
    made.add("queues", lambda: 100, 1_000)
    made.add("jobs", lambda: 7, None)
    return made


def test_memory_accounts_are_those_of_the_dashboard(bench: Bench, tmp_path: Path) -> None:
    accounts = accounts_of(tmp_path)
    seen = accounts.view()
    assert (seen.resident_bytes, seen.limit_bytes) == (4 * resource.getpagesize(), 268_435_456)
    assert seen.accounts == (MemoryAccountView("queues", 100, 1_000), MemoryAccountView("jobs", 7))
    bench.metrics.add(accounts)
    lines = bench.metrics.render().content.decode().splitlines()
    assert {line for line in lines if line.startswith("mailboat_agent_memory")} == {
        "mailboat_agent_memory_limit_bytes 2.68435456e+08",
        'mailboat_agent_memory_account_bytes{account="queues"} 100.0',
        'mailboat_agent_memory_account_bytes{account="jobs"} 7.0',
        'mailboat_agent_memory_account_limit_bytes{account="queues"} 1000.0',
    }


@pytest.mark.parametrize("text", ["max", str((1 << 63) - 4096)])
def test_memory_limit_that_is_none_has_no_sample(tmp_path: Path, text: str) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text(text)
    assert MemoryAccounts(tmp_path / "missing", tmp_path).view() == MemoryView()


def everything(bench: Bench, accounts: MemoryAccounts) -> AgentMetrics:
    meter, author = bench.subscriber(), bench.metrics.publisher("author")
    meter.watch_announcements(lambda: 0)
    meter.progressed(SubscriberStatistics(SubscriberPhase.RETRYING, attempts=1, cause=CAUSE))
    meter.progressed(SubscriberStatistics(SubscriberPhase.WAITING, attempts=1, cause=CAUSE))
    author.refused(UsageError("no"))
    author.watch_events(lambda: EventStatistics(next_offset=Offset(1)))
    author.watch_receiver("crm", DeliveryStatistics)
    bench.statistics = replace(bench.statistics, next_offset=Offset(1), log_next_offset=Offset(1), is_ready=True)
    meter.progressed(bench.statistics)
    bench.metrics.watch(lambda: [FleetFigures("author", 1, ("current",), (QueueFigures("IDLE", 0),))])
    bench.metrics.requests.record("GET", "/x", 200, 0.1)
    bench.metrics.add(DiskSpace([WrittenPath("home", Path("/"))]))
    bench.metrics.add(accounts)
    upkeep = UpkeepMetrics(
        RetentionFigures(), UpkeepFigures(kept={SweepDecision.YOUNG: 1}, kept_bytes={SweepDecision.YOUNG: 9})
    )
    upkeep.watch(lambda: 0, lambda: 0)
    bench.metrics.add(upkeep)
    queue = JobQueueView("cdn", "fair", 1, 1, 0, None, None, 1, 0, False, -1, None, 1, ())
    jobs = JobMetrics(lambda: [queue], bench.clock)
    changes = [(JobState.ACTIVE, ""), (JobState.QUEUED, LEASE_EXPIRED), (JobState.SUCCEEDED, "")]
    applied = [JobChange(state, "cdn", reason, [JobId(0)], [1_000]) for state, reason in changes]
    jobs.see(JobFold(), Applied(applied, void=[JobId(1)]))
    bench.metrics.add(jobs)
    return bench.metrics


def test_what_is_exposed_is_what_the_catalogue_says(bench: Bench, tmp_path: Path) -> None:
    text = everything(bench, accounts_of(tmp_path)).render(OPENMETRICS).content.decode()
    ours = {family.name: family for family in parse_openmetrics(text) if family.name.startswith("mailboat_")}
    assert set(ours) == {metric.name for metric in CATALOGUE}
    for metric in CATALOGUE:
        family = ours[metric.name]
        assert family.type == metric.kind
        assert family.documentation == metric.text
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert labels == {frozenset(metric.labels)}


def test_names_follow_the_rules_of_prometheus() -> None:
    for metric in CATALOGUE:
        assert re.fullmatch(r"mailboat_[a-z]+(_[a-z]+)+", metric.name), metric.name
        assert not metric.name.endswith("_total")
        assert len(metric.labels) <= 3
        assert metric.text.endswith(".")
        assert bool(metric.buckets) is (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)


def test_the_page_has_a_row_for_each_metric() -> None:
    page = metrics_page()
    assert all(page.count(f"- `{metric.shown_name}`") == 1 for metric in CATALOGUE)
    assert "imported_package_size" in page


def test_a_registry_that_is_passed_in_is_used_and_no_other() -> None:
    registry = CollectorRegistry()
    AgentMetrics(ManualClock(), registry)
    assert "mailboat_agent_info" in {family.name for family in registry.collect()}
    assert not [family.name for family in REGISTRY.collect() if family.name.startswith("mailboat_")]


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.lists(st.floats(0, 1e6))))
def test_a_histogram_fed_in_bulk_says_what_prometheus_own_would_say(batches: list[list[float]]) -> None:
    registry = CollectorRegistry()
    theirs = Histogram("x", "x", registry=registry, buckets=catalogue.SECONDS_BUCKETS)
    ours = BulkHistogram(catalogue.SECONDS_BUCKETS)
    for batch in batches:
        ours.observe_all(batch)
        for value in batch:
            theirs.observe(value)
    expected = {
        sample.labels["le"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "x_bucket"
    }
    buckets, total = ours.buckets()
    assert dict(buckets) == expected
    assert total == pytest.approx(sum(sum(batch) for batch in batches))


def test_figures_of_the_journal_that_take_long_cost_no_other_metric() -> None:
    began, away, reads = threading.Event(), threading.Event(), list[int]()

    def fleet() -> list[FleetFigures]:
        reads.append(len(reads))
        began.set()
        assert away.wait(LONG_WAIT_SECONDS)
        return [FleetFigures("author", 1)]

    bench = Bench()
    bench.metrics = AgentMetrics(bench.clock, reading_seconds=0.01)
    bench.metrics.watch(fleet)
    failures = "mailboat_agent_scrape_failures_total"
    assert (bench.value(failures), bench.value(failures)) == (1, 2)
    assert began.wait(PATIENCE_SECONDS)
    assert reads == [0], "each scrape left a thread"
    bench.clock.advance(10.0)
    away.set()
    wait_until(lambda: bench.value("mailboat_publisher_delay_seconds", publisher="author") == 0)


class Fleet:
    """A control service of one subscriber, whose state is what it announced."""

    def __init__(self, state: str) -> None:
        self._state = state

    def status(self) -> StatusView:
        return StatusView(JournalView("memory", 0, 0), (), (SubscriberStatusView("edge", self._state),))

    def queues(self, publisher: str) -> list[QueueView]:
        assert publisher == "author"
        return []


@pytest.mark.parametrize(
    ("announced", "label"),
    [("current", "current"), ("waiting-for golden", "waiting-for"), ("alive", "alive"), ("forged 1", "Other")],
)
def test_states_of_subscribers_are_those_that_there_are(announced: str, label: str) -> None:
    control = Fleet(announced)
    (figures,) = fleet_figures(control, ManualClock(), ("author",))  # type: ignore[arg-type]  # as much as is asked
    assert figures.subscriber_states == (label,)


def test_figures_are_read_again_after_no_thread_could_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    figures = TimedReading(lambda: 7, ManualClock(), PATIENCE_SECONDS)
    monkeypatch.setattr(threading.Thread, "start", fails)
    with pytest.raises(RuntimeError):
        figures.result()
    monkeypatch.undo()
    assert figures.result() == 7

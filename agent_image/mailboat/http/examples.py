"""Examples of the documents, for the API's description. A test holds them against the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from mailboat.api.archive import (
    BatchRate,
    BlobList,
    BlobTally,
    BlobView,
    CutOffView,
    ExpiryView,
    JournalFigures,
    Latency,
    ProblemView,
    RecordView,
    RestoreView,
    RetainerView,
    RetentionView,
    SettingDifference,
    SnapshotView,
    StoredSnapshotView,
    SweepView,
    TargetSweepView,
    TopicCheck,
    TopicSetup,
    TruncationView,
    UnreadableView,
    VerificationView,
)
from mailboat.api.job_views import (
    CallView,
    ClaimedJobView,
    ClaimedView,
    JobDetailView,
    JobQueueView,
    JobScheduleView,
    JobStateView,
    JobView,
    QueueChangeView,
    TurnView,
)
from mailboat.api.problems import PLAIN_TYPE, Problem, problem_of
from mailboat.api.process_views import HistorySample, HistoryView, MemoryAccountView, MemoryView
from mailboat.api.records import (
    BuildFollowerView,
    BuildProgressView,
    BuildView,
    CallerView,
    CauseView,
    CommandView,
    DistributionView,
    FailureView,
    ForgottenView,
    GivenUpView,
    HookCallsView,
    JournalView,
    NotImportedView,
    PublicationPlan,
    PublisherView,
    QueueItemView,
    QueuePage,
    QueueView,
    StatusView,
    SubscriberStatusView,
    TopicView,
    document_of,
)
from mailboat.control.journal_archive import BinaryView, MessageView
from mailboat.errors import (
    DistributionMissingError,
    LimitExceededError,
    PathRefusedError,
    RequestConflictError,
    StorageFullError,
    ThrottledError,
    UsageError,
)

Document = dict[str, Any]

_PACKAGE: Final = "dstrpck-1767225600000-0b9f3c9e-6c1e-4a4e-9a55-3f1f5d6f2b10"
_INSTANCE: Final = "7d1d6d7c-6a64-4b0c-8f0d-0d3a2a4b9c11"
_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)
_CAUSE: Final = CauseView("StorageFull", "no space is left in /srv/site", "/news/a")
_ITEM: Final = QueueItemView(
    "package-0@97", 97, _PACKAGE, "ADD", 41_230, "/news/a", 1, _AT, "error", 3, "editor", _CAUSE
)
_QUEUE: Final = QueueView(f"{_INSTANCE}-edge-1", "author", "edge-1", "blocked", 32, ("clearable", "removable"), _ITEM)
_PUBLISHER: Final = PublisherView("author", "blocked", "/srv/site", _AT)
_SUBSCRIBER: Final = SubscriberStatusView(
    "edge-1",
    "retrying",
    _INSTANCE,
    97,
    32,
    attempts=3,
    max_retries=10,
    given_up=0,
    editable=True,
    ready=False,
    ready_reason="lag",
    target="files:/srv/site",
    announced_at=_AT,
    error=_CAUSE,
    build=BuildProgressView("release-2026-11", 1_200, 5_000),
    after_calls=HookCallsView(3, 0, CauseView("ProcessorFailed", "the hook /usr/bin/purge ended with the exit code 1")),
)

ORDERS: Final[Mapping[str, Document]] = {
    "ChangeOrder": {"paths": ["/news"]},
    "DistributionOrder": {
        "action": "ADD",
        "deep_paths": ["/news/a"],
        "paths": ["/news/a"],
        "request_id": "news-a-1",
    },
}
"""Of requests, by their records."""

DISTRIBUTION: Final[Document] = document_of(
    DistributionView(
        "author",
        _PACKAGE,
        97,
        "ADD",
        ("/news/a",),
        ("/news/a",),
        "news-a-1",
        user_id="editor",
        package_bytes=41_230,
        published_at=_AT,
        state="failed",
        imported=("edge-2",),
        waiting=("edge-1",),
        failed=(FailureView("edge-3", _CAUSE),),
        skipped=(NotImportedView("edge-4", "not-followed"),),
        path_count=1,
    )
)
BUILD: Final[Document] = document_of(
    BuildView(
        "bulk-0f6c2a8d41b7e9530c1d2e3f",
        "author",
        "publishing",
        4_200,
        100_000,
        88_200_000,
        129,
        4_331,
        _AT,
        datetime(2026, 1, 1, 0, 1, tzinfo=UTC),
        (BuildFollowerView("edge-1", 4_090, "importing", pending=100, dropped=10),),
    )
)
PUBLISHER: Final[Document] = document_of(_PUBLISHER)
SUBSCRIBER: Final[Document] = document_of(_SUBSCRIBER)
STATUS: Final[Document] = document_of(
    StatusView(JournalView("sqlite journal.db", 0, 129, 4_200_000, 604_800.0), (_PUBLISHER,), (_SUBSCRIBER,))
)
JOURNAL: Final[Document] = document_of(JournalView("sqlite journal.db", 0, 129, 4_200_000, 604_800.0))
_LOG_ID: Final = "0b7f4c5e/7f2d9a10"
_DIGEST: Final = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
TOPIC: Final[Document] = document_of(TopicView("package", "package", 0, 129, _LOG_ID))
RECORD: Final[Document] = document_of(RecordView(97, _AT, "Package", 41_402, "ADD /news/a   41230 bytes inline"))
VERIFICATION: Final[Document] = document_of(
    VerificationView(129, 12, False, 1, (ProblemView("package", 97, f"a binary: the blob {_DIGEST} is missing"),))
)
TRUNCATION: Final[Document] = document_of(TruncationView("package", 90, True, 90, 90, 129, (CutOffView("edge-7", 12),)))
EXPIRY: Final[Document] = document_of(ExpiryView(12))
RETENTION: Final[Document] = document_of(
    RetentionView(
        enabled=True,
        applied=False,
        earliest_offset=0,
        next_offset=129,
        head=97,
        reason="the slowest subscriber",
        freed_bytes=4_100_000,
        subscribers=(RetainerView("edge-1", True, 97, _AT, 4.0),),
    )
)
TOPIC_SETUP: Final[Document] = document_of(
    TopicSetup(
        "kafka kafka:9092",
        (TopicCheck("package", "package", "changed", (SettingDifference("retention.ms", "-1", "604800000"),)),),
    )
)
BENCH: Final[Document] = document_of(
    JournalFigures(
        "kafka kafka:9092",
        1000,
        Latency(1.9, 4.2, 200),
        Latency(2.3, 5.1, 200),
        (BatchRate(100, 41_000.0, 41_000_000.0, None),),
        380_000.0,
    )
)
BLOBS: Final[Document] = document_of(BlobList((BlobView(_DIGEST, 8_400_000, _AT, "referenced"),)))
SWEEP: Final[Document] = document_of(
    SweepView(
        "/srv/mailboat/blobs",
        True,
        129,
        12,
        {"referenced": BlobTally(12, 8_400_000)},
        unreadable=UnreadableView(98, "MessageCorrupt: the value is not a package message"),
        targets=(TargetSweepView("edge-1", "sqlite:/srv/site.db", 0, "TargetBusy"),),
        grace_seconds=86_400.0,
    )
)
_SNAPSHOT: Final = SnapshotView("blob:site", _DIGEST, 52_000_000, "sqlite:/srv/site.db", _AT, 128, _LOG_ID)
SNAPSHOT: Final[Document] = document_of(_SNAPSHOT)
RESTORE: Final[Document] = document_of(
    RestoreView("edge-1", "sqlite:/srv/site.db", "restoring", "blob:site", "restoring", 26_000_000, 52_000_000, _AT)
)
STORED_SNAPSHOT: Final[Document] = document_of(StoredSnapshotView(_SNAPSHOT, stored=True))
QUEUE: Final[Document] = document_of(_QUEUE)
QUEUE_PAGE: Final[Document] = document_of(QueuePage(_QUEUE, (_ITEM,), 98))
PLAN: Final[Document] = document_of(PublicationPlan(1, 41, 12, 48_000, 1, 48_000, ("/news/a",), ("/news/a/old",)))
COMMAND: Final[Document] = document_of(CommandView("c-3f1f5d6f", "clear", "author", "edge-1", 128, "done", 32))
SUSPENDED: Final[Document] = document_of(
    CommandView("c-77a1", "suspend", "", "edge-1", -1, "done", 0, "imports are suspended")
)
GIVEN_UP: Final[Document] = document_of(GivenUpView("edge-1", "author", 97, _PACKAGE, 11, _AT, ("/news/a",), _CAUSE))
CALLER: Final[Document] = document_of(CallerView("ops", ("clear", "view")))
HISTORY: Final[Document] = document_of(HistoryView((HistorySample(_AT, 3, 12.5),)))
MEMORY: Final[Document] = document_of(
    MemoryView(104_857_600, 268_435_456, (MemoryAccountView("queues", 1_048_576, 67_108_864),))
)
FORGOTTEN: Final[Document] = document_of(ForgottenView("edge-7", registered=False, instances=(_INSTANCE,)))
MESSAGE: Final[Document] = document_of(
    MessageView(
        97,
        _AT,
        _PACKAGE,
        "ADD",
        "author",
        _INSTANCE,
        ("/news/a",),
        ("/news/a",),
        "tree",
        41_230,
        "inline",
        request_id="news-a-1",
        user_id="editor",
        binaries=(BinaryView("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 8_400_000),),
    )
)

_WAITS: Final = "no live worker takes the topic purge.cdn"
_JOB: Final = JobView("1042-0", "purge.cdn", "cdn", "unassigned", 0, _AT, _WAITS)
JOB: Final[Document] = document_of(_JOB)
JOB_DETAIL: Final[Document] = document_of(JobDetailView(_JOB, "news", {"keys": ["/news"]}))
JOB_STATE: Final[Document] = document_of(JobStateView("1042-0", "unassigned", _WAITS))
JOB_QUEUE: Final[Document] = document_of(
    JobQueueView("cdn", "keyed", 12, 9, 2, _AT, 3.5, 1, 0, False, 2, "100/1s", 1, ("purge.*",))  # a row
)
JOB_SCHEDULE: Final[Document] = document_of(
    JobScheduleView("nightly", "report.build", "", "0 3 * * *", "Europe/Berlin", "once", next_at=_AT)
)
QUEUE_CHANGE: Final[Document] = document_of(QueueChangeView("cdn", _AT))
JOB_TURN: Final[Document] = document_of(
    TurnView(
        (ClaimedView("1042-0", 1043, 1, 30.0, (ClaimedJobView("1042-0", "purge.cdn", "news", "eyJrZXlzIjpbXX0="),)),),
        lost=(CallView("1040-0", 1041),),
    )
)
LEFT: Final[Document] = document_of(TurnView())

PROBLEMS: Final[Mapping[int, Problem]] = {
    400: problem_of(UsageError("the query has an unknown parameter 'max_item'", next_step="did you mean max_items?")),
    404: problem_of(
        DistributionMissingError("author has no package with the package id, request id or offset 'news-a-1'")
    ),
    409: problem_of(
        RequestConflictError(
            "the request id news-a-1 was used for another request, published at offset 97",
            next_step="use a new request id",
            offset=97,
        )
    ),
    413: problem_of(LimitExceededError("the body is larger than 1048576 bytes", limit=1_048_576), 413),
    422: problem_of(PathRefusedError("'news' is not a content path: it does not start with '/'", path="news")),
    429: problem_of(ThrottledError("edge-1 lags 1,640 packages behind", retry_after_seconds=7.5, subscriber="edge-1")),
    500: Problem(PLAIN_TYPE, "Internal Server Error", 500, incident="5ef56d70348c429fa1bfa2b5ac4d6b4f"),
    503: problem_of(StorageFullError("no space is left in /srv/site", path="/srv/site")),
}
"""By status; 401 and 403 say no more than their status, and so does 408."""

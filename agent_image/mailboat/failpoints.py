"""Named places at which a test can make the process fail.

The use cases call `failpoints.reach(Failpoint.X)` at every step after which a crash would matter. In production the
object is `NoFailpoints` and the call does nothing; tests pass one that kills the process.
All names live in one enumeration, so that the crash tests can run over it and a new one can't be forgotten.
The practice is etcd's gofail, without the environment: failure is passed in like time.
"""

from __future__ import annotations

import enum
from typing import Protocol


class Failpoint(enum.StrEnum):
    """Every step of publisher and subscriber at which a crash is tested (`tests/faults/`)."""

    PUBLISHER_INTENT_STORED = "publisher-intent-stored"
    PUBLISHER_PACKAGE_BUILT = "publisher-package-built"
    PUBLISHER_BLOB_STORED = "publisher-blob-stored"
    PUBLISHER_PIECES_APPENDED = "publisher-pieces-appended"
    PUBLISHER_APPENDED = "publisher-appended"
    PUBLISHER_RECEIPT_STORED = "publisher-receipt-stored"

    BULK_CLAIMED = "bulk-claimed"
    BULK_BUILD_STORED = "bulk-build-stored"
    BULK_ROWS_STORED = "bulk-rows-stored"
    BULK_ORDER_STORED = "bulk-order-stored"
    BULK_PUBLISHING_STORED = "bulk-publishing-stored"
    BULK_PART_STAGED = "bulk-part-staged"
    BULK_PART_PUBLISHED = "bulk-part-published"
    BULK_COMPLETE_STORED = "bulk-complete-stored"

    EVENTS_APPENDED = "events-appended"
    EVENTS_CURSOR_STORED = "events-cursor-stored"
    DELIVERY_SENT = "delivery-sent"
    DELIVERY_NOTED = "delivery-noted"

    SUBSCRIBER_BATCH_READ = "subscriber-batch-read"
    SUBSCRIBER_BATCH_BEGUN = "subscriber-batch-begun"
    SUBSCRIBER_PACKAGE_CHECKED = "subscriber-package-checked"
    SUBSCRIBER_PACKAGE_APPLIED = "subscriber-package-applied"
    SUBSCRIBER_BEFORE_COMMIT = "subscriber-before-commit"
    SUBSCRIBER_COMMITTED = "subscriber-committed"
    SUBSCRIBER_STATUS_SENT = "subscriber-status-sent"
    SUBSCRIBER_STATUS_MARKED = "subscriber-status-marked"
    SUBSCRIBER_JOBS_APPENDED = "subscriber-jobs-appended"
    SUBSCRIBER_JOBS_FORGOTTEN = "subscriber-jobs-forgotten"
    SUBSCRIBER_ATTEMPT_STORED = "subscriber-attempt-stored"
    SUBSCRIBER_COMMANDS_TAKEN = "subscriber-commands-taken"

    TARGET_REDO_STORED = "target-redo-stored"
    TARGET_FILE_REPLACED = "target-file-replaced"
    TARGET_REDO_DONE = "target-redo-done"
    TARGET_HELD_BACK = "target-held-back"
    TARGET_GENERATION_BUILT = "target-generation-built"
    TARGET_GENERATION_FLIPPED = "target-generation-flipped"
    POOL_FED = "pool-fed"
    JOBS_BEFORE_APPEND = "jobs-before-append"
    JOBS_AFTER_APPEND = "jobs-after-append"
    JOBS_CLAIMED = "jobs-claimed"
    JOBS_BEFORE_HANDLER = "jobs-before-handler"
    JOBS_AFTER_HANDLER = "jobs-after-handler"


class Failpoints(Protocol):
    """What the use cases call."""

    def reach(self, failpoint: Failpoint) -> None:
        """Say that the step is reached; may raise, or not return at all."""


class NoFailpoints:
    """The one for production: nothing fails."""

    def reach(self, failpoint: Failpoint) -> None:
        """Do nothing."""

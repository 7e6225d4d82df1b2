"""Adds jobs from processes that do not fold the job topic: a job with a request id counts once, however often added."""

from __future__ import annotations

from collections.abc import Sequence

from mailboat.config.topic_settings import JOB_TOPIC_SETTINGS
from mailboat.journal.port import Journal, NewRecord
from mailboat.model.identifiers import TopicName
from mailboat.model.jobs import MAX_BATCH, JobsAdded, NewJob
from mailboat.model.messages import JOB_TOPIC
from mailboat.wire.job_records import encode_job_record

_MAX_RECORD_BYTES = 900_000  # a record that every broker takes by default


def ensure_job_topic(journal: Journal, topic: TopicName = JOB_TOPIC) -> None:
    """Create the job topic, unless it exists. Raises: the journal's errors."""
    if topic not in journal.topics():
        journal.ensure_topic(topic, JOB_TOPIC_SETTINGS)


def records_of_jobs(jobs: Sequence[NewJob]) -> Sequence[JobsAdded]:
    """The records that add these jobs in their order: as few as hold them all."""
    records: list[JobsAdded] = []
    batch: list[NewJob] = []
    size = 0
    for job in jobs:
        if batch and (len(batch) == MAX_BATCH or size + _size_of(job) > _MAX_RECORD_BYTES):
            records.append(JobsAdded(batch))
            batch, size = [], 0
        batch.append(job)
        size += _size_of(job)
    return [*records, JobsAdded(batch)] if batch else records


def _size_of(job: NewJob) -> int:
    # A character takes up to four bytes, the numbers less than 100.
    return len(job.payload) + 4 * (len(job.topic) + len(job.key) + len(job.unique) + len(job.request_id)) + 100


def append_jobs(journal: Journal, jobs: Sequence[NewJob]) -> None:
    """Append jobs to the job topic, which exists. Raises: as `Journal.append`; some may be appended then."""
    for record in records_of_jobs(jobs):
        headers, value = encode_job_record(record)
        journal.append(JOB_TOPIC, [NewRecord(value, headers)])

"""What the fold decides for a fixed job topic. Workers of several versions read one topic, and must decide the same.

`jobs/log.txt` has the records: append time, type, value. `jobs/rules-N.txt` has what version N of the rules makes of
them. A new version of the rules gets its file by `pytest tests/golden/test_job_decisions.py --update-golden`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.jobs.fold import JobFold
from mailboat.jobs.leases import RULES
from mailboat.model.identifiers import Offset
from mailboat.model.jobs import JobState, show_job_id
from mailboat.wire.headers import headers_for
from mailboat.wire.job_records import decode_job_record

FOLDER = Path(__file__).parent / "jobs"


def decisions() -> Iterator[str]:
    """A line for each record, with all that changed; then a line for each job that is left."""
    fold = JobFold()
    for offset, line in enumerate((FOLDER / "log.txt").read_text().splitlines()):
        appended_ms, kind, value = line.split()
        record = decode_job_record(headers_for(int(kind)), bytes.fromhex(value))
        applied = fold.apply(Offset(offset), int(appended_ms), record)
        words = [f"added {show_job_id(job)}" for job in applied.added]
        words += [f"void {show_job_id(job)}" for job in applied.void]
        for job, state, queue, reason, duration_ms in applied.transitions:
            is_again = state is JobState.QUEUED
            due = f" due {fold.table.due_ms(job)} tries {fold.table.tries(job)}" if is_again else ""
            words.append(f"{show_job_id(job)} {state.label} {queue} {reason or '-'} {duration_ms}{due}")
        words.append(f"next {fold.next_moment_ms()}; {len(fold.table)} jobs; workers {' '.join(sorted(fold.workers))}")
        yield f"{offset} {type(record).__name__}: {'; '.join(words)}"
    for job, state_number, due_ms, _ in fold.table.rows():
        state, queue = JobState(state_number), fold.queue(job).name
        yield f"{show_job_id(job)}: {state.label} {queue} due {due_ms} tries {fold.table.tries(job)}"


def test_the_fold_decides_a_fixed_log_as_its_version_of_the_rules_did(request: pytest.FixtureRequest) -> None:
    golden = FOLDER / f"rules-{RULES}.txt"
    found = list(decisions())
    if request.config.getoption("--update-golden") and not golden.exists():
        golden.write_text("".join(f"{line}\n" for line in found))
    for line, expected in zip(found, golden.read_text().splitlines(), strict=True):
        assert line == expected, f"the fold decides otherwise than version {RULES} of the rules: bump RULES (leases.py)"

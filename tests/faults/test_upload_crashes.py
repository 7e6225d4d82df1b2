"""A publisher of a large package dies at every step between upload, append and reply: one message or none.

What no one names afterwards is swept, what the message names is not: on a directory and on a real S3 server.
"""

from __future__ import annotations

import hashlib
import signal
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mailboat.failpoints import Failpoint
from mailboat.maintenance.blob_sweep import SweepReport, sweep
from mailboat.subscriber.subscriber import Until
from support import upload_scenario
from support.engines import PACKAGES, Engine, digest_of
from support.forks import preload, run_child
from support.s3_server import ADMIN, S3Server
from support.upload_scenario import LARGE, BucketPlace

STEPS = [
    failpoint
    for failpoint in Failpoint
    if failpoint.startswith("publisher-") and failpoint is not Failpoint.PUBLISHER_PIECES_APPENDED
]
"""Pieces are what travels without a blob store; test_engine_crashes.py has them."""

BEFORE_THE_APPEND = {
    Failpoint.PUBLISHER_PACKAGE_BUILT,
    Failpoint.PUBLISHER_BLOB_STORED,
    Failpoint.PUBLISHER_INTENT_STORED,
}
preload("support.crash_scenario", "support.upload_scenario")


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.server("s3_server"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> BucketPlace | None:
    upload_scenario.prepare(tmp_path)
    if request.param == "directory":
        return None
    server: S3Server = request.getfixturevalue("s3_server")
    prefix = f"{hashlib.sha256(str(tmp_path).encode()).hexdigest()[:12]}/"
    return BucketPlace(server.url, server.bucket, prefix, ADMIN)


def swept(engine: Engine) -> SweepReport:
    """What a sweep does when the grace period is over."""
    later = SimpleNamespace(now=lambda: engine.parts.clock.now() + timedelta(days=2))
    config = SimpleNamespace(blobs=SimpleNamespace(grace_seconds=3600.0))
    workspace: Any = SimpleNamespace(
        journal=engine.journal,
        package_topic=PACKAGES,
        blobs=engine.blobs,
        clock=later,
        home=SimpleNamespace(config=config),
    )
    return sweep(workspace)


@pytest.mark.rotates("step")
@pytest.mark.parametrize("step", STEPS)
def test_who_comes_back_publishes_once_and_nothing_is_left_over(
    place: BucketPlace | None, tmp_path: Path, step: Failpoint
) -> None:
    assert run_child(upload_scenario.publish, str(tmp_path), place, step) == -signal.SIGKILL
    assert run_child(upload_scenario.publish, str(tmp_path), place) == 0
    with upload_scenario.open_engine(tmp_path, place) as engine:
        assert len(engine.records()) == 1
        report = swept(engine)
        assert report.references == 2  # the package and its binary
        assert len(list(engine.blobs.list())) == 2
        target = engine.target("sqlite")
        engine.subscriber(target).run(Until.CAUGHT_UP)
        assert digest_of(target.source()) == digest_of(upload_scenario.prepare(tmp_path))
        target.close()


@pytest.mark.rotates("step")
@pytest.mark.parametrize("step", STEPS)
def test_who_never_comes_back_leaves_one_message_or_none_and_no_orphan(
    place: BucketPlace | None, tmp_path: Path, step: Failpoint
) -> None:
    assert run_child(upload_scenario.publish, str(tmp_path), place, step) == -signal.SIGKILL
    with upload_scenario.open_engine(tmp_path, place) as engine:
        is_appended = step not in BEFORE_THE_APPEND
        assert len(engine.records()) == is_appended
        swept(engine)
        assert len(list(engine.blobs.list())) == (2 if is_appended else 0)


def test_an_upload_that_was_cut_by_a_death_leaves_no_blob_and_its_parts_are_swept(
    place: BucketPlace | None, tmp_path: Path
) -> None:
    assert run_child(upload_scenario.die_in_the_upload, str(tmp_path), place) == -signal.SIGKILL
    with upload_scenario.open_engine(tmp_path, place) as engine:
        assert list(engine.blobs.list()) == []
        assert swept(engine).abandoned_uploads == 1
        assert swept(engine).abandoned_uploads == 0
        with (tmp_path / "site/large.bin").open("rb") as file:
            info = engine.blobs.put(file, hashlib.sha256(LARGE).digest())
        assert info.length_bytes == len(LARGE)

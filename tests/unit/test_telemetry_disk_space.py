"""Free space is measured for each file system that an agent writes to, also while one of them hangs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from mailboat.agent.observability import Observability, written_places
from mailboat.clock import SystemClock
from mailboat.composition.home import Home
from mailboat.config.document import AgentsConfig, BlobsConfig, Config, SubscriberAgentConfig
from mailboat.config.storage import S3Config
from mailboat.telemetry.disk_space import DiskSpace, FileSystem, Space, WrittenPath, measured_space
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from prometheus_client.parser import text_string_to_metric_families

HOME, NFS, WEB = (WrittenPath(use, Path(f"/{use}")) for use in ("home", "nfs", "web"))
MISSING = "/is-not-there-at-all"


def home_of(folder: Path, *targets: str, blobs: BlobsConfig | None = None) -> Home:
    subscribers = tuple(SubscriberAgentConfig(f"edge-{number}", target) for number, target in enumerate(targets))
    return Home(folder, Config(agents=AgentsConfig(subscribers=subscribers), blobs=blobs or BlobsConfig()))


def test_each_file_system_is_shown_once_with_what_uses_it() -> None:
    spaces = {HOME.path: Space(1, 100, 50), NFS.path: Space(2, 100, 9)}
    places = [HOME, NFS, *(WrittenPath(f"target of {number}", HOME.path) for number in range(500))]
    assert DiskSpace(places, spaces.__getitem__).file_systems() == [
        FileSystem("home, target of 0, target of 1, 498 more", Space(1, 100, 50)),
        FileSystem("nfs", Space(2, 100, 9)),
    ]


def test_quotas_of_claims_on_one_device_are_file_systems_of_their_own() -> None:
    spaces = {HOME.path: Space(1, 100, 50), WEB.path: Space(1, 10, 1)}
    found = DiskSpace([HOME, WEB], spaces.__getitem__).file_systems()
    assert [system.used_by for system in found] == ["home", "web"]


def test_a_file_system_that_hangs_costs_its_own_figures_only(caplog: pytest.LogCaptureFixture) -> None:
    released, asked = threading.Event(), list[Path]()

    def measure(path: Path) -> Space:
        asked.append(path)
        if path == NFS.path:
            assert released.wait(PATIENCE_SECONDS)
        return Space(ord(path.name[0]), 100, 50)

    def shown() -> list[str]:
        return [system.used_by for system in disks.file_systems()]

    disks = DiskSpace([HOME, NFS, WEB], measure, round_seconds=0.1)
    wait_until(lambda: shown() == ["home", "web"])
    assert shown() == ["home", "web"]
    assert asked.count(NFS.path) == 1, "a thread hangs at each scrape"
    assert "the file system of nfs does not answer (/nfs)" in caplog.text
    released.set()
    wait_until(lambda: shown() == ["home", "nfs", "web"])


def test_a_place_that_is_made_later_is_measured_where_it_will_be(tmp_path: Path) -> None:
    here, later = measured_space(tmp_path), measured_space(tmp_path / "not" / "made")
    # The free bytes are left out: all tests of the machine write to this file system between the two calls.
    assert (later.device, later.total_bytes) == (here.device, here.total_bytes)
    assert DiskSpace([WrittenPath("home", Path("relative/and/not/made"))]).file_systems() != []


def test_journal_blobs_targets_and_temporary_files_are_measured(tmp_path: Path) -> None:
    def uses(home: Home) -> dict[str, Path]:
        return {place.use: place.path for place in written_places(home)}

    found = uses(home_of(tmp_path, "sqlite:web.db", "files:/srv/site", "nonsense"))
    assert found.pop("temporary files").is_dir()
    assert found == {
        "home": tmp_path,
        "journal": tmp_path / "journal.db",
        "blobs": tmp_path / "blobs",
        "target of edge-0": tmp_path / "web.db",
        "target of edge-1": Path("/srv/site"),
    }
    bucket = BlobsConfig(s3=S3Config(bucket="blobs"))
    assert uses(home_of(tmp_path, blobs=bucket)).keys() == {"home", "journal", "temporary files"}


def test_target_on_a_claim_of_its_own_has_its_own_series(tmp_path: Path) -> None:
    """The root and /dev/shm are two file systems of every Linux machine; the tests' folders are on one of them."""
    other = next(place for place in ("/", "/dev/shm") if Path(place).stat().st_dev != tmp_path.stat().st_dev)
    text = Observability(home_of(tmp_path, f"files:{other}{MISSING}"), SystemClock()).render().content.decode()
    [sizes] = [family for family in text_string_to_metric_families(text) if family.name == "mailboat_agent_disk_bytes"]
    found = {sample.labels["used_by"]: sample.value for sample in sizes.samples}
    [target] = [size for used_by, size in found.items() if used_by.startswith("target of edge-0")]
    status = os.statvfs(other)
    assert target == status.f_blocks * status.f_frsize
    assert len(found) >= 2

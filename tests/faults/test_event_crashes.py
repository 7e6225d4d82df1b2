"""SIGKILL while events are raised and posted: none is lost, the log has each once, a webhook each at least once."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mailboat.failpoints import Failpoint
from mailboat.model.messages import MissedReason
from support import event_scenario
from support.event_scenario import PACKAGES
from support.forks import preload, run_child

RAISING = [failpoint for failpoint in Failpoint if failpoint.startswith("events-")]
POSTING = [failpoint for failpoint in Failpoint if failpoint.startswith("delivery-")]
preload("support.event_scenario")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events")
    event_scenario.prepare(folder)
    return folder


@pytest.fixture
def posts() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """A receiver, and what it took."""
    taken: list[dict[str, object]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/events", taken
    server.shutdown()
    thread.join()
    server.server_close()


def copy_of(prepared: Path, into: Path) -> Path:
    return Path(shutil.copytree(prepared, into / "copy"))


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("failpoint", RAISING)
def test_a_publisher_killed_at_any_step_raises_each_event_once(
    prepared: Path, tmp_path: Path, failpoint: Failpoint, count: int
) -> None:
    folder = copy_of(prepared, tmp_path)
    assert run_child(event_scenario.raise_events, str(folder), failpoint, count) == -signal.SIGKILL
    before = len(event_scenario.events_of(folder))
    assert before < PACKAGES or (failpoint, count) == (failpoint, 3)
    for _ in range(2):
        assert run_child(event_scenario.raise_events, str(folder)) == 0
    events = event_scenario.events_of(folder)
    assert [event.offset for event in events] == list(range(PACKAGES))
    assert [(event.offset, event.missed[0].reason) for event in events if event.missed] == [(7, MissedReason.FAILED)]


@pytest.mark.rotates("failpoint")
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("failpoint", POSTING)
def test_a_webhook_killed_at_any_step_posts_each_event_in_order(
    prepared: Path,
    tmp_path: Path,
    posts: tuple[str, list[dict[str, object]]],
    failpoint: Failpoint,
    count: int,
) -> None:
    url, taken = posts
    folder = copy_of(prepared, tmp_path)
    assert run_child(event_scenario.post_events, str(folder), url) == 0  # it stands before the first event
    assert taken == []
    event_scenario.raise_events(str(folder))
    assert run_child(event_scenario.post_events, str(folder), url, failpoint, count) == -signal.SIGKILL
    assert run_child(event_scenario.post_events, str(folder), url) == 0
    ids = [item["id"] for item in taken]
    assert list(dict.fromkeys(ids)) == [f"p{number}" for number in range(PACKAGES)]
    repeated = len(ids) - PACKAGES
    assert repeated == (1 if failpoint is Failpoint.DELIVERY_SENT else 0)


@pytest.mark.parametrize("count", [1, 2])
def test_an_agent_killed_after_an_append_of_job_events_repeats_none(prepared: Path, tmp_path: Path, count: int) -> None:
    folder = copy_of(prepared, tmp_path)
    assert run_child(event_scenario.append_job_events, str(folder)) == 0  # it stands before the first event
    jobs = event_scenario.add_jobs(folder)
    killed = run_child(event_scenario.append_job_events, str(folder), Failpoint.DELIVERY_SENT, count)
    assert killed == -signal.SIGKILL
    assert event_scenario.job_events_of(folder) == jobs[: 500 * count]
    assert run_child(event_scenario.append_job_events, str(folder)) == 0
    assert event_scenario.job_events_of(folder) == jobs

"""The control service of a home whose subscribers were started from it, whether they run or not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from mailboat.api.records import SubscriberStatusView
from mailboat.composition.home import Home, RegisteredSubscriber
from mailboat.composition.workspace import Workspace
from mailboat.control.service import ControlService
from mailboat.control.subscriber_directory import directory_of, members_below, position_findings
from mailboat.errors import UsageError
from mailboat.model.identifiers import AgentName, Offset, TopicName
from mailboat.model.positions import Bounds
from mailboat.model.requests import parse_request


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.html").write_text(f"<h1>{number}</h1>")
    (folder / "picture.png").write_bytes(bytes(range(256)) * 1000)
    return folder


@contextmanager
def opened(boat: Any) -> Iterator[tuple[Workspace, ControlService]]:
    with Workspace(Home(boat.home)) as workspace:
        service = ControlService(workspace)
        yield workspace, service
        service.close()


def member(service: ControlService, name: str = "web") -> SubscriberStatusView:
    (found,) = [subscriber for subscriber in service.status().subscribers if subscriber.name == name]
    return found


def subscribe(boat: Any, tmp_path: Path, name: str = "web", *words: str) -> None:
    boat.run("subscribe", name, "--into", f"files:{tmp_path / name}", "--until", "caught-up", *words)


def test_a_position_that_moves_during_a_verification_is_no_problem(
    boat: Any, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boat.do("publish", site, "/0.html")
    subscribe(boat, tmp_path)
    with opened(boat) as (workspace, _):
        journal, read_bounds = workspace.journal, workspace.journal.bounds

        def bounds(topic: TopicName) -> Bounds:
            found = read_bounds(topic)
            monkeypatch.setattr(journal, "bounds", read_bounds)
            boat.do("publish", site, "/1.html")
            subscribe(boat, tmp_path)
            return found

        monkeypatch.setattr(journal, "bounds", bounds)
        assert position_findings(workspace) == []


def test_one_that_does_not_run_is_known_from_its_target(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/0.html")
    subscribe(boat, tmp_path)
    boat.do("publish", site, "/1.html")
    with opened(boat) as (_, service):
        web = member(service)
        assert (web.state, web.next_offset, web.lag, web.given_up) == ("stopped", 1, 1, 0)
        (queue, errors) = service.queues("author")
        assert (queue.subscriber, queue.count, queue.head and queue.head.path) == ("web", 1, "/1.html")
        assert (errors.state, errors.count) == ("passive", 0)


def test_one_that_was_never_started_has_all_before_it(boat: Any, site: Path) -> None:
    boat.do("publish", site, "/0.html")
    with opened(boat) as (workspace, service):
        workspace.home.remember_subscriber(
            RegisteredSubscriber(AgentName("web"), "files:/nowhere", (AgentName("author"),))
        )
        web = member(service)
        assert (web.state, web.next_offset, web.lag, web.target) == ("new", None, None, "files:/nowhere")
        assert service.queue("author", "web").queue.count == 1
        assert service.errors("web").items == ()
        done = service.distribute("author", parse_request("INVALIDATE", ("/x",)))
        assert service.distribution("author", done.package_id).waiting == ("web",)


def test_a_target_that_can_not_be_read_is_told_with_its_error(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/0.html")
    subscribe(boat, tmp_path)
    for file in (tmp_path / "web" / ".mailboat").glob("*"):
        if file.is_file():
            file.write_bytes(b"damaged" * 1000)
    with opened(boat) as (_, service):
        error = member(service).error
        assert error is not None
        assert error.code == "TargetCorrupt"
        assert service.errors().items == ()


def test_what_it_gave_up_is_asked_of_its_target(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/picture.png")
    shutil.rmtree(boat.home / "blobs" / "sha256")
    subscribe(boat, tmp_path, "web", "--max-retries", "0")
    boat.do("publish", site, "/0.html")
    with opened(boat) as (_, service):
        (found,) = service.errors().items
        assert (found.subscriber, found.offset, found.paths, found.attempts) == ("web", 0, ("/picture.png",), 1)
        assert found.error is not None
        assert found.error.code == "BlobMissing"
        assert service.errors("web").items == (found,)
        assert member(service).given_up == 1
        (sent,) = service.redrive("web", [0])
        assert (sent.verb, sent.publisher, sent.offset) == ("redrive", "author", 0)
        with pytest.raises(UsageError, match="no error-queue entry and no failed hook call at offset 1"):
            service.redrive("web", [1])


def test_one_that_gave_up_a_package_did_not_import_it(boat: Any, site: Path, tmp_path: Path) -> None:
    boat.do("publish", site, "/picture.png", "--request-id", "r1")
    shutil.rmtree(boat.home / "blobs" / "sha256")
    subscribe(boat, tmp_path, "web", "--max-retries", "0")
    with opened(boat) as (_, service):
        found = service.distribution("author", "r1")
        assert (found.state, [each.subscriber for each in found.failed], found.imported) == ("failed", ["web"], ())


def test_who_would_lose_packages_is_known(boat: Any, site: Path, tmp_path: Path) -> None:
    for number in range(3):
        boat.do("publish", site, f"/{number}.html")
        if number == 1:
            subscribe(boat, tmp_path)
    with opened(boat) as (workspace, _):
        assert [item.name for item in members_below(workspace, Offset(2))] == []
        assert [item.name for item in members_below(workspace, Offset(3))] == ["web"]
        assert position_findings(workspace) == []
        workspace.journal.truncate(workspace.package_topic, Offset(3))
        assert [position_finding.problem for position_finding in position_findings(workspace)] == [
            "position of web is before the oldest package"
        ]


@pytest.mark.parametrize(
    ("change", "problem", "code"),
    [
        ("replaced", "web is in another log", "JournalReplaced"),
        ("shorter", "position of web is beyond the end of the log", "JournalShorter"),
    ],
)
def test_a_log_that_does_not_fit_the_target_is_found(
    boat: Any, site: Path, tmp_path: Path, change: str, problem: str, code: str
) -> None:
    if change == "shorter":
        shutil.copytree(boat.home, tmp_path / "kept")
    boat.do("publish", site, "/0.html")
    subscribe(boat, tmp_path)
    for file in boat.home.glob("journal.db*"):
        if file.is_file():
            file.unlink()
    if change == "shorter":
        for file in (tmp_path / "kept").glob("journal.db*"):
            if file.is_file():
                shutil.copy(file, boat.home)
    else:
        boat.do("init", "--new-journal")
    with opened(boat) as (workspace, service):
        assert [position_finding.problem.startswith(problem) for position_finding in position_findings(workspace)] == [
            True
        ]
        error = member(service).error
        assert error is not None
        assert error.code == code


def test_the_audience_of_an_empty_home_is_no_one(boat: Any) -> None:
    with opened(boat) as (workspace, service):
        assert directory_of(workspace).members() == []
        status = service.status()
        assert (status.subscribers, [publisher.name for publisher in status.publishers]) == ((), ["author"])
        assert service.queues("author") == []

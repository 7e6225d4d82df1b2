"""The dashboard and the API of an agent without a publisher: its own subscribers, and commands to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from mailboat.agent.process import AgentProcess
from mailboat.api.client import HttpControl
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.document import (
    AgentsConfig,
    Config,
    HooksConfig,
    HttpConfig,
    PublisherAgentConfig,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
    TokenConfig,
    Verb,
)
from mailboat.config.storage import Secret
from mailboat.control.service import ControlService
from mailboat.errors import AgentMissingError, CommandMissingError, JournalUnavailableError
from mailboat.http.agent_server import server_of
from mailboat.journal.port import JournalReader, Start
from mailboat.model.identifiers import TopicName
from mailboat.model.messages import TopicRole
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from playwright.sync_api import Page, expect
from support.browser import barriers, chromium, page_in

KNOWN = [(0, 3, "current"), (0, 0, "current"), (3, 0, "waiting-for ghost"), (None, None, "stopped")]
"""Lags, failed packages and states of the subscribers, in the order of the configuration."""

VERBS = {"viewer": Verb.VIEW, "worker": Verb.WORK}


@contextmanager
def subscriber_agent(folder: Path, http: HttpConfig) -> Iterator[tuple[AgentProcess, str]]:
    """A process with subscribers of three packages: `edge` gives them up, `staged` waits, `broken` has no target."""
    site = folder / "site"
    site.mkdir()
    for name in ("a", "b", "c"):
        (site / f"{name}.html").write_text(name)
    author = PublisherAgentConfig("author", str(site))
    hook = ("test", "-e", str(folder / "mended"))
    subscribers = (
        SubscriberAgentConfig("edge", f"files:{folder / 'edge'}", hooks=HooksConfig(before=hook)),
        SubscriberAgentConfig("free", f"files:{folder / 'free'}", follow=("author",)),
        SubscriberAgentConfig("staged", f"files:{folder / 'staged'}", editable=True, staging=StagingConfig("ghost")),
        SubscriberAgentConfig("broken", f"sqlite:{site / 'a.html' / 'no.db'}"),
    )
    pauses = SubscriberConfig(announce_seconds=0.2, first_pause_seconds=0.05, longest_pause_seconds=0.1, max_retries=1)
    config = Config(agents=AgentsConfig(subscribers=subscribers), subscriber=pauses, http=http)
    home = Home(folder / "home", config)
    prepare(home)
    with Workspace(home, SystemClock()) as workspace:
        control = ControlService(workspace, (author,))
        for name in ("a", "b", "c"):
            control.distribute("author", parse_request("ADD", (f"/{name}.html",)))
        control.close()
    with AgentProcess(home) as process:
        process.start()
        server = server_of(process)
        server.start()
        own, history = process.own, process.history
        assert own is not None
        assert history is not None
        wait_until(lambda: [(one.lag, one.given_up, one.state) for one in own.status().subscribers] == KNOWN)
        history.sample()  # as every ten seconds
        yield process, server.url
        server.stop(Deadline(SystemClock(), 5.0))


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-0123456789abcdef"}


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, str]]:
    with subscriber_agent(tmp_path_factory.mktemp("agent"), HttpConfig(port=0)) as made:
        yield made


def get(url: str, path: str, **headers: str) -> httpx2.Response:
    return httpx2.get(f"{url}{path}", headers=headers, timeout=PATIENCE_SECONDS)


def confirm(page: Page, button: str, outcome: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(outcome)


def see_subscribers(page: Page, url: str) -> None:
    main = page.get_by_role("main")
    page.goto(url)
    expect(main).to_contain_text("This agent has no publisher")
    expect(page.get_by_role("navigation", name="Views")).to_have_text("OverviewErrors3 failed packagesStorage")
    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("edge ▲lacks content 3 packages")
    expect(page.get_by_role("row", name="current free 0")).to_be_visible()
    expect(page.get_by_role("row", name="waiting-for ghost staged 3")).to_be_visible()
    assert barriers(page) == []
    page.get_by_role("table", name="Subscribers").get_by_role("link", name="edge").click()
    expect(page.get_by_role("img", name=re.compile("^Lag: now 0 packages"))).to_be_visible()
    expect(main).to_contain_text("offset 0 of author, 2 attempts")
    expect(main).to_contain_text("The queue is empty.")
    page.goto(f"{url}/#/subscribers/staged")
    expect(page.get_by_role("table", name="Queue of author").get_by_role("row")).to_have_count(4)
    assert barriers(page) == []
    page.goto(f"{url}/#/errors")
    expect(main).to_contain_text("ProcessorFailed the hook test ended with the exit code 1")
    page.goto(f"{url}/#/storage")
    expect(page.get_by_role("table", name="Memory accounts").get_by_role("row")).to_have_count(3)
    page.goto(f"{url}/#/packages")  # a view that this agent does not serve
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def command_subscribers(page: Page, url: str, folder: Path) -> None:
    main = page.get_by_role("main")
    page.goto(f"{url}/#/subscribers/free")
    page.get_by_role("combobox", name="Suspend").select_option("for 8 hours")
    page.get_by_role("button", name="Suspend imports…").click()
    confirm(page, "Suspend", "free")
    expect(page.get_by_role("region", name="Imports are suspended")).to_contain_text("until")
    page.get_by_role("button", name="Resume imports").click()
    expect(page.get_by_role("button", name="Suspend imports…")).to_be_visible()
    page.goto(f"{url}/#/subscribers/staged")
    page.get_by_role("button", name="Remove", exact=True).click()
    confirm(page, "Drop", "done: 1 package dropped")
    page.get_by_role("button", name="Clear queue…").click()
    confirm(page, "Drop", "done: 2 packages dropped")
    expect(main).to_contain_text("The queue is empty.")
    (folder / "mended").touch()
    page.goto(f"{url}/#/errors")
    page.get_by_role("button", name="Redrive all 3…").click()
    confirm(page, "Redrive", "edge: the package was imported")
    expect(main).to_contain_text("No package is in an error queue.")
    assert (folder / "edge" / "c.html").read_text() == "c"


def test_subscribers_of_an_agent_without_a_publisher_are_shown_and_commanded(tmp_path: Path) -> None:
    with subscriber_agent(tmp_path, HttpConfig(port=0)) as (_, url), chromium() as browser, page_in(browser) as page:
        see_subscribers(page, url)
        command_subscribers(page, url, tmp_path)


def test_queue_of_a_waiting_subscriber_is_read_page_by_page(agent: tuple[AgentProcess, str]) -> None:
    _, url = agent
    path = "/api/v1/publishers/author/queues/staged"
    first = get(url, f"{path}?max_items=2").json()
    assert (first["queue"]["count"], first["queue"]["exact"]) == (3, False)
    assert first["queue"]["capabilities"] == ["clearable", "removable"]
    assert [(item["path"], item["state"]) for item in first["items"]] == [("/a.html", "queued"), ("/b.html", "queued")]
    last = get(url, f"{path}?max_items=2&from_offset={first['next_offset']}").json()
    assert ([item["path"] for item in last["items"]], last["next_offset"]) == (["/c.html"], None)
    status = {subscriber["name"]: subscriber for subscriber in get(url, "/api/v1/status").json()["subscribers"]}
    assert (status["staged"]["state"], status["staged"]["lag"]) == ("waiting-for ghost", 3)
    assert (status["broken"]["state"], status["broken"]["error"]["code"]) == ("stopped", "PlaceUnusable")


def test_api_of_an_agent_without_a_publisher_is_a_part_of_the_whole_one(agent: tuple[AgentProcess, str]) -> None:
    _, url = agent
    links = re.findall(r'href="([^"]+)"', get(url, "/api/docs").text)
    answers = {link: get(url, link).status_code for link in links}
    assert answers.pop("/readyz") == 503, "`broken` has stopped"
    assert set(answers.values()) == {200}
    assert get(url, "/api/v1/caller").json() == {"name": "local", "verbs": sorted(Verb), "scope": "subscribers"}
    samples = get(url, "/api/v1/subscribers/free/history").json()["samples"]
    assert samples[-1]["lag"] == 0
    events = get(url, "/api/v1/events?follow=false", **{"accept-encoding": "identity"}).text
    assert "event: snapshot" in events
    assert 'data: {"reason":"complete"}' in events
    page = get(url, "/api/v1/errors?subscriber=edge&max_items=2").json()
    assert [item["offset"] for item in page["items"]] == [0, 1]
    following = get(url, f"/api/v1/errors?subscriber=edge&page={page['next_page']}").json()
    assert ([item["offset"] for item in following["items"]], following["next_page"]) == ([2], None)
    empty = get(url, "/api/v1/publishers/author/queues/free").json()
    assert (empty["queue"]["count"], empty["queue"]["state"], empty["items"]) == (0, "idle", [])
    metrics = get(url, "/metrics").text
    assert 'route="/api/v1/subscribers/{name}/history"' in metrics


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        (
            "/api/v1/errors?subscriber=nobody",
            404,
            "no subscriber 'nobody' runs here; this process has: edge, free, staged, broken",
        ),
        ("/api/v1/errors?max_items=-1", 400, "query.max_items: expected a number from 1 to 1000, not '-1'"),
        ("/api/v1/errors?max_items=0", 400, "query.max_items: expected a number from 1 to 1000, not '0'"),
        ("/api/v1/errors?pages=2", 400, "the query has an unknown parameter 'pages'"),
        ("/api/v1/publishers/news/queues/free", 404, "free does not follow news"),
        ("/api/v1/errors?max_items=x", 400, "query.max_items: expected a number from 1 to 1000, not 'x'"),
        ("/api/v1/jobs", 404, "this agent has no publisher, and serves nothing at '/api/v1/jobs'"),
    ],
)
def test_what_an_agent_without_a_publisher_does_not_have(
    path: str, status: int, detail: str, agent: tuple[AgentProcess, str]
) -> None:
    answer = get(agent[1], path)
    assert (answer.status_code, answer.json()["detail"]) == (status, detail)


def test_access_rules_are_those_of_every_agent(tmp_path: Path) -> None:
    for name in VERBS:
        (tmp_path / name).write_text(f"{name}-0123456789abcdef")
    tokens = tuple(TokenConfig(name, Secret(file=str(tmp_path / name)), (verb,)) for name, verb in VERBS.items())
    with subscriber_agent(tmp_path, HttpConfig(port=0, tokens=tokens)) as (_, url):
        page = get(url, "/")
        assert page.headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        cross = {**bearer("viewer"), "sec-fetch-site": "cross-site"}
        for path in ("status", "caller", "events?follow=false", "history", "memory", "errors"):
            calls: tuple[dict[str, str], ...] = ({}, bearer("worker"), cross, bearer("viewer"))
            assert [get(url, f"/api/v1/{path}", **headers).status_code for headers in calls] == [401, 403, 403, 200]
        assert get(url, "/api/v1/caller", **bearer("viewer")).json()["verbs"] == ["view"]
        posted = httpx2.post(f"{url}/api/v1/status", headers=bearer("viewer"), timeout=PATIENCE_SECONDS)
        assert posted.status_code == 405
        for path in ("subscribers/free/suspend", "subscribers/free/resume", "errors/redrive"):
            refused = httpx2.post(f"{url}/api/v1/{path}", headers=bearer("viewer"), timeout=PATIENCE_SECONDS)
            assert refused.status_code == 403, path


def test_pages_of_other_hosts_are_kept_out(agent: tuple[AgentProcess, str]) -> None:
    assert get(agent[1], "/api/v1/status", host="rebound.example").status_code == 403
    assert get(agent[1], "/api/v1/status", origin="http://other.example").status_code == 403


@pytest.mark.parametrize(
    ("path", "order", "status", "detail"),
    [
        ("publishers/author/queues/free/clear", {}, 409, "free is not editable"),
        ("subscribers/free/suspend", {"seconds": "x"}, 400, "body.seconds: Expected `float | null`, got `str`"),
        ("subscribers/free/suspend", {"second": 1}, 400, "body.second: there is no such member"),
        ("subscribers/free/suspend", {"seconds": -1}, 400, "a suspension lasts 1 second to 366 days, not -1 s"),
        ("subscribers/free/resume", {"wait_seconds": 61}, 400, "body.wait_seconds: expected 0 to 60 seconds"),
        ("subscribers/free/resume", {"wait_seconds": 10**400}, 400, "body.wait_seconds: Number out of range"),
        ("errors/redrive", {"subscriber": "edge", "offsets": [7]}, 400, "edge has no error-queue entry and no failed"),
        (
            "errors/redrive",
            {"subscriber": "edge", "offsets": ["0"]},
            400,
            "body.offsets[0]: Expected `int`, got `str`",
        ),
        ("errors/redrive", {"subscriber": "edge", "offsets": [-1]}, 400, "body.offsets: expected at most 1000 offsets"),
        ("errors/redrive", {"subscribers": "edge", "offsets": [0]}, 400, "body.subscribers: there is no such member"),
        ("errors/redrive", {"offsets": [0]}, 400, "body: Object missing required field `subscriber`"),
        ("errors/redrive", [], 400, "body: Expected `object`, got `array`"),
    ],
)
def test_invalid_commands_are_refused(
    path: str, order: object, status: int, detail: str, agent: tuple[AgentProcess, str]
) -> None:
    answer = httpx2.post(f"{agent[1]}/api/v1/{path}", json=order, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, answer.json()["detail"][: len(detail)]) == (status, detail)


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=json"])
def test_commands_of_forms_are_refused(kind: str, agent: tuple[AgentProcess, str]) -> None:
    place, headers = f"{agent[1]}/api/v1/subscribers/free/suspend", {"content-type": kind}
    form = httpx2.post(place, content="{}", headers=headers, timeout=PATIENCE_SECONDS)
    assert form.json()["detail"] == f"the body must be JSON, but the header Content-Type is {kind!r}"


def test_a_command_is_sent_although_the_answer_to_it_cannot_be_read(
    agent: tuple[AgentProcess, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = agent[0].workspace.journal
    open_reader = journal.reader

    def reader(topic: TopicName, start: Start) -> JournalReader:
        if topic == TopicRole.STATUS:
            raise JournalUnavailableError("the brokers are away")
        return open_reader(topic, start)

    monkeypatch.setattr(journal, "reader", reader)
    url = f"{agent[1]}/api/v1/subscribers/free/resume"
    answer = httpx2.post(url, json={"wait_seconds": 1}, timeout=PATIENCE_SECONDS)
    assert (answer.status_code, answer.json()["state"]) == (202, "sent")


def test_commands_to_later_packages_are_refused(agent: tuple[AgentProcess, str]) -> None:
    items = f"{agent[1]}/api/v1/publishers/author/queues/staged/items"
    removed = httpx2.delete(f"{items}?id=package-0@1", timeout=PATIENCE_SECONDS)
    assert (removed.status_code, removed.json()["title"]) == (400, "RemovalRefused")


def test_commands_of_the_command_line_are_sent_and_their_outcome_is_found(tmp_path: Path) -> None:
    with subscriber_agent(tmp_path, HttpConfig(port=0)) as (_, url), HttpControl(url) as control:
        assert control.suspend("free", 60.0, wait_seconds=PATIENCE_SECONDS).message == "imports are suspended"
        assert control.resume("free", wait_seconds=PATIENCE_SECONDS).state == "done"
        assert control.clear("author", "staged", 1, wait_seconds=PATIENCE_SECONDS).removed == 1
        items = [item.id for item in control.queue("author", "staged").items]
        assert control.remove("author", "staged", items, wait_seconds=PATIENCE_SECONDS).removed == 2
        assert control.clear("author", "staged").message == "the queue was empty"
        refused = control.redrive("edge", [0], wait_seconds=PATIENCE_SECONDS)
        assert [item.state for item in refused] == ["refused"], "its hook still fails"
        [author] = control.status().publishers
        assert author.last_published_at is not None
        with pytest.raises(CommandMissingError):
            control.command(None, "unknown")
        with pytest.raises(AgentMissingError, match="this agent has no publisher"):
            control.queues("author")

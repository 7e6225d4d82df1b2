"""The dashboard of a real agent: packages that fail, are skipped, dropped and redriven, and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mailboat.agent.process import AgentProcess
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home
from mailboat.composition.workspace import prepare
from mailboat.config.document import (
    AgentsConfig,
    Config,
    HooksConfig,
    HttpConfig,
    PublisherAgentConfig,
    StagingConfig,
    SubscriberAgentConfig,
    SubscriberConfig,
)
from mailboat.http.agent_server import server_of
from mailboat.model.messages import TopicRole
from mailboat.model.requests import parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from playwright.sync_api import Page, expect
from support.browser import barriers, chromium, page_in


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """While this file exists, `golden` fails."""
    return tmp_path / "frozen"


@pytest.fixture
def agent(tmp_path: Path, frozen: Path) -> Iterator[tuple[AgentProcess, str]]:
    site = tmp_path / "site"
    site.mkdir()
    for name in ("a", "b", "c"):
        (site / f"{name}.html").write_text(name)

    def edge(name: str, hook: tuple[str, ...] = (), golden: str | None = None) -> SubscriberAgentConfig:
        staging = None if golden is None else StagingConfig(golden)
        return SubscriberAgentConfig(
            name, f"files:{tmp_path / name}", editable=True, hooks=HooksConfig(before=hook), staging=staging
        )

    failing = ("test", "!", "-e", str(frozen))
    subscribers = (edge("edge"), edge("golden", failing), edge("staged", golden="golden"))
    config = Config(
        agents=AgentsConfig((PublisherAgentConfig("author", str(site)),), subscribers),
        subscriber=SubscriberConfig(
            announce_seconds=0.2, first_pause_seconds=0.05, longest_pause_seconds=0.1, max_retries=1
        ),
        http=HttpConfig(port=0),
    )
    home = Home(tmp_path / "home", config)
    prepare(home)
    with AgentProcess(home) as process:
        process.start()
        server = server_of(process)
        server.start()
        yield process, server.url
        server.stop(Deadline(SystemClock(), 5.0))


def confirm(page: Page, button: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()


def open_package(page: Page, url: str, path: str) -> None:
    page.goto(f"{url}/#/packages/author")
    page.get_by_role("table", name="Packages").get_by_role("link", name=path).first.click()


def redrive_what_failed(page: Page, url: str, frozen: Path) -> None:
    main = page.get_by_role("main")
    page.goto(url)
    expect(page.get_by_role("region", name="Needs attention")).to_contain_text("golden ▲lacks content 1 package")
    expect(page.get_by_label("Subscribers by state")).to_contain_text("1 ▲ with failed packages")
    open_package(page, url, "/a.html")
    expect(main).to_contain_text("In an error queue: 1")
    expect(main).to_contain_text("its golden subscriber did not import it (golden)")
    expect(main).to_contain_text("1 of 3 subscribers imported it")
    assert barriers(page) == []
    page.goto(f"{url}/#/errors")
    expect(main).to_contain_text("ProcessorFailed the hook test ended with the exit code 1")
    page.get_by_text("Trace", exact=True).click()
    expect(main.locator("pre")).to_contain_text("ProcessorFailed")
    frozen.unlink()
    page.get_by_role("button", name="Redrive", exact=True).click()
    confirm(page, "Redrive")
    expect(main).to_contain_text("No package is in an error queue.")


def drop_what_waits(page: Page, url: str, commands: Callable[[], int]) -> None:
    main, before = page.get_by_role("main"), commands()
    open_package(page, url, "/b.html")
    expect(main).to_contain_text("Waiting: 1")
    page.goto(f"{url}/#/subscribers/edge")
    expect(page.get_by_role("table", name="Queue of author").get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="Clear queue…").click()
    confirm(page, "Drop")
    wait_until(lambda: commands() > before)  # carried out after the next one, if that overtook it
    page.get_by_role("button", name="Resume imports").click()
    expect(main).to_contain_text("The queue is empty.")
    open_package(page, url, "/b.html")
    expect(main).to_contain_text("Dropped by a command: 1")
    assert barriers(page) == []


def add_a_job(page: Page, url: str) -> None:
    page.goto(f"{url}/#/jobs")
    page.get_by_text("Add a job", exact=True).click()
    page.get_by_label("Topic", exact=True).fill("purge.cdn")
    for payload, outcome in (("{not JSON", "the payload is not JSON"), ('{"path": "/a.html"}', "added as")):
        page.get_by_label("Payload, as JSON").fill(payload)
        page.get_by_role("button", name="Add…").click()
        confirm(page, "Add")
        expect(page.get_by_role("status")).to_contain_text(outcome)
    expect(page.get_by_role("table", name="Jobs")).to_contain_text("no live worker takes the topic purge.cdn")
    assert barriers(page) == []


def see_what_is_stored(page: Page, url: str) -> None:
    page.goto(f"{url}/#/storage")
    topics = page.get_by_role("table", name="Topics")
    expect(topics.get_by_role("row", name="job job 0 1 1")).to_be_visible()
    accounts = page.get_by_role("table", name="Memory accounts")
    for name in ("queues", "error queues", "answers to commands", "event stream", "plots of the last hour", "jobs"):
        expect(accounts.get_by_role("row", name=name).first).to_be_visible()
    expect(accounts.get_by_role("row", name="jobs")).to_contain_text("grows with the jobs")
    assert barriers(page) == []


def test_packages_are_redriven_and_dropped_a_job_is_added_and_memory_is_shown(
    agent: tuple[AgentProcess, str], frozen: Path
) -> None:
    process, url = agent
    control = process.control
    assert control is not None
    frozen.touch()
    control.distribute("author", parse_request("ADD", ("/a.html",)))
    wait_until(lambda: any(subscriber.given_up for subscriber in control.status().subscribers))
    wait_until(lambda: all(subscriber.lag == 0 for subscriber in control.status().subscribers))
    with chromium() as browser, page_in(browser) as page:
        redrive_what_failed(page, url, frozen)
        assert (frozen.parent / "golden" / "a.html").read_text() == "a"
        assert control.suspend("edge", wait_seconds=PATIENCE_SECONDS).state == "done"
        for path in ("/b.html", "/c.html"):
            control.distribute("author", parse_request("ADD", (path,)))
        workspace = process.workspace
        drop_what_waits(page, url, lambda: workspace.journal.bounds(workspace.topic(TopicRole.COMMAND)).next_offset)
        assert not (frozen.parent / "edge" / "b.html").exists()
        add_a_job(page, url)
        see_what_is_stored(page, url)

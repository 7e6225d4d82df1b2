"""The dashboard of an operator process in a browser: real agents, of which half stop answering and one comes back."""

from __future__ import annotations

import base64
import json
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mailboat.api.client import HttpControl
from mailboat.testing.wait import PATIENCE_SECONDS
from mailboat_operator.workload.mounts import HTTP_PORT
from playwright.sync_api import Page, expect
from support.browser import barriers, chromium, page_in
from support.forked_programs import ForkedProgram, start_mailboat

TOKEN = "fleet-token-0123456789"
JOURNAL = {"kafka": {"bootstrapServers": ["kafka:9092"]}}


class Fleet:
    """Publishers of a namespace, and the agents of some of them. Each has an address, as Services have."""

    def __init__(self, replicas: Any, folder: Path, *publishers: str) -> None:
        self.replicas, self.folder = replicas, folder
        network = f"127.{random.randrange(1, 255)}.{random.randrange(255)}"
        self.addresses = {name: f"{network}.{number}" for number, name in enumerate(publishers, 1)}
        replicas.make("Journal", "main", JOURNAL)
        for name in publishers:
            replicas.make("Publisher", name, {"journalRef": {"name": "main"}})
        self.processes: dict[str, ForkedProgram] = {}

    def start_operator(self) -> None:
        """Start the operator; it resolves the names of Services to the addresses, and makes each agent's token."""
        names = {f"{name}.{self.replicas.namespace}.svc": address for name, address in self.addresses.items()}
        self.replicas.start("one", names=names, dashboard_token=TOKEN)
        self.replicas.wait(lambda: all(self.secret(name).is_success for name in self.addresses))

    def secret(self, publisher: str) -> httpx2.Response:
        found: httpx2.Response = self.replicas.server.http.get(
            f"/api/v1/namespaces/{self.replicas.namespace}/secrets/{publisher}-token"
        )
        return found

    def start_agent(self, publisher: str, *subscribers: str) -> HttpControl:
        """Start the agent of a publisher, with subscribers and the token of its Secret; a client of it."""
        home = self.folder / publisher
        (home / "site").mkdir(parents=True)
        (home / "site" / "index.html").write_text(publisher)
        token = base64.b64decode(self.secret(publisher).json()["data"]["token"]).decode()
        (home / "token").write_text(token)
        members = [{"name": name, "target": f"files:{home / name}", "editable": True} for name in subscribers]
        access = [{"name": "operator", "token": {"file": str(home / "token")}, "verbs": ["admin"]}]
        document = {
            "agents": {"publishers": [{"name": publisher, "source": str(home / "site")}], "subscribers": members},
            "http": {"host": self.addresses[publisher], "port": HTTP_PORT, "tokens": access},
            "subscriber": {"announce_seconds": 0.2},
        }
        (home / "agent.yaml").write_text(json.dumps(document))
        process = start_mailboat(["agent", "run", "--config", home / "agent.yaml", "-o", "json"], home / "errors")
        self.processes[publisher] = process
        assert process.stdout is not None
        assert process.stdout.readline(), (home / "errors").read_text()
        return HttpControl(f"http://{self.addresses[publisher]}:{HTTP_PORT}", token)

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.communicate()


@contextmanager
def fleet_of(replicas: Any, folder: Path, *publishers: str) -> Iterator[Fleet]:
    made = Fleet(replicas, folder, *publishers)
    try:
        yield made
    finally:
        made.end()


def log_in(page: Page, url: str) -> None:
    page.goto(url)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_label("Token").press("Enter")


@pytest.mark.long("dashboards")
def test_fleet_page_follows_real_agents_while_half_of_them_are_silent(replicas: Any, tmp_path: Path) -> None:
    place = replicas.namespace
    with ExitStack() as stack:
        fleet = stack.enter_context(fleet_of(replicas, tmp_path, "shop", "news", "docs", "late"))
        fleet.start_operator()
        shop = stack.enter_context(fleet.start_agent("shop", "shop-edge-1", "shop-edge-2"))
        for name in ("news", "docs"):
            stack.enter_context(fleet.start_agent(name, f"{name}-edge"))
        page = stack.enter_context(page_in(stack.enter_context(chromium())))
        log_in(page, f"http://127.0.0.1:{replicas.ports['one']}/")
        counts, table = page.get_by_label("Subscribers by state"), page.get_by_role("table", name="Subscribers")
        expect(counts).to_contain_text("4 subscribers")
        expect(counts).to_contain_text("4 ●current")
        expect(page.get_by_role("main")).to_contain_text(f"{place}/late")

        # half of the fleet: one that never ran, and one that takes connections and answers none
        fleet.processes["docs"].send_signal(signal.SIGSTOP)
        expect(table.get_by_role("row", name=f"{place}/docs-edge")).to_contain_text("stale")
        shop.suspend("shop-edge-1", wait_seconds=PATIENCE_SECONDS)
        expect(table.get_by_role("row", name=f"{place}/shop-edge-1")).to_contain_text("suspended")
        expect(table.get_by_role("row", name=f"{place}/news-edge")).to_contain_text("current")
        assert barriers(page) == []
        page.get_by_role("link", name=f"{place}/docs-edge").first.click()
        blocked = page.get_by_role("region", name="What blocks it")
        expect(blocked).to_contain_text(f"the agent {place}/docs does not answer; at ")
        expect(blocked).to_contain_text("it was current")

        fleet.processes["docs"].send_signal(signal.SIGCONT)
        expect(page.get_by_role("heading", level=1)).to_contain_text("current")
        expect(blocked).to_have_count(0)
        page.goto("about:blank")

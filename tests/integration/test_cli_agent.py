"""`agent run`, `config check` and the verbs with `--url`, as a user has them: real processes, real ports."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.api.client import fetch_health
from mailboat.errors import AgentUnreachableError
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.forked_programs import ForkedProgram, run_mailboat, start_mailboat
from support.free_ports import free_ports

METRIC = 'mailboat_subscriber_lag_offsets{subscriber="web"}'
PROGRAM = [sys.executable, "-m", "mailboat.cli"]


class Agent:
    """A process of `agent run` that has said that it is ready."""

    def __init__(self, process: ForkedProgram, errors: Path) -> None:
        self.process = process
        self._errors = errors
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"it ended with {process.wait()}: {self.errors}"
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"]

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def stop(self, number: int = signal.SIGTERM) -> int | None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode


def mailboat(*words: object, token: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) if token is None else {**os.environ, "MAILBOAT_TOKEN": token}
    return run_mailboat(words, environment)


def ask(agent: Agent, *words: object) -> Any:
    """What a command that must succeed answers, as JSON."""
    done = mailboat("--url", agent.url, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a configuration for `agent run` into a folder of its own."""

    def made(name: str, agents: dict[str, Any], **document: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        whole = {
            "journal": {"path": "../journal.db"},
            "blobs": {"path": "../blobs"},
            "http": {"port": 0},
            "subscriber": {"announce_seconds": 0.2},
            "agents": agents,
            **document,
        }
        file = folder / "agent.yaml"
        file.write_text(yaml.safe_dump(whole))
        return file

    return made


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """Starts agents; they are gone when the test ends."""
    started: list[ForkedProgram] = []

    def begin(config: Path, *words: str) -> Agent:
        errors = tmp_path / f"{config.parent.name}.err"
        process = start_mailboat(["agent", "run", "--config", config, "-o", "json", *words], errors)
        started.append(process)
        return Agent(process, errors)

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "en").mkdir(parents=True)
    for name in ("index.html", "en/index.html", "en/news.html"):
        (folder / name).write_text(f"<h1>{name}</h1>")
    return folder


@pytest.fixture
def author(write: Any, start: Any, site: Path) -> Agent:
    """A publisher with its API."""
    agents = {"publishers": [{"name": "author", "source": str(site)}]}
    made: Agent = start(write("author", agents))
    return made


@pytest.mark.costly("two agents and a process for every verb")
def test_agents_find_each_other_and_every_verb_works_over_the_network(
    author: Agent, write: Any, start: Any, site: Path, tmp_path: Path
) -> None:
    hooks = {"before": ["sh", "-c", "! grep -q DELETE"]}
    golden = {"name": "golden", "target": "files:golden", "editable": True, "hooks": hooks}
    edge = {"name": "edge", "target": "sqlite:edge.db", "staging": {"golden": "golden"}}
    patience = {"announce_seconds": 0.2, "max_retries": None, "longest_pause_seconds": 0.5}
    edges = start(write("edges", {"subscribers": [golden, edge]}, subscriber=patience))
    assert (edges.ready["subscribers"], edges.ready["pid"]) == (["golden", "edge"], edges.process.pid)
    wait_until(
        lambda: {subscriber["name"] for subscriber in ask(author, "status")["subscribers"]} == {"golden", "edge"}
    )

    done = mailboat("--url", author.url, "publish", "/en", "/index.html", "--wait", "120")
    assert (done.returncode, done.stdout.splitlines()[1].partition(" in ")[0]) == (0, "imported by 2/2"), done.stderr
    assert (tmp_path / "edges" / "golden" / "en" / "news.html").read_text() == "<h1>en/news.html</h1>"

    (wrong,) = ask(author, "delete", "/en", "--request-id", "wrong")["packages"]
    wait_until(
        lambda: {item["subscriber"]: item["state"] for item in ask(author, "queues", "ls")}["golden"] == "blocked"
    )
    queues = {item["subscriber"]: item for item in ask(author, "queues", "ls")}
    assert queues["golden"]["head"]["error"]["code"] == "ProcessorFailed"
    assert (queues["golden"]["capabilities"], queues["edge"]["capabilities"]) == (["clearable", "removable"], [])
    waiting = mailboat("--url", author.url, "distributions", "get", "wrong", "--wait", "0")
    assert (waiting.returncode, "waiting    2: " in waiting.stdout) == (3, True)
    refused = mailboat("--url", author.url, "queues", "clear", "edge", "--yes")
    assert (refused.returncode, "QueueNotClearable" in refused.stderr) == (1, True)

    removal = ("queues", "remove", "golden", str(wrong["offset"]), "--yes", "--wait", "120")
    dropped = mailboat("--url", author.url, *removal)
    assert (dropped.returncode, dropped.stdout) == (0, f"golden: 1 package dropped, up to offset {wrong['offset']}\n")
    assert mailboat("--url", author.url, "publish", "/index.html", "--wait", "120").returncode == 0
    told = mailboat("--url", author.url, "distributions", "get", "wrong", "--wait", "120", "-o", "json")
    found = json.loads(told.stdout)
    assert (told.returncode, found["state"], found["imported"], found["removed"]) == (1, "incomplete", [], ["golden"])
    assert found["skipped"] == [{"subscriber": "edge", "reason": "staged", "golden": "golden"}]
    listed = {item["request_id"]: item["state"] for item in ask(author, "distributions", "ls")["items"]}
    assert listed["wrong"] == "incomplete"
    assert (tmp_path / "edges" / "golden" / "en" / "news.html").exists()
    assert mailboat("content", "diff", site, f"sqlite:{tmp_path}/edges/edge.db").stdout == "no difference\n"

    assert (edges.stop(), author.stop()) == (0, 0)
    assert "Traceback" not in edges.errors + author.errors


def test_a_killed_agent_goes_on_where_it_was(author: Agent, write: Any, start: Any, tmp_path: Path) -> None:
    config = write("edges", {"subscribers": [{"name": "edge", "target": "files:edge"}]})
    first = start(config)
    wait_until(lambda: bool(ask(author, "status")["subscribers"]))
    assert mailboat("--url", author.url, "publish", "/en", "--wait", "120").returncode == 0
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    ask(author, "publish", "/index.html")
    identity = (tmp_path / "edges" / "instance").read_text()
    start(config)
    wait_until((tmp_path / "edges" / "edge" / "index.html").exists)
    assert (tmp_path / "edges" / "instance").read_text() == identity


def test_a_token_is_wanted_where_there_are_tokens(write: Any, start: Any, site: Path, tmp_path: Path) -> None:
    (tmp_path / "author").mkdir()
    (tmp_path / "author" / "token").write_text("let-me-see")
    tokens = [{"name": "viewer", "token": {"file": "token"}, "verbs": ["view"]}]
    agents = {"publishers": [{"name": "author", "source": str(site)}]}
    agent = start(write("author", agents, http={"port": 0, "tokens": tokens}))
    nobody = mailboat("--url", agent.url, "status")
    assert (nobody.returncode, "AccessDenied" in nobody.stderr) == (77, True)
    words = ("--url", agent.url, "--token-file", tmp_path / "author" / "token")
    assert mailboat(*words, "status").returncode == 0
    assert mailboat(*words, "publish", "/en").returncode == 77
    assert mailboat("--url", agent.url, "status", token="let-me-see").returncode == 0
    assert "let-me-see" not in agent.errors


def test_an_agent_that_is_not_there_is_a_passing_fault() -> None:
    done = mailboat("--url", "http://127.0.0.1:9", "status")
    assert (done.returncode, done.stderr.startswith("error: AgentUnreachable: ")) == (75, True)


def test_a_port_that_is_taken_is_said_before_anything_is_ready(author: Agent, write: Any, site: Path) -> None:
    port = int(author.url.rpartition(":")[2])
    agents = {"publishers": [{"name": "bob", "source": str(site)}]}
    done = mailboat("agent", "run", "--config", write("other", agents, http={"port": port}))
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: PortTaken: " in done.stderr


def test_an_agent_waits_for_silent_brokers_alive_and_not_ready(write: Any, site: Path) -> None:
    port, nothing = free_ports(2)
    kafka = {"bootstrap_servers": [f"127.0.0.1:{nothing}"], "request_seconds": 0.2}
    agents = {"publishers": [{"name": "author", "source": str(site)}]}
    file = write("author", agents, journal={"kafka": kafka}, http={"port": port})
    command = [*PROGRAM, "agent", "run", "--config", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            agent = wait_until(lambda: first_failure_of(f"http://127.0.0.1:{port}/readyz"))
            assert (agent["name"], agent["state"], agent["reason"]) == ("author", "starting", "JournalUnavailable")
            assert answer_of(f"http://127.0.0.1:{port}/healthz")[0] == 200
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, output) == (0, ""), errors
    assert "the agents can't start: JournalUnavailable" in errors
    assert "stopping (deadline" not in errors, "attempts that failed are said once"


def first_failure_of(url: str) -> Any:
    """The agent of a process that is not ready; None before its first attempt has failed."""
    answer = answer_of(url)
    if answer is None:
        return None
    status, text = answer
    assert (status, json.loads(text)["ready"]) == (503, False)
    [agent] = json.loads(text)["agents"]
    return agent if agent["reason"] != "starting" else None


def answer_of(url: str) -> Any:
    """Status and text; None while nothing listens there."""
    try:
        return fetch_health(url, PATIENCE_SECONDS)
    except AgentUnreachableError:
        return None


def test_a_subscriber_that_stops_by_itself_ends_an_agent_with_its_exit_code(
    author: Agent, write: Any, start: Any, tmp_path: Path
) -> None:
    config = write("edges", {"subscribers": [{"name": "edge", "target": "files:edge"}]})
    first = start(config)
    ask(author, "publish", "/en")
    wait_until((tmp_path / "edges" / "edge" / "en").exists)
    first.stop()
    author.stop()
    for file in tmp_path.glob("journal.db*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert mailboat("--home", tmp_path / "anew", "init").returncode == 0
    shutil.move(tmp_path / "anew" / "journal.db", tmp_path / "journal.db")
    done = mailboat("agent", "run", "--config", config)
    assert (done.returncode, "JournalReplaced" in done.stderr) == (6, True)


def test_a_home_runs_its_own_configuration(new_boat: Any, site: Path, tmp_path: Path) -> None:
    new_boat.do("init")
    (new_boat.home / "mailboat.yaml").write_text(
        f"http: {{port: 0}}\nagents: {{publishers: [{{name: author, source: {site}}}]}}\n"
    )
    process = subprocess.Popen(
        [*PROGRAM, "agent", "run", "--home", str(new_boat.home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert line.startswith("ready: publisher author; dashboard and API at http://127.0.0.1:")
    assert line.endswith(f"; home {new_boat.home}; pid {process.pid}\n")
    assert process.returncode == 130


def test_a_configuration_is_checked_without_starting_anything(write: Any, site: Path, tmp_path: Path) -> None:
    file = write("one", {"publishers": [{"name": "author", "source": str(site)}]})
    good = mailboat("config", "check", file)
    assert good.returncode == 0
    assert good.stdout.splitlines()[0] == f"# {file} can be run: publisher author; journal embedded; API at 127.0.0.1:0"
    assert yaml.safe_load(good.stdout)["agents"]["publishers"][0]["name"] == "author"
    assert [path.name for path in file.parent.iterdir()] == ["agent.yaml"]
    bad = mailboat("config", "check", write("two", {"publishers": [{"name": "author", "source": "/nowhere/at/all"}]}))
    assert (bad.returncode, "there is nothing at /nowhere/at/all" in bad.stderr) == (2, True)
    author = {"publishers": [{"name": "author"}]}
    exposed = write("three", author, http={"host": "0.0.0.0"})
    open_to_all = mailboat("config", "check", exposed)
    assert (open_to_all.returncode, "http.tokens" in open_to_all.stderr) == (2, True)
    assert re.search(rf"{re.escape(str(exposed))}:\d+: http\.host is 0\.0\.0\.0", open_to_all.stderr)
    twice = [{"name": name, "token": {"env": "MAILBOAT_TOKEN"}} for name in ("ci", "boss")]
    same = mailboat("config", "check", write("five", author, http={"tokens": twice}), token="one-for-both")
    assert (same.returncode, "ci and boss are the same token" in same.stderr) == (2, True)
    empty = write("four", {})
    for refused in (mailboat("agent", "run", "--config", empty), mailboat("config", "check", empty)):
        assert (refused.returncode, "there is nothing to run" in refused.stderr) == (2, True)
    broken = mailboat("config", "check", file.rename(file.with_name("a\nb.yaml")))
    assert broken.stdout.splitlines()[0] == good.stdout.splitlines()[0].replace("agent.yaml", "a\\nb.yaml")
    assert yaml.safe_load(broken.stdout) == yaml.safe_load(good.stdout)


@pytest.mark.parametrize(
    "http", [{"host": "0.0.0.0"}, {"tokens": [{"name": item, "token": {"env": "MAILBOAT_TOKEN"}} for item in "ab"]}]
)
def test_an_agent_that_may_not_be_served_is_refused_before_anything_is_made(
    write: Any, site: Path, http: dict[str, Any]
) -> None:
    file = write("open", {"publishers": [{"name": "author", "source": str(site)}]}, http=http)
    done = mailboat("agent", "run", "--config", file, token="one-for-both")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: ConfigInvalid: {file}:8: http.")
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_the_schema_of_the_configuration_is_printed() -> None:
    schema = json.loads(mailboat("config", "schema").stdout)
    assert schema["title"] == "Mailboat configuration"
    assert "agents" in schema["properties"]


def test_pods_that_share_a_configuration_have_names_of_their_own(write: Any, start: Any, tmp_path: Path) -> None:
    config = write("member", {"subscribers": [{"name": "member", "target": f"files:{tmp_path / 'web'}"}]})
    assert start(config, "--subscriber", "edge-0").ready["subscribers"] == ["edge-0"]


@pytest.mark.parametrize(("name", "problem"), [("edge-0", "the only subscriber"), ("no name", "not an agent name")])
def test_a_name_for_a_subscriber_that_cannot_be_meant_is_refused(
    write: Any, tmp_path: Path, name: str, problem: str
) -> None:
    names = ["one", "two"] if name == "edge-0" else ["one"]
    agents = {"subscribers": [{"name": name, "target": f"files:{tmp_path / name}"} for name in names]}
    done = mailboat("agent", "run", "--config", write("member", agents), "--subscriber", name)
    assert (done.returncode, problem in done.stderr) == (2, True)


def test_the_home_that_an_agent_names_is_one_for_every_command(author: Agent) -> None:
    done = mailboat("--home", author.ready["home"], "status", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [publisher["name"] for publisher in json.loads(done.stdout)["publishers"]] == ["author"]


def test_a_member_of_a_shared_pool_serves_the_lag_that_keda_asks_for(
    author: Agent, write: Any, start: Any, tmp_path: Path
) -> None:
    pool = {"name": "web", "target": f"files:{tmp_path / 'shared'}", "delivery": "shared", "editable": True}
    members = [start(write(name, {"subscribers": [pool]})) for name in ("one", "two")]

    def lags() -> list[float]:
        """As KEDA's trigger `metrics-api` reads it from one of the members."""
        texts = [urllib.request.urlopen(f"{member.url}/metrics").read().decode() for member in members]
        return [float(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith(METRIC)]

    wait_until(lambda: lags() == [0, 0])
    ask(author, "subscribers", "suspend", "web", "--wait", "120")
    ask(author, "publish", "/en")
    wait_until(lambda: lags() == [1, 1])
    ask(author, "subscribers", "resume", "web", "--wait", "120")
    wait_until(lambda: lags() == [0, 0])
    assert [member.stop() for member in members] == [0, 0]
    assert (tmp_path / "shared/en/news.html").read_text() == "<h1>en/news.html</h1>"

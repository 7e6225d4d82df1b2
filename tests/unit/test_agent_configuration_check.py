"""What is found in a configuration before anything is started, and what is shown of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from mailboat.composition.home import Home, configured_home, note_configuration
from mailboat.composition.workspace import Workspace, prepare
from mailboat.config.decoder import ConfigInvalidError, decode_config
from mailboat.errors import JournalMissingError
from mailboat.operations.configuration_check import check_config, problems_of, shown_document, warnings_of

RELAY = {"host": "relay", "sender": "mailboat@example.org"}
EDGE = {"name": "edge-1", "target": "files:edge-1"}


def home_of(tmp_path: Path, **document: Any) -> Home:
    return Home(tmp_path, decode_config(document))


def found(tmp_path: Path, **document: Any) -> list[str]:
    return [f"{item.key}: {item.text}" for item in problems_of(home_of(tmp_path, **document))]


def subscribers(*documents: dict[str, Any]) -> dict[str, Any]:
    return {"subscribers": list(documents)}


def test_statuses_kept_for_less_time_than_packages_are_warned_of(tmp_path: Path) -> None:
    def warnings(**retention: Any) -> list[str]:
        return warnings_of(home_of(tmp_path, retention=retention).config)

    assert warnings() == warnings(package_seconds=60) == warnings(package_seconds=None, status_seconds=None) == []
    short = warnings(status_seconds=7200)
    assert [item.split()[1] for item in short] == ["status", "command", "event"]
    assert short[0].startswith("retention: status messages are kept for 7,200 seconds, packages for 604,800 seconds: ")
    (endless,) = warnings(package_seconds=None, status_seconds=None, status={"seconds": 3600})
    assert "packages without limit" in endless


@pytest.mark.parametrize(
    ("retention", "problem"),
    [
        (
            {"consumption": {"policy": "durable", "min_seconds": 9, "max_seconds": 8}},
            "max_seconds is below min_seconds",
        ),
        ({"consumption": {"policy": "durable", "min_bytes": 9, "max_bytes": 8}}, "max_bytes is below min_bytes"),
        ({"consumption": {"policy": "durable"}, "discovery": {"seconds": 7199}}, "less than two hours"),
        ({"consumption": {"policy": "durable"}, "status_seconds": 7199}, "less than two hours"),
    ],
)
def test_bounds_of_retention_that_contradict_each_other_are_found_before_anything_starts(
    tmp_path: Path, retention: dict[str, Any], problem: str
) -> None:
    (text,) = found(tmp_path, retention=retention)
    assert text.startswith("retention: ")
    assert problem in text
    retention["consumption"]["policy"] = "off"
    assert found(tmp_path, retention=retention) == []


def test_topic_names_are_chosen_one_by_one(tmp_path: Path) -> None:
    journal = home_of(tmp_path, journal={"topic_prefix": "x-", "topics": {"package": "aemdistribution_package"}})
    names = [journal.config.journal.topic_name(role) for role in ("package", "status")]
    assert names == ["aemdistribution_package", "x-status"]


@pytest.mark.parametrize(
    ("topics", "problem"),
    [
        ({"status": "a b"}, "journal.topics.status: 'a b' is not a topic name"),
        ({"status": "package"}, "journal.topics: duplicate topic name package"),
    ],
)
def test_topic_names_that_cannot_be_are_named(tmp_path: Path, topics: dict[str, str], problem: str) -> None:
    (text,) = found(tmp_path, journal={"topics": topics})
    assert text.startswith(problem)


def test_a_sound_configuration_has_no_problems(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "token").write_text("secret")
    golden = {"name": "golden", "target": "sqlite:golden.db", "editable": True}
    edge = {**EDGE, "staging": {"golden": "golden"}, "follow": ["author"]}
    agents = {**subscribers(golden, edge), "publishers": [{"name": "author", "source": "site"}]}
    http = {"tokens": [{"name": "me", "token": {"file": "token"}}]}
    assert found(tmp_path, agents=agents, http=http) == []
    check_config(home_of(tmp_path, agents=agents, http=http), "x.yaml", needs_agents=True)


@pytest.mark.parametrize(
    ("one", "problem"),
    [
        ({**EDGE, "name": "-x"}, "agents.subscribers[0].name: '-x' is not an agent name"),
        ({**EDGE, "target": "edge"}, "agents.subscribers[0].target: 'edge' is not a target"),
        ({**EDGE, "roots": ["/a", "b"]}, "agents.subscribers[0].roots[1]: 'b' is not a content path"),
        ({**EDGE, "follow": ["a b"]}, "agents.subscribers[0].follow[0]: 'a b' is not an agent name"),
        (
            {**EDGE, "staging": {"golden": "edge-1"}},
            "agents.subscribers[0].staging.golden: edge-1 can't wait for itself",
        ),
        ({**EDGE, "staging": {"golden": "/"}}, "agents.subscribers[0].staging.golden: '/' is not an agent name"),
        (
            {**EDGE, "delivery": "shared", "target": "generations:edge-1"},
            "agents.subscribers[0]: the pool edge-1 cannot share a generations: target",
        ),
        (
            {**EDGE, "delivery": "shared", "hooks": {"after": ["purge"]}},
            "agents.subscribers[0]: the members of the pool edge-1 call no hook after an import",
        ),
    ],
)
def test_a_subscriber_that_can_not_be_meant_is_named(tmp_path: Path, one: dict[str, Any], problem: str) -> None:
    (text,) = found(tmp_path, agents=subscribers(one))
    assert text.startswith(problem)


def test_rules_that_add_jobs_are_checked_one_by_one(tmp_path: Path) -> None:
    rules = [{"add": "purge"}, {"add": "purge", "imported": "/a"}, {"add": "purge cdn", "imported": "/a"}]
    neither, topic = found(tmp_path, jobs={"on": rules})
    assert neither == "jobs.on[0]: needs either imported or distributed"
    assert topic.startswith("jobs.on[2]: 'purge cdn' is not a job topic")


@pytest.mark.parametrize("name", ["", "tree"])
def test_the_format_filevault_is_not_called_as_nothing_or_as_the_other_one(tmp_path: Path, name: str) -> None:
    document = {"publisher": {"filevault_name": name}, "subscriber": {"filevault_names": ["journal", name]}}
    refused = f"{name!r} can't be a name of the format filevault"
    assert found(tmp_path, **document) == [
        f"publisher.filevault_name: {refused}",
        f"subscriber.filevault_names: {refused}",
    ]


def test_two_subscribers_share_neither_name_nor_target(tmp_path: Path) -> None:
    twin = {"name": "edge-1", "target": f"files:{tmp_path / 'edge-1'}"}
    assert found(tmp_path, agents=subscribers(EDGE, twin)) == [
        "agents.subscribers: duplicate name edge-1",
        f"agents.subscribers: files:{tmp_path / 'edge-1'} is the target of several",
    ]


def test_no_one_waits_for_one_that_confirms_nothing(tmp_path: Path) -> None:
    staged = {"name": "edge-2", "target": "files:edge-2", "staging": {"golden": "edge-1"}}
    assert found(tmp_path, agents=subscribers(EDGE, staged)) == [
        "agents.subscribers[1].staging.golden: edge-1 is not editable, so it confirms nothing to wait for"
    ]


def test_a_source_that_no_file_system_takes_is_one_mistake_of_several(tmp_path: Path) -> None:
    publishers = [{"name": "author", "source": "x" * 300}, {"name": "bob", "source": ""}]
    long, empty = found(tmp_path, agents={"publishers": publishers})
    assert long.endswith("can't be used: File name too long")
    assert empty.startswith("agents.publishers[1].source: ")


def test_a_source_that_is_not_there_is_named_with_its_place(tmp_path: Path) -> None:
    publishers = [{"name": "author", "source": "site"}, {"name": "bob", "source": "sqlite:no.db"}]
    assert found(tmp_path, agents={"publishers": publishers}) == [
        f"agents.publishers[0].source: there is nothing at {tmp_path / 'site'}",
        f"agents.publishers[1].source: there is nothing at {tmp_path / 'no.db'}",
    ]


def test_every_secret_must_be_readable_and_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("never said")
    tokens = [
        {"name": "me", "token": {"file": "good"}},
        {"name": "me", "token": {"env": "NOT_SET_ANYWHERE"}},
        {"name": "you", "token": {}},
    ]
    problems = found(tmp_path, http={"tokens": tokens})
    assert problems == [
        "http.tokens: duplicate name me",
        "http.tokens[1].token: refers to the variable NOT_SET_ANYWHERE of the environment, which holds nothing",
        "http.tokens[2].token: names its secret by either `file` or `env`",
    ]


def test_a_bucket_that_can_not_be_meant_is_named_with_everything_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    s3 = {"bucket": "b", "endpoint_url": "localhost:18806", "ca_file": "ca.pem", "access_key_id": {"file": "key"}}
    assert found(tmp_path, blobs={"s3": s3}) == [
        "blobs.s3: has one of access_key_id and secret_access_key, and needs both or neither",
        "blobs.s3.endpoint_url: is 'localhost:18806', not a server address; expected https://HOST or http://HOST:PORT",
        f"blobs.s3.ca_file: refers to {tmp_path / 'ca.pem'}, which is not a file",
    ]
    assert found(tmp_path, blobs={"s3": {"bucket": "b", "endpoint_url": "http://localhost:18806"}}) == []


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    home = home_of(tmp_path, agents=subscribers(EDGE, EDGE))
    with pytest.raises(ConfigInvalidError, match=r"x\.yaml has 2 mistakes") as caught:
        check_config(home, "x.yaml", needs_agents=True)
    assert list(caught.value.where) == ["1", "2"]


def test_a_configuration_without_agents_can_be_checked_but_not_run(tmp_path: Path) -> None:
    check_config(home_of(tmp_path), "x.yaml", needs_agents=False)
    with pytest.raises(ConfigInvalidError, match="names no publisher and no subscriber"):
        check_config(home_of(tmp_path), "x.yaml", needs_agents=True)


def test_what_is_shown_masks_the_user_of_a_url(tmp_path: Path) -> None:
    events = {"webhooks": [{"name": "crm", "url": "https://me:pa/ss@hooks.example/x"}]}
    home = home_of(tmp_path, events=events, blobs={"s3": {"bucket": "b", "endpoint_url": "http://me:word@s3:9000"}})
    shown = shown_document(home.config)
    assert shown["blobs"]["s3"]["endpoint_url"] == "http://***@s3:9000"
    assert "word" not in str(shown)


def test_a_home_is_made_beside_a_configuration_from_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "agent.json"
    file.write_text('{"agents": {"publishers": [{"name": "author"}]}}')
    home = configured_home(file)
    assert (home.path, home.is_made) == (tmp_path, False)
    prepare(home)
    identity = home.sling_id
    assert home.journal_path.is_file()
    prepare(home)
    assert home.sling_id == identity


def test_the_state_of_a_configuration_from_elsewhere_can_be_kept_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("journal: {path: ../shared.db}\n")
    first, second = configured_home(file, tmp_path / "one"), configured_home(file, tmp_path / "two")
    prepare(first)
    prepare(second)
    assert (tmp_path / "shared.db").is_file()
    assert first.sling_id != second.sling_id
    assert first.resolve("files:out") == f"files:{tmp_path / 'one' / 'out'}"
    assert first.resolve_source("site") == str(tmp_path / "site")
    assert first.resolve_source("sqlite:site.db") == f"sqlite:{tmp_path / 'site.db'}"
    assert first.resolve_source("/site") == "/site"


def test_source_of_a_noted_configuration_is_relative_to_its_file(tmp_path: Path) -> None:
    file = tmp_path / "etc" / "agent.yaml"
    file.parent.mkdir()
    file.write_text("")
    home = configured_home(file, tmp_path / "state")
    prepare(home)
    note_configuration(home, file)
    assert Home(tmp_path / "state").resolve_source("../site") == str(file.parent / "../site")


def test_mistakes_are_listed_with_the_lines_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("logs:\n  level: loud\nagents:\n  subscribers:\n  - target: edge\n    name: -x\n")
    with pytest.raises(ConfigInvalidError) as caught:
        check_config(configured_home(file), "agent.yaml", needs_agents=True)
    lines = [str(text).partition(": ")[0] for text in caught.value.where.values()]
    assert lines == ["agent.yaml:6", "agent.yaml:5", "agent.yaml:2"]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"journal": {"kafka": {"bootstrap_servers": []}}}, "journal.kafka.bootstrap_servers: "),
        (
            {"journal": {"kafka": {"bootstrap_servers": ["b:1"], "tls": {"ca_file": "no"}}}},
            "journal.kafka.tls.ca_file: ",
        ),
        ({"journal": {"topic_prefix": "a b/"}}, "journal.topic_prefix: 'a b/package' is not a topic name"),
        ({"events": {"webhooks": [{"name": "crm", "url": "http://["}]}}, "events.webhooks[0].url: "),
        ({"events": {"webhooks": [{"name": "crm", "url": "ftp://host"}]}}, "events.webhooks[0].url: "),
        ({"events": {"webhooks": [{"name": "crm"}]}}, "events.webhooks[0]: needs either url or secret_url"),
        ({"events": {"webhooks": [{"name": "a/b", "url": "http://h/"}]}}, "events.webhooks[0].name: "),
        (
            {"events": {"webhooks": [{"name": "a", "url": "http://h/", "filter": {"paths": ["news"]}}]}},
            "events.webhooks[0].filter.paths[0]: ",
        ),
        (
            {"events": {"webhooks": [{"name": "a", "url": "http://h/", "filter": {"jobs": ["a..b"]}}]}},
            "events.webhooks[0].filter.jobs[0]: ",
        ),
        (
            {"events": {"webhooks": [{"name": "a", "url": "http://h/", "filter": {"jobs": ["a"], "paths": ["/a"]}}]}},
            "events.webhooks[0].filter.jobs: selects events of jobs",
        ),
        (
            {"events": {"webhooks": [{"name": "a", "url": "http://h/", "filter": {"kinds": ["started"]}}]}},
            "events.webhooks[0].filter.kinds[0]: started is not a kind of events of packages",
        ),
        (
            {"events": {"webhooks": [{"name": "a", "url": "http://h/", "filter": {"publishers": ["x"]}}]}},
            "events.webhooks[0].filter.publishers[0]: 'x' is not a publisher",
        ),
        ({"events": {"webhooks": [{"name": "a", "url": "http://h/"}] * 2}}, "events: duplicate name a"),
        ({"events": {"jobs": ["a..b"]}}, "events.jobs[0]: "),
        ({"events": {"mails": [{"name": "a", "to": ["a@b"]}]}}, "events.relay: is missing"),
        ({"events": {"relay": RELAY, "mails": [{"name": "a", "to": []}]}}, "events.mails[0].to: names no"),
        ({"events": {"relay": RELAY, "mails": [{"name": "a", "to": ["a"]}]}}, "events.mails[0].to[0]: 'a' is not a"),
        ({"events": {"relay": {**RELAY, "host": "http://h"}}}, "events.relay.host: "),
        ({"events": {"relay": {**RELAY, "sender": "me"}}}, "events.relay.sender: "),
        ({"events": {"relay": {**RELAY, "ca_file": "none.pem"}}}, "events.relay.ca_file: "),
        ({"events": {"relay": {**RELAY, "user": "me"}}}, "events.relay: needs both user and password"),
        (
            {"events": {"relay": {**RELAY, "user": "me", "password": {"env": "HOME"}, "security": "none"}}},
            "events.relay.security: must be starttls",
        ),
        ({"publisher": {"name": "a b"}}, "publisher.name: 'a b' is not an agent name"),
        ({"agents": {"publishers": [{"name": "a", "source": ""}]}}, "agents.publishers[0].source: is empty"),
    ],
)
def test_a_value_that_agent_run_refuses_is_found(tmp_path: Path, document: dict[str, Any], problem: str) -> None:
    (text,) = found(tmp_path, **document)
    assert text.startswith(problem)


@pytest.mark.parametrize(
    ("document", "module", "extra"),
    [
        ({"journal": {"kafka": {"bootstrap_servers": ["b:1"]}}}, "confluent_kafka", "kafka"),
        ({"blobs": {"s3": {"bucket": "b"}}}, "boto3", "s3"),
        ({"tracing": {"otlp_endpoint": "http://127.0.0.1:4318"}}, "opentelemetry.sdk", "tracing"),
    ],
)
def test_a_client_library_that_is_not_installed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = problems_of(home_of(tmp_path, **document))
    assert problem.next_step == f"{sys.executable} -m pip install 'mailboat[{extra}]'"


def test_a_journal_that_was_lost_is_not_made_again(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("")
    home = configured_home(file)
    prepare(home)
    for part in tmp_path.glob("journal.db*"):
        part.unlink()
    prepare(home)
    with Workspace(home) as workspace, pytest.raises(JournalMissingError):
        _ = workspace.journal

"""The API holds what its description says, whatever it is sent: no 5xx, no status that is not documented."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from mailboat.agent.process import AgentProcess
from mailboat.api.client import HttpControl
from mailboat.api.records import CauseView
from mailboat.composition.home import Home
from mailboat.composition.workspace import prepare
from mailboat.config.document import AgentsConfig, Config, HttpConfig, PublisherAgentConfig, SubscriberAgentConfig
from mailboat.http.agent_server import server_of
from mailboat.http.application import api_description
from mailboat.http.description import operations
from mailboat.model.requests import parse_request
from mailboat.testing.examples import examples
from mailboat.testing.wait import PATIENCE_SECONDS
from schemathesis.checks import negative_data_rejection, positive_data_acceptance
from support.fake_control import SLING_ID, FakeControl, FakeSubscriber

pytest_plugins = ("schemathesis.pytest.plugin",)  # `-p no:schemathesis` keeps it out of every other run: 1.5 s

UNHURRIED: Final = HttpConfig(requests_per_second=1e6, burst_requests=1_000_000)
NOT_CHECKED: Final = [
    positive_data_acceptance,  # what fits the schema may still name nothing that is there
    negative_data_rejection,  # a form's fields are read as the original reads them: what is not understood is ignored
]
PACKAGE: Final = "dstrpck-1767225600000-00000000-0000-4000-8000-000000000000"
KNOWN: Final = {
    "publisher": ["author"],
    "agent": ["author"],
    "name": ["edge-1", "edge-2-error", f"{SLING_ID}-edge-1", PACKAGE],
    "queue": ["edge-1"],
    "selection": ["queues.2.json", "status.json", "log.txt", "edge-1.1.json", "package-0@1.json"],
    "subscriber": ["edge-1"],
    "reference": ["1"],
    "command_id": ["command-0"],
}


def description() -> dict[str, Any]:
    """The API's description, which names what is there as often as anything else, and never waits for long."""
    document = copy.deepcopy(api_description())
    for operation in operations(document):
        for one in operation.get("parameters", ()):
            if one["name"] in KNOWN:
                one["schema"] = {"anyOf": [{"enum": KNOWN[one["name"]]}, one["schema"]]}
            if one["name"] == "wait":
                one["schema"]["maximum"] = 0.01
    for record in ("ClearOrder", "RedriveOrder", "ClaimOrder"):
        document["components"]["schemas"][record]["properties"]["wait_seconds"]["maximum"] = 0.01
    return document


schema = schemathesis.openapi.from_dict(description())


@pytest.fixture
def agent_url(serve: Any) -> str:
    """An agent with something in its log, in its queues and in an error queue."""
    control = FakeControl(FakeSubscriber("edge-1"), FakeSubscriber("edge-2", is_editable=False))
    for number in range(3):
        control.distribute("author", parse_request("ADD", (f"/{number}",)))
    control.give_up("edge-2", 0, CauseView("StorageFull", "no space is left"))
    url: str = serve(control, UNHURRIED).url
    return url


@pytest.fixture(scope="module")
def real_agent_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent's process with a home on SQLite, a publisher and subscribers, one of which gave a package up."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "site").mkdir()
    for number in range(3):
        (folder / f"site/{number}.html").write_text("page")
    subscribers = tuple(
        SubscriberAgentConfig(name, f"sqlite:{folder / name}.db", editable=name == "edge-1")
        for name in ("edge-1", "edge-2")
    )
    agents = AgentsConfig((PublisherAgentConfig("author", str(folder / "site")),), subscribers)
    home = Home(folder / "home", Config(agents=agents, http=replace(UNHURRIED, port=0)))
    prepare(home)
    with AgentProcess(home) as process:
        process.start()
        server = server_of(process)
        server.start()
        with HttpControl(server.url) as control:
            for number in range(3):
                control.distribute("author", parse_request("ADD", (f"/{number}.html",)))
        yield server.url
        server.stop(process.deadline())


@schema.parametrize()
@settings(
    max_examples=examples(10),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_an_operation_of_a_real_agent_answers_as_it_is_described(case: Any, real_agent_url: str) -> None:
    response = case.call(base_url=real_agent_url, timeout=PATIENCE_SECONDS)
    case.validate_response(response, excluded_checks=NOT_CHECKED)


@pytest.mark.long("trees-and-demos")
@schema.parametrize()
@settings(
    max_examples=examples(15),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
def test_an_operation_answers_as_it_is_described(case: Any, agent_url: str) -> None:
    response = case.call(base_url=agent_url, timeout=PATIENCE_SECONDS)
    case.validate_response(response, excluded_checks=NOT_CHECKED)

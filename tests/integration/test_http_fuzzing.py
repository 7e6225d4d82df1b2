"""The API holds what its description says, whatever it is sent: no 5xx, no status that is not documented."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
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
from pydantic import TypeAdapter, ValidationError
from support.fake_control import SLING_ID, FakeControl, FakeSubscriber

UNHURRIED: Final = HttpConfig(requests_per_second=1e6, burst_requests=1_000_000)
STREAM: Final = "/api/v1/events"
"""Answers that follow it end only when the reader goes; `test_event_stream` has those."""
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
        for item in operation.get("parameters", ()):
            if item["name"] in KNOWN:
                item["schema"] = {"anyOf": [{"enum": KNOWN[item["name"]]}, item["schema"]]}
            if item["name"] == "wait":
                item["schema"]["maximum"] = 0.01
    for record in ("ClearOrder", "RedriveOrder", "TurnOrder"):
        document["components"]["schemas"][record]["properties"]["wait_seconds"]["maximum"] = 0.01
    bench = document["components"]["schemas"]["BenchOrder"]["properties"]
    bench["seconds"]["maximum"], bench["rounds"]["maximum"] = 0.06, 20
    return document


# the generated page has the same, and making the description takes each worker half a CPU second
PAGE = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
OPERATIONS = [
    (method.upper(), path) for path, found in json.loads(PAGE.read_text())["paths"].items() for method in found
]


SHORT: Final = 10
"""Operations of the short run; the slice `http-operations` has the others."""


@cache
def read_schema() -> Any:
    """The description as schemathesis knows it."""
    import schemathesis  # noqa: PLC0415  # see `check_operation`

    return schemathesis.openapi.from_dict(description())


def without_following(query: Mapping[str, Any]) -> dict[str, Any]:
    """The query of a request to the stream that ends: `follow` is false, or a value that is refused."""
    value = query.get("follow")
    try:
        TypeAdapter(bool).validate_strings(value if isinstance(value, str) else "true")
    except ValidationError:
        return dict(query)
    return {**query, "follow": "false"}


def check_operation(method: str, path: str, url: str, limits: settings) -> None:
    """Send an operation all sorts of requests.

    They are made here and not by schemathesis's own decorator: it makes them while each worker collects tests, for 20
    CPU seconds, and gives all operations one name, by which pytest-xdist runs only the first.
    """
    # here, as it takes a CPU second of each worker to load
    from schemathesis.checks import load_all_checks, negative_data_rejection, positive_data_acceptance  # noqa: PLC0415
    from schemathesis.generation.feedback import FeedbackSources  # noqa: PLC0415
    from schemathesis.pytest._test_builder import build_operation_test  # noqa: PLC0415

    not_checked = [
        positive_data_acceptance,  # what fits the schema may still name nothing that is there
        negative_data_rejection,  # fields of a form are read as the original does: what is not understood is ignored
    ]

    @limits
    def check(case: Any) -> None:
        if path == STREAM:
            case.query = without_following(case.query or {})
        response = case.call(base_url=url, timeout=PATIENCE_SECONDS)
        case.validate_response(response, excluded_checks=not_checked)

    load_all_checks()
    schema = read_schema()
    build_operation_test(
        config=schema.config,
        operation=schema[path][method],
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()


def limits_of(examples_of_each: int) -> settings:
    """How an operation is asked."""
    return settings(
        max_examples=examples(examples_of_each),
        deadline=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *OPERATIONS[:SHORT],
        *(pytest.param(*operation, marks=pytest.mark.long("http-operations")) for operation in OPERATIONS[SHORT:]),
    ],
)
def test_an_operation_of_a_real_agent_answers_as_it_is_described(method: str, path: str, real_agent_url: str) -> None:
    check_operation(method, path, real_agent_url, limits_of(10))


@pytest.mark.long("http-operations")
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_an_operation_answers_as_it_is_described(method: str, path: str, agent_url: str) -> None:
    check_operation(method, path, agent_url, limits_of(15))

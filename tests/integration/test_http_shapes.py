"""What the API looks like: pages, descriptions, and the original's documents and statuses beside ours."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema_rs import validator_for
from mailboat.agent.health import AgentView, LivenessView, ReadinessView
from mailboat.api.records import CauseView, CommandView
from mailboat.clock import SystemClock
from mailboat.config.document import HttpConfig
from mailboat.errors import JournalUnavailableError, PathRefusedError, ThrottledError
from mailboat.http import application
from mailboat.http.application import api_description
from mailboat.http.description import operations
from mailboat.http.probes import ProbePorts, create_probe_app
from mailboat.model.requests import parse_request
from mailboat.telemetry.exposition import AgentMetrics
from mailboat.testing.wait import PATIENCE_SECONDS
from support.fake_control import SLING_ID, FakeControl, FakeHealth, FakeSubscriber

SLING = "/libs/sling/distribution/services/agents/author"
QUEUE = f"{SLING_ID}-edge-1"
CAUSE = CauseView("StorageFull", "no space is left", "/a", "trace…")


@pytest.fixture
def control() -> FakeControl:
    made = FakeControl(FakeSubscriber("edge-1", error=CAUSE), FakeSubscriber("edge.2", is_editable=False))
    for number in range(3):
        made.distribute("author", parse_request("ADD", (f"/{number}", f"/{number}/more"), user_id="editor"))
    return made


@pytest.fixture
def agent(control: FakeControl, serve: Any) -> Any:
    with httpx2.Client(base_url=serve(control).url, timeout=PATIENCE_SECONDS, verify=False) as client:
        yield client


# --------------------------------------------------------------------------------------------------------------- ours


def test_a_publication_says_where_to_ask_for_it(agent: httpx2.Client) -> None:
    order = {"action": "ADD", "paths": ["/a"], "request_id": "r"}
    answer = agent.post("/api/v1/publishers/author/distributions", json=order)
    assert answer.status_code == 202
    assert agent.get(answer.headers["location"]).json() == answer.json()


@pytest.mark.parametrize("key", ["once", '"once"'])
def test_an_idempotency_key_is_the_request_id(agent: httpx2.Client, key: str) -> None:
    where, order = "/api/v1/publishers/author/distributions", {"action": "ADD", "paths": ["/a"]}
    first, again = (agent.post(where, json=order, headers={"Idempotency-Key": key}).json() for _ in range(2))
    assert (first["request_id"], first["repeated"]) == ("once", False)
    assert (again["offset"], again["repeated"]) == (first["offset"], True)
    other = agent.post(where, json={**order, "request_id": "other"}, headers={"Idempotency-Key": key})
    assert (other.status_code, other.json()["title"]) == (400, "Usage")
    conflict = agent.post(where, json={**order, "paths": ["/b"]}, headers={"Idempotency-Key": key})
    assert (conflict.status_code, conflict.json()["title"]) == (409, "RequestConflict")


def test_pages_of_a_queue_lead_to_the_next_one(agent: httpx2.Client) -> None:
    where, seen = "/api/v1/publishers/author/queues/edge-1?max_items=2", []
    while where:
        answer = agent.get(where)
        seen += [item["offset"] for item in answer.json()["items"]]
        link = re.fullmatch(r'<(.*)>; rel="next"', answer.headers.get("link", ""))
        where = link[1] if link else ""
    assert seen == [0, 1, 2]


def test_requests_are_listed_the_newest_first_by_links(agent: httpx2.Client) -> None:
    where, seen = "/api/v1/publishers/author/distributions?max_items=2", []
    while where:
        answer = agent.get(where)
        seen += [item["offset"] for item in answer.json()["items"]]
        link = re.fullmatch(r'<(.*)>; rel="next"', answer.headers.get("link", ""))
        where = link[1] if link else ""
    assert seen == [2, 1, 0]


def test_a_package_is_found_by_offset_package_id_and_request_id(agent: httpx2.Client, control: FakeControl) -> None:
    made = control.distribute("author", parse_request("ADD", ("/a",), request_id="r-1"))
    for reference in (str(made.offset), made.package_id, "r-1"):
        assert agent.get(f"/api/v1/packages/{reference}").json()["package_id"] == made.package_id
    assert agent.get("/api/v1/packages/none").status_code == 404
    assert agent.get(f"/api/v1/packages/{'9' * 60}").status_code == 404


def test_the_journal_shows_its_topics(agent: httpx2.Client) -> None:
    document = agent.get("/api/v1/journal").json()
    assert (document["journal"]["next_offset"], document["topics"][0]["role"]) == (3, "package")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "body"),
        (b'{"action": "ADD", "paths": "/a"}', "body.paths"),
        (b'{"action": "ADD", "paths": ["\\ud800"]}', "body"),
        (b'{"action": "ADD", "paths": ["/a"], "path": []}', "body.path"),
        (b"[]", "body"),
        (b"", "body"),
    ],
)
def test_a_body_that_cannot_be_meant_is_told_where_it_is_wrong(agent: httpx2.Client, body: bytes, told: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = agent.post("/api/v1/publishers/author/distributions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith(told)


@pytest.mark.parametrize(
    ("where", "body", "step"),
    [
        ("distributions", {"action": "ADD", "path": ["/a"]}, "did you mean paths?"),
        ("queues/edge-1/clear", {"maxitems": 1}, "did you mean max_items?"),
        ("queues/edge-1/clear", {"zzz": 1}, "it takes max_items, wait_seconds"),
    ],
)
def test_a_member_that_is_not_known_is_refused_with_a_suggestion(
    agent: httpx2.Client, where: str, body: dict[str, Any], step: str
) -> None:
    answer = agent.post(f"/api/v1/publishers/author/{where}", json=body)
    assert (answer.status_code, answer.json()["next_step"]) == (400, step)
    assert "there is no such member" in answer.json()["detail"]


def test_a_member_of_an_inner_record_that_is_not_known_is_refused_without_a_suggestion(agent: httpx2.Client) -> None:
    answer = agent.post("/api/v1/jobs", json={"jobs": [{"topic": "mail", "job": 1}]})
    assert (answer.status_code, answer.json().get("next_step")) == (400, None)
    assert answer.json()["detail"].startswith("body.jobs.0.job: there is no such member")


@pytest.mark.parametrize(("kind", "said"), [(None, "missing"), ("application/x-www-form-urlencoded", "'application/x")])
def test_a_body_that_is_not_declared_as_json_is_told_so(agent: httpx2.Client, kind: str | None, said: str) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    body = b'{"action": "ADD", "paths": ["/a"]}'
    answer = agent.post("/api/v1/publishers/author/distributions", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(f"the body must be JSON, but the header Content-Type is {said}")
    assert answer.json()["next_step"] == "send the header Content-Type: application/json"


@pytest.mark.parametrize(
    ("where", "step"),
    [
        ("/publishers/author/queues/edge-1?max_item=5", "did you mean max_items?"),
        ("/publishers/author/queues?x=1", "it takes max_items, page"),
        ("/journal?x=1", "it takes none"),
        ("/publishers/author/distributions/a?waits=1", "did you mean wait?"),
    ],
)
def test_unknown_query_parameter_is_refused_with_a_suggestion(agent: httpx2.Client, where: str, step: str) -> None:
    answer = agent.get(f"/api/v1{where}")
    assert (answer.status_code, answer.json()["next_step"]) == (400, step)
    assert "unknown parameter" in answer.json()["detail"]


def test_publishers_and_subscribers_are_listed_and_each_subscriber_is_found_by_name(agent: httpx2.Client) -> None:
    everybody = agent.get("/api/v1/status").json()
    assert agent.get("/api/v1/publishers").json() == everybody["publishers"]
    assert agent.get("/api/v1/subscribers").json() == everybody["subscribers"]
    assert agent.get("/api/v1/subscribers/edge.2").json() == everybody["subscribers"][1]
    assert agent.get("/api/v1/subscribers/nobody").json()["title"] == "AgentMissing"


def test_a_command_is_waited_for_only_when_asked(agent: httpx2.Client, control: FakeControl) -> None:
    control.answers_at_once = False
    where = "/api/v1/publishers/author/queues/edge-1"
    assert agent.post(f"{where}/clear", json={"max_items": 1}).json()["state"] == "sent"
    assert agent.post(f"{where}/clear", json={"max_items": 1, "wait_seconds": 5}).json()["state"] == "done"
    assert agent.delete(f"{where}/items", params={"id": "package-0@2", "wait": 5}).json()["removed"] == 1
    control.give_up("edge-1", 0, CAUSE)
    control.give_up("edge-1", 1, CAUSE)
    order = {"subscriber": "edge-1", "offsets": [0]}
    assert [item["state"] for item in agent.post("/api/v1/errors/redrive", json=order).json()] == ["sent"]
    order = {"subscriber": "edge-1", "offsets": [1], "wait_seconds": 5}
    assert [item["state"] for item in agent.post("/api/v1/errors/redrive", json=order).json()] == ["done"]


def test_a_method_that_a_path_does_not_have_is_405_and_says_which_it_has(agent: httpx2.Client) -> None:
    answer = agent.put(f"{SLING}/queues/{QUEUE}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    told = answer.json()
    assert told["title"] == "Method Not Allowed"
    assert told["detail"] == "this path does not support PUT"
    assert told["next_step"] == "it supports GET, POST"


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("/api/v1/statuss", "did you mean /api/v1/status?"),
        ("/api/v1/publishers/web/queue", "did you mean /api/v1/publishers/web/queues?"),
        ("/healtz", "did you mean /healthz?"),
        ("/api/v1/publisher/web/distributions", "did you mean /api/v1/publishers/web/distributions?"),
        ("/nothing/like/it", "GET /api/docs lists all paths"),
    ],
)
def test_a_path_that_does_not_exist_is_404_with_a_suggestion(agent: httpx2.Client, path: str, step: str) -> None:
    answer = agent.get(path)
    assert answer.status_code == 404
    assert answer.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": f"this agent serves nothing at '{path}'",
        "next_step": step,
    }


def test_the_first_page_links_to_what_is_served(agent: httpx2.Client) -> None:
    page = agent.get("/")
    assert page.status_code == 200
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    links = re.findall(r'(?:href|src)="(/[^"]+)"', page.text)
    assert {"/api/docs", "/api/openapi.json", "/healthz", "/readyz", "/metrics", "/dashboard/app.js"} <= set(links)
    assert all(agent.get(link).status_code == 200 for link in links)


def test_the_first_page_of_an_agent_without_a_publisher_links_to_its_probes(tmp_path: Path) -> None:
    ports = ProbePorts(FakeHealth(), AgentMetrics(SystemClock()))
    app = create_probe_app(ports, HttpConfig(), tmp_path, SystemClock())

    async def answer(path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get(path)

    links = re.findall(r'href="([^"]+)"', asyncio.run(answer("/")).text)
    assert links == ["/healthz", "/readyz", "/metrics"]
    assert [asyncio.run(answer(link)).status_code for link in links] == [200, 200, 200]


def test_probes_say_who_is_stuck_and_who_may_not_serve(control: FakeControl, serve: Any) -> None:
    behind = AgentView("edge-1", "subscriber", "running", ready=False, reason="lag")
    health = FakeHealth(LivenessView(alive=False, stuck=("mailboat-log",)), ReadinessView(False, (behind,)))
    url = serve(control, health=health).url
    alive, ready = (httpx2.get(f"{url}/{probe}", timeout=PATIENCE_SECONDS) for probe in ("healthz", "readyz"))
    assert (alive.status_code, alive.json()) == (503, {"alive": False, "stuck": ["mailboat-log"]})
    assert (ready.status_code, ready.json()["agents"][0]["reason"]) == (503, "lag")


def test_the_page_for_people_needs_nothing_from_elsewhere(agent: httpx2.Client) -> None:
    answer = agent.get("/api/docs")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert not re.search(r"<script|src=|https?://", answer.text)
    document = agent.get("/api/openapi.json").json()
    for path in document["paths"]:
        assert path in answer.text
    targets = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert targets <= set(re.findall(r'id="([^"]+)"', answer.text))


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The description of the API."""
    return api_description()


def test_the_api_is_described_when_a_client_first_asks() -> None:
    app = application._served_api.__wrapped__()  # a second one: another test may have asked the process's own
    assert not app.state.description.is_made
    with ThreadPoolExecutor(4) as clients:
        first, *others = clients.map(lambda _: app.state.description.texts(), range(4))
    assert app.state.description.is_made
    assert all(texts is first for texts in others)


def test_paths_that_are_suggested_are_those_of_the_description(document: dict[str, Any]) -> None:
    assert set(application._served_api().state.paths) == {"/api/docs", "/api/openapi.json", *document["paths"]}


def test_every_operation_is_described_with_an_example_and_its_problems(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    names = [operation["operationId"] for operation in operations(document)]
    assert len(set(names)) == len(names)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"]
            assert operation["description"]
            if path.startswith("/api/"):
                assert {"400", "401", "403", "429", "500", "503"} <= operation["responses"].keys()
                assert operation["x-mailboat-verb"] in operation["description"]
    for name, schema in document["components"]["schemas"].items():
        assert "Attributes:" not in schema["description"], name
        members = schema.get("properties", {})
        assert all(member.get("description") for member in members.values()), name


def test_a_stranger_finds_a_meaning_beside_every_parameter_field_answer_and_header(document: dict[str, Any]) -> None:
    answers = [response for operation in operations(document) for response in operation["responses"].values()]
    answers += document["components"]["responses"].values()
    phrases = {status.phrase for status in HTTPStatus} | {"Successful Response", None, ""}
    assert [answer for answer in answers if "$ref" not in answer and answer.get("description") in phrases] == []
    assert all(told["description"] for answer in answers for told in answer.get("headers", {}).values())
    for operation in operations(document):
        for each in operation.get("parameters", ()):
            assert each["description"], (operation["operationId"], each["name"])
            assert ("publisher" in each["description"]) == (each["name"] in {"publisher", "agent"}), each
        for media, body in operation.get("requestBody", {}).get("content", {}).items():
            if media != "application/json":
                assert all(field["description"] for field in body["schema"]["properties"].values())
            assert "408" in operation["responses"]
    figures = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert figures.keys() == {"text/plain", "application/openmetrics-text"}


def test_examples_of_problems_are_what_an_agent_answers(document: dict[str, Any]) -> None:
    answers = document["components"]["responses"]
    for name, answer in answers.items():
        (shown,) = answer["content"].values()
        assert name == f"Problem{shown['example']['status']}"
        assert ("detail" in shown["example"]) == (name not in {"Problem401", "Problem403", "Problem408", "Problem500"})
    assert {"Retry-After"} == answers["Problem429"]["headers"].keys() == answers["Problem503"]["headers"].keys()


def test_the_description_keeps_the_rules_of_its_linters(document: dict[str, Any]) -> None:
    # what spectral (spectral:oas) and redocly (recommended) found: they need npm, and these are their rules
    assert document["servers"]
    assert document["info"]["contact"]["url"]
    assert document["info"]["license"]["identifier"] == "Apache-2.0"
    declared = {tag["name"] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert len(operation["tags"]) == 1, operation["operationId"]
            assert operation["tags"][0] in declared
            assert "security" in operation, path
            assert (operation["security"] == []) == (path in {"/healthz", "/readyz"})
    for schema in every_schema(document["components"]["schemas"]):
        assert schema.get("type") != "array" or "items" in schema, schema
    names = document["components"]["schemas"].items()
    assert [name for name, one in names if name.endswith("View") and not one.get("examples")] == []


def every_schema(node: Any) -> Iterator[dict[str, Any]]:
    """Every object within a part of the description."""
    if isinstance(node, dict):
        yield node
        for inner in node.values():
            yield from every_schema(inner)


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    checked = 0
    for operation in operations(document):
        for answer in operation["responses"].values():
            for body in answer.get("content", {}).values():
                if "example" in body and "schema" in body:
                    validator = validator_for({**body["schema"], "components": document["components"]})
                    validator.validate(body["example"])
                    checked += 1
    assert checked >= 15


# ------------------------------------------------------------------------------------------------------ the original's


def test_a_form_publishes_as_in_the_original(agent: httpx2.Client, control: FakeControl) -> None:
    answer = agent.post(SLING, data={"action": "ADD", "path": ["/content/a", "/content/b"], "deep": "true"})
    assert answer.status_code == 202
    document = answer.json()
    assert (document["success"], document["state"]) == (True, "ACCEPTED")
    made = control.published(3)
    assert (made.paths, made.deep_paths) == (("/content/a", "/content/b"), ("/content/a", "/content/b"))
    assert made.package_id in document["message"]


def test_a_form_in_parts_and_a_query_do_as_well(agent: httpx2.Client, control: FakeControl) -> None:
    assert agent.post(SLING, files={"action": (None, "delete"), "path": (None, "/content/a")}).status_code == 202
    assert agent.post(f"{SLING}?action=TEST").status_code == 202
    assert [control.published(offset).action for offset in (3, 4)] == ["DELETE", "TEST"]
    assert control.published(3).deep_paths == ()


@pytest.mark.parametrize(
    ("failure", "fields", "status", "state"),
    [
        (None, {"action": "PULL", "path": "/a"}, 400, "DROPPED"),
        (None, {"action": "ADD"}, 400, "DROPPED"),
        (None, {}, 400, "DROPPED"),
        (PathRefusedError("no path"), {"action": "ADD", "path": "/a"}, 400, "DROPPED"),
        (JournalUnavailableError("locked"), {"action": "ADD", "path": "/a"}, 503, None),
        (ThrottledError("lag", retry_after_seconds=7.0), {"action": "ADD", "path": "/a"}, 503, None),
    ],
)
def test_a_form_that_fails_is_answered_as_in_the_original(
    agent: httpx2.Client, control: FakeControl, failure: Any, fields: dict[str, str], status: int, state: str | None
) -> None:
    control.failure = failure
    answer = agent.post(SLING, data=fields)
    assert (answer.status_code, answer.json().get("state")) == (status, state)
    assert isinstance(answer.json()["message"], str)
    assert ("retry-after" in answer.headers) is (status == 503)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"paths": "/b"}, "'paths'"),
        ({"Deep": "true"}, "'Deep'"),
        ({"deep": "yes"}, "deep must be"),
        ({"deep": ["false", "true"]}, "deep is given"),
    ],
)
def test_form_fields_that_sling_ignores_are_refused_by_name(
    agent: httpx2.Client, control: FakeControl, fields: dict[str, Any], named: str
) -> None:
    answer = agent.post(SLING, data={"action": "ADD", "path": "/a", **fields})
    assert (answer.status_code, answer.json()["state"]) == (400, "DROPPED")
    assert named in answer.json()["message"]
    assert control.status().journal.next_offset == 3


def test_form_fields_of_slings_engine_are_ignored(agent: httpx2.Client) -> None:
    engine = {"_charset_": "utf-8", ":cq_csrf_token": "x"}
    assert agent.post(SLING, data={"action": "ADD", "path": "/a", **engine}).status_code == 202
    answer = agent.post(f"{SLING}/queues/{QUEUE}", data={"operation": "delete", "from": "other", **engine})
    assert (answer.status_code, "'from'" in answer.json()["detail"]) == (400, True)


def test_an_agent_that_is_not_there_is_404(agent: httpx2.Client) -> None:
    nobody = SLING.replace("author", "nobody")
    assert agent.post(nobody, data={"action": "ADD", "path": "/a"}).json() == {"message": "agent not found"}
    for answer in (agent.post(nobody, data={"action": "TEST"}), agent.get(f"{nobody}/queues.json")):
        assert answer.status_code == 404
    for name in ("status.json", "log.txt", "queues/x.json", "nothing"):
        assert agent.get(f"{nobody}/{name}").status_code == 404


def test_agents_are_listed_with_what_is_below_them_as_deep_as_asked(agent: httpx2.Client) -> None:
    everybody = SLING.removesuffix("/author")
    names = {"sling:resourceType": "sling/distribution/service/agent/list", "items": ["author"]}
    alone = {"sling:resourceType": "sling/distribution/service/agent", "name": "author"}
    assert agent.get(f"{everybody}.json").json() == names
    assert agent.get(f"{everybody}.1.json").json() == {**names, "author": alone}
    assert agent.get(f"{SLING}.json").json() == alone
    below = {
        "queues": agent.get(f"{SLING}/queues.json").json(),
        "log": {"sling:resourceType": "sling/distribution/service/log"},
        "status": {"state": "RUNNING"},
    }
    assert agent.get(f"{SLING}.1.json").json() == {**alone, **below}
    assert agent.get(f"{everybody}.2.json").json() == {**names, "author": {**alone, **below}}
    deepest = {**alone, **below, "queues": agent.get(f"{SLING}/queues.2.json").json()}
    assert agent.get(f"{everybody}.infinity.json").json() == {**names, "author": deepest}
    assert "package-0@0" in deepest["queues"][QUEUE]
    for nothing in (f"{everybody}x.json", SLING.replace("author", "nobody.json")):
        assert agent.get(nothing).status_code == 404


@pytest.mark.parametrize("name", ["queues", "queues.json", "queues.0.json"])
def test_queues_are_listed_by_name(agent: httpx2.Client, name: str) -> None:
    assert agent.get(f"{SLING}/{name}").json() == {
        "sling:resourceType": "sling/distribution/service/agent/queue/list",
        "items": [QUEUE, f"{SLING_ID}-edge.2", f"{QUEUE}-error", f"{SLING_ID}-edge.2-error"],
    }


def test_queues_show_what_is_in_them_as_deep_as_asked(agent: httpx2.Client) -> None:
    shallow, deep = agent.get(f"{SLING}/queues.1.json").json(), agent.get(f"{SLING}/queues.infinity.json").json()
    queue = {
        "sling:resourceType": "sling/distribution/service/agent/queue",
        "state": "BLOCKED",
        "empty": False,
        "itemsCount": 3,
        "capabilities": ["clearable", "removable"],
        "items": ["package-0@0"],
    }
    assert shallow[QUEUE] == queue
    assert {name for name in deep[QUEUE] if "@" in name} == {"package-0@0", "package-0@1", "package-0@2"}
    assert agent.get(f"{SLING}/queues/{QUEUE}.json").json() == queue
    assert agent.get(f"{SLING}/queues/{SLING_ID}-edge.2.1.json").json()["package-0@2"]["action"] == "ADD"
    item = agent.get(f"{SLING}/queues/{QUEUE}/package-0@0.json").json()
    assert item == {
        "sling:resourceType": "sling/distribution/service/agent/queue/item",
        "id": "package-0@0",
        "pkgId": item["pkgId"],
        "size": 100,
        "paths": ["/0", "/0/more"],
        "pathsCount": 2,
        "action": "ADD",
        "userid": "editor",
        "attempts": 3,
        "time": "Thu Jan 01 2026 00:00:00 GMT+0000",
        "state": "ERROR",
        "errorMessage": "StorageFull: no space is left",
        "errorTrace": "trace…",
    }
    assert agent.get(f"{SLING}/queues/{QUEUE}/package-0@9.json").status_code == 404


def test_a_listing_of_all_queues_is_bounded(control: FakeControl, agent: httpx2.Client) -> None:
    for number in range(3000):
        control.distribute("author", parse_request("DELETE", (f"/{number}",)))
    deep = agent.get(f"{SLING}/queues.2.json").json()
    listed = [sum("@" in name for name in deep[queue]) for queue in deep["items"]]
    assert listed == [3003, 1997, 0, 0]
    one = agent.get(f"{SLING}/queues/{QUEUE}.1.json").json()
    assert sum("@" in name for name in one) == one["itemsCount"] == 3003


def test_items_are_deleted_one_by_default_by_limit_or_by_id(agent: httpx2.Client, control: FakeControl) -> None:
    where, edge = f"{SLING}/queues/{QUEUE}", control.subscribers["edge-1"]
    assert agent.post(where, data={"operation": "delete"}).status_code == 200
    assert edge.removed == {0}
    assert agent.post(where, data={"operation": "delete", "id": ["package-0@1", "package-0@2"]}).status_code == 200
    assert edge.removed == {0, 1, 2}
    control.distribute("author", parse_request("ADD", ("/a",)))
    control.distribute("author", parse_request("ADD", ("/b",)))
    assert agent.post(where, data={"operation": "delete", "limit": "-1"}).status_code == 200
    assert edge.removed == {0, 1, 2, 3, 4}


def test_deleting_from_an_empty_queue_says_that_it_was_empty(
    agent: httpx2.Client, control: FakeControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = CommandView("", "clear", "author", "edge-1", -1, "done", 0, "the queue was empty")
    monkeypatch.setattr(control, "clear", lambda *_: nothing)
    answer = agent.post(f"{SLING}/queues/{QUEUE}", data={"operation": "delete", "limit": "-1"})
    assert answer.json() == {"success": True, "message": "the queue is empty: there was nothing to drop"}


@pytest.mark.parametrize(
    ("queue", "fields", "status"),
    [
        (QUEUE, {}, 400),
        (QUEUE, {"operation": "copy"}, 400),
        (QUEUE, {"operation": "delete", "limit": "all"}, 400),
        (QUEUE, {"operation": "delete", "limit": "0"}, 400),
        (QUEUE, {"operation": "delete", "id": "package-0@2"}, 400),
        (f"{SLING_ID}-edge.2", {"operation": "delete"}, 409),
        ("nobody", {"operation": "delete"}, 404),
    ],
)
def test_a_delete_that_cannot_be_meant_removes_nothing(
    agent: httpx2.Client, control: FakeControl, queue: str, fields: dict[str, str], status: int
) -> None:
    assert agent.post(f"{SLING}/queues/{queue}", data=fields).status_code == status
    assert [subscriber.removed for subscriber in control.subscribers.values()] == [set(), set()]


def test_status_and_log_of_an_agent(agent: httpx2.Client) -> None:
    assert agent.get(f"{SLING}/status.json").json() == {"state": "RUNNING"}
    assert agent.get(f"{SLING}/log.txt").text == ""
    agent.post(SLING, data={"action": "ADD", "path": "/a"})
    agent.post(f"{SLING}/queues/{QUEUE}", data={"operation": "delete"})
    first, second = agent.get(f"{SLING}/log.txt").text.splitlines()
    assert re.search(r"paths=1 action=ADD package=dstrpck-\S+ offset=3 outcome=done status=202", first)
    assert "outcome=done status=200" in second

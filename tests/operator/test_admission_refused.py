"""Invalid objects are refused by the API server itself, with the field and the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.errors import ResourceInvalidError
from mailboat_operator.kinds.registry import KINDS_BY_NAME, decode

TABLE = yaml.load((Path(__file__).parent / "refused.yaml").read_text(), yaml.CSafeLoader)
MEBIBYTE = "x" * (1 << 20)


def test_the_table_is_long_and_has_each_kind_and_each_case_once() -> None:
    assert len(TABLE) >= 40
    assert len({(item["kind"], item["it"]) for item in TABLE}) == len(TABLE)
    assert {item["kind"] for item in TABLE} == set(KINDS_BY_NAME)


@pytest.mark.parametrize("case", TABLE, ids=lambda one: f"{one['kind']}: {one['it']}")
def test_is_refused_with_field_and_reason(case: Any, api_server: Any, manifest_of: Any) -> None:
    answer = api_server.create("default", manifest_of(case["kind"], case["change"], case.get("name")))
    assert answer.status_code in {400, 422}, answer.text
    message = answer.json()["message"]
    assert case["field"] in message
    assert case["reason"] in message


@pytest.mark.parametrize("case", TABLE, ids=lambda one: f"{one['kind']}: {one['it']}")
def test_is_refused_by_the_operator_too_where_nothing_was_checked_before(case: Any, manifest_of: Any) -> None:
    with pytest.raises(ResourceInvalidError) as caught:
        decode(manifest_of(case["kind"], case["change"], case.get("name")))
    assert caught.value.where["field"] == case["field"]
    assert len(str(caught.value)) < 600


LONG = {
    "a bucket": ("Journal", {"blobs": {"s3": {"bucket": MEBIBYTE}}}, "spec.blobs.s3.bucket"),
    "a broker": ("Journal", {"kafka": {"bootstrapServers": [MEBIBYTE]}}, "spec.kafka.bootstrapServers[0]"),
    "a duration": ("Journal", {"topics": {"retention": {"time": "1" * (1 << 20)}}}, "spec.topics.retention.time"),
    "configuration": ("Topic", {"config": {"segment.bytes": MEBIBYTE}}, "spec.config"),
    "a topic": ("Topic", {"role": None, "topicName": MEBIBYTE}, "spec.topicName"),
    "a claim": ("Publisher", {"source": {"volumeClaim": {"name": MEBIBYTE}}}, "spec.source.volumeClaim.name"),
    "an argument": (
        "SubscriberPool",
        {"template": {"spec": {"containers": [{"name": "web", "image": "a", "args": [MEBIBYTE]}]}}},
        "spec.template.spec.containers[0].args[0]",
    ),
    "an annotation": (
        "SubscriberPool",
        {"template": {"metadata": {"annotations": {"a": MEBIBYTE}}}},
        "spec.template.metadata.annotations",
    ),
    "a root": ("PackageBuild", {"roots": [f"/{MEBIBYTE}"]}, "spec.roots[0]"),
    "a timetable": ("PackageBuild", {"schedule": {"cron": "1" * (1 << 20)}}, "spec.schedule.cron"),
    "a path": ("Distribution", {"paths": [{"path": f"/{MEBIBYTE}"}]}, "spec.paths[0].path"),
}
MANY = {
    "roots": ("PackageBuild", {"roots": [f"/{n}" for n in range(101)]}, "spec.roots"),
    "paths": ("Distribution", {"paths": [{"path": f"/{n}"} for n in range(501)]}, "spec.paths"),
    "brokers": (
        "Journal",
        {"kafka": {"bootstrapServers": ["k:1"] * 21}},
        "spec.kafka.bootstrapServers",
    ),
    "roots of a pool": ("SubscriberPool", {"roots": [f"/{n}" for n in range(101)]}, "spec.roots"),
    "publishers": ("SubscriberPool", {"publishers": [f"p{n}" for n in range(101)]}, "spec.publishers"),
    "configuration": ("Topic", {"config": {f"a{n}": "" for n in range(51)}}, "spec.config"),
}


@pytest.mark.parametrize("case", LONG.values(), ids=LONG)
def test_a_mebibyte_of_text_is_refused_and_never_repeated(case: Any, api_server: Any, manifest_of: Any) -> None:
    kind, change, field = case
    answer = api_server.create("default", manifest_of(kind, change))
    assert answer.status_code == 422
    assert field in answer.json()["message"]
    assert "Too long" in answer.json()["message"]
    with pytest.raises(ResourceInvalidError) as caught:
        decode(manifest_of(kind, change))
    assert caught.value.where["field"] == field
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("case", MANY.values(), ids=MANY)
def test_more_entries_than_the_limit_are_refused(case: Any, api_server: Any, manifest_of: Any) -> None:
    kind, change, field = case
    answer = api_server.create("default", manifest_of(kind, change))
    assert answer.status_code == 422
    assert f"{field}: Too many" in answer.json()["message"]
    with pytest.raises(ResourceInvalidError) as caught:
        decode(manifest_of(kind, change))
    assert caught.value.where["field"] == field

"""Rules that add jobs for packages: which paths they concern, and what the job carries."""

from __future__ import annotations

import json

import pytest
from mailboat.composition.configured_jobs import job_rules
from mailboat.config.decoder import ConfigInvalidError, decode_config
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.job_rules import MAX_PATH_BYTES, JobRule, PackageEvent
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath


def an_event(*paths: str, deep: bool = False, action: Action = Action.ADD, offset: int = 7) -> PackageEvent:
    found = tuple(map(NodePath, paths))
    names = AgentName("edge"), Offset(offset), PackageId("p1"), action, AgentName("author")
    return PackageEvent("imported", *names, found, found if deep else ())


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ("/content/**", an_event("/content"), ["/content"]),
        ("/content/**", an_event("/content/a", "/etc"), ["/content/a"]),
        ("/content/**", an_event("/contents"), None),
        ("/content/*/news/**", an_event("/content/de/news/a"), ["/content/de/news/a"]),
        ("/content/news/**", an_event("/"), None),
        ("/content/news/**", an_event("/", deep=True), ["/"]),
        ("/content/news", an_event("/content", action=Action.DELETE), ["/content"]),
        ("**", an_event("/a"), ["/a"]),
    ],
)
def test_a_rule_concerns_its_path_and_what_lies_below(
    pattern: str, event: PackageEvent, expected: list[str] | None
) -> None:
    job = JobRule(pattern, "purge.cdn").job(event)
    assert (None if job is None else json.loads(job.payload)["paths"]) == expected


def test_the_payload_describes_the_package_and_the_key_is_filled_in() -> None:
    job = JobRule("/**", "purge.cdn", "{publisher}@{subscriber}").job(an_event("/a", deep=True))
    assert job is not None
    assert job.key == "author@edge"
    assert json.loads(job.payload) == {
        "event": "imported",
        "package": "p1",
        "offset": 7,
        "publisher": "author",
        "paths": ["/a"],
        "more_paths": 0,
        "has_deep_paths": True,
        "action": "ADD",
        "subscriber": "edge",
    }


def test_a_removal_concerns_everything_below() -> None:
    job = JobRule("/**", "purge.cdn").job(an_event("/a", action=Action.DELETE))
    assert job is not None
    assert json.loads(job.payload)["has_deep_paths"] is True


def test_the_request_id_is_the_same_for_the_same_package_and_rule_only() -> None:
    rule, other = JobRule("/**", "purge.cdn"), JobRule("/**", "webhook.crm")
    jobs = [rule.job(an_event("/a")), rule.job(an_event("/a")), rule.job(an_event("/a", offset=8))]
    first, again, later, different = (item and item.request_id for item in [*jobs, other.job(an_event("/a"))])
    assert first == again
    assert len({first, later, different}) == 3


def test_paths_of_a_payload_are_bounded_and_the_others_counted() -> None:
    job = JobRule("/**", "purge.cdn").job(an_event(*(f"/{number:05}-{'x' * 100}" for number in range(3_000))))
    assert job is not None
    document = json.loads(job.payload)
    assert len(document["paths"]) + document["more_paths"] == 3_000
    assert document["more_paths"] > 0
    assert len(job.payload) < MAX_PATH_BYTES + 1_000


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ({"add": "purge.cdn"}, "either imported or distributed"),
        ({"add": "purge.cdn", "imported": "/a", "distributed": "/a"}, "either imported or distributed"),
        ({"add": "purge cdn", "imported": "/a"}, "is not a job topic"),
        ({"add": "purge", "imported": "a"}, "jobs.on[0]"),
        ({"add": "purge", "imported": "/a", "key": "{site}"}, "unknown placeholder {site}"),
    ],
)
def test_a_wrong_rule_names_its_key(rule: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigInvalidError, match=r"jobs\.on\[0\]") as raised:
        job_rules(decode_config({"jobs": {"on": [rule]}}))
    assert text in str(raised.value)

"""The operator reads custom resources as hostile input: wholly as the kind says, or refused with the field."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mailboat.errors import ResourceInvalidError
from mailboat_operator.definition import amounts
from mailboat_operator.definition.encoder import encode
from mailboat_operator.definition.resource_decoder import decode_as
from mailboat_operator.kinds.journal.spec import JournalStatus
from mailboat_operator.kinds.registry import KINDS_BY_NAME, decode
from mailboat_operator.kinds.topic.spec import TOPIC

ACCEPTED = list(yaml.load_all((Path(__file__).parent / "accepted.yaml").read_text(), yaml.CSafeLoader))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every place of a document where something stands: its holder, and the key or number there."""
    pairs = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [place for key, value in pairs for place in ((document, key), *places(value))]


@given(manifest=st.sampled_from(ACCEPTED), where=st.integers(min_value=0), value=VALUES)
def test_anything_anywhere_is_read_or_refused_and_breaks_nothing(manifest: Any, where: int, value: Any) -> None:
    made = copy.deepcopy(manifest)
    found = places(made)
    holder, key = found[where % len(found)]
    holder[key] = value
    refusal = None
    try:
        read: Any = decode(made)
    except ResourceInvalidError as error:
        refusal = error
    if refusal is not None:
        assert refusal.where["field"]
        assert len(str(refusal)) < 600
    else:
        assert decode_as(KINDS_BY_NAME[made["kind"]], {**made, "spec": encode(read.spec)}).spec == read.spec


@pytest.mark.parametrize("document", [None, 1, "Topic", [], {}, {"kind": []}, {"kind": "Pod"}])
def test_what_is_none_of_our_objects_is_refused(document: Any) -> None:
    with pytest.raises(ResourceInvalidError):
        decode(document)


def test_another_version_is_refused() -> None:
    with pytest.raises(ResourceInvalidError, match=r"apiVersion is .*v2', but must be"):
        decode({**ACCEPTED[0], "apiVersion": "mailboat.dev/v2"})


def test_an_object_of_another_kind_than_wanted_is_refused() -> None:
    with pytest.raises(ResourceInvalidError, match="kind is 'Journal', but must be Topic"):
        decode_as(TOPIC, ACCEPTED[0])


def test_a_field_beside_the_known_parts_is_refused() -> None:
    with pytest.raises(ResourceInvalidError, match="there is no field 'data'"):
        decode({**ACCEPTED[0], "data": {}})


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {},
        {"name": ""},
        {"name": 1},
        {"name": "x" * 254},
        {"name": "a", "generation": "1"},
        {"name": "a", "generation": True},
        {"name": "a", "labels": {"a": 1}},
        {"name": "a", "annotations": ["a"]},
        {"name": "a", "finalizers": "a"},
        {"name": "a", "finalizers": [1]},
        {"name": "a", "deletionTimestamp": "yesterday"},
        {"name": "a", "creationTimestamp": "2026-01-02T03:04:05"},
        {"name": "a", "creationTimestamp": "2" * (1 << 20)},
    ],
)
def test_metadata_that_no_one_can_have_stored_is_refused(metadata: Any) -> None:
    with pytest.raises(ResourceInvalidError, match="metadata"):
        decode({**ACCEPTED[0], "metadata": metadata})


def test_metadata_is_read_as_far_as_it_is_looked_at() -> None:
    metadata = {
        "name": "main",
        "namespace": "shop",
        "uid": "u-1",
        "generation": 4,
        "resourceVersion": "77",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": datetime(2026, 1, 3),  # noqa: DTZ001  # YAML reads a time like this
        "labels": {"a": "b"},
        "finalizers": ["mailboat.dev/finalizer"],
        "managedFields": [{"manager": "kubectl"}],
    }
    read = decode({**ACCEPTED[0], "metadata": metadata}).metadata
    assert (read.name, read.namespace, read.uid, read.generation) == ("main", "shop", "u-1", 4)
    assert read.created_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert read.deleted_at == datetime(2026, 1, 3, tzinfo=UTC)
    assert read.is_deleted
    assert read.finalizers == ("mailboat.dev/finalizer",)
    assert read.annotations == {}


@pytest.mark.parametrize("status", [1, {"brokers": "three"}, {"forged": True}, {"conditions": [{"type": "Ready"}]}])
def test_a_status_that_can_not_be_understood_counts_as_none(status: Any) -> None:
    assert decode({**ACCEPTED[0], "status": status}).status == JournalStatus()


CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "AsSpecified",
    "message": "all is well",
    "observedGeneration": 3,
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize(
    "others",
    [
        {"inventedLater": True},
        {"partitions": "a text by now"},
        {"conditions": [{**CONDITION, "inventedLater": {"deep": 1}}]},
    ],
)
def test_of_a_status_of_another_version_all_is_kept_that_both_know(others: dict[str, Any]) -> None:
    status = {"topicId": "AAAAAAAAAAAAAAAAAAAAAA", "topicName": "mailboat-package", "conditions": [CONDITION], **others}
    topic = next(item for item in ACCEPTED if item["kind"] == "Topic")
    read: Any = decode({**topic, "status": status}).status
    assert (read.topic_id, read.topic_name) == ("AAAAAAAAAAAAAAAAAAAAAA", "mailboat-package")
    assert [condition.reason for condition in read.conditions] == ["AsSpecified"]


def test_the_value_of_a_variable_is_never_quoted() -> None:
    canary = "canary-" * 1000
    variable = {"name": "PASSWORD", "value": canary}
    pool = copy.deepcopy(next(item for item in ACCEPTED if item["kind"] == "SubscriberPool"))
    pool["spec"]["template"]["spec"]["containers"][0]["env"] = [variable]
    with pytest.raises(ResourceInvalidError) as caught:
        decode(pool)
    assert "canary" not in str(caught.value)
    assert caught.value.where["field"].endswith("env[0].value")


def test_a_former_field_with_its_default_is_ignored(manifest_of: Any) -> None:
    """An API server stored the default of the former name in objects that did not set it."""
    assert decode(manifest_of("Publisher", {"throttle": {"isOff": False}})) == decode(manifest_of("Publisher"))
    with pytest.raises(ResourceInvalidError, match="isOff was renamed: use enabled"):
        decode(manifest_of("Publisher", {"throttle": {"isOff": True}}))


def test_a_control_character_is_refused() -> None:
    pool = copy.deepcopy(next(item for item in ACCEPTED if item["kind"] == "SubscriberPool"))
    pool["spec"]["template"]["spec"]["containers"][0]["args"] = ["a\x00b"]
    with pytest.raises(ResourceInvalidError, match="control character"):
        decode(pool)


def test_a_key_of_configuration_that_kafka_can_not_have_is_refused_by_the_reader() -> None:
    topic = {**ACCEPTED[1], "spec": {**ACCEPTED[1]["spec"], "config": {"a=b\nc": "1"}}}
    with pytest.raises(ResourceInvalidError, match="topic configuration's name"):
        decode(topic)


@given(st.integers(min_value=1, max_value=9_999_999), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_duration_is_written_as_it_was_meant(number: int, unit: str) -> None:
    seconds = amounts.parse_duration(f"{number}{unit}")
    assert amounts.parse_duration(amounts.format_duration(seconds)) == seconds


@given(st.from_regex(amounts.SIZE_PATTERN, fullmatch=True))
def test_a_size_is_written_as_it_was_meant_and_fits_into_64_bits(text: str) -> None:
    size = amounts.parse_size(text.strip())
    assert 0 < size < 2**63
    assert amounts.parse_size(amounts.format_size(size)) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("500ms", 0.5), ("30s", 30), ("90m", 5400), ("12h", 43_200), ("7d", 604_800)]
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert amounts.parse_duration(text) == seconds


def test_a_pool_has_one_store_whatever_its_target() -> None:
    volume = {"volume": {"size": "1Gi"}}
    pool = next(item for item in ACCEPTED if item["kind"] == "SubscriberPool")
    for target in ("generations", "files", "sqlite"):
        read: Any = decode({**pool, "spec": {**pool["spec"], "target": {target: volume}}})
        assert read.spec.target.store.volume.size_bytes == 1 << 30


@pytest.mark.parametrize(("size_bytes", "text"), [(5 << 30, "5Gi"), (10**6, "1M"), (1500, "1500"), (1 << 20, "1Mi")])
def test_sizes_are_written_short(size_bytes: int, text: str) -> None:
    assert amounts.format_size(size_bytes) == text


@pytest.mark.parametrize("text", ["", "d", "-1d", "1 d"])
def test_what_is_no_amount_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="not a number with a unit"):
        amounts.parse_duration(text)

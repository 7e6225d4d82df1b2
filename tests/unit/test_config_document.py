"""The configuration document: one encoder, one decoder, and messages that lead to the right key."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.config.decoder import ConfigInvalidError, decode_config, encode_changes, encode_config
from mailboat.config.document import (
    AgentsConfig,
    Config,
    PackageType,
    SubscriberAgentConfig,
    TokenConfig,
    Verb,
)
from mailboat.config.documentation import commented_yaml, configuration_page
from mailboat.config.parser import parse_document
from mailboat.config.schema import json_schema
from mailboat.config.section_keys import keys_of
from mailboat.config.storage import ConsumptionPolicy, JournalConfig, KafkaConfig, Secret

SECTIONS = {name: type(getattr(Config(), name)) for name in encode_config(Config())}
KEYS = [(section, key.name) for section, record in SECTIONS.items() for key in keys_of(record)]


def read_yaml(text: str) -> object:
    return parse_document(text, Path("c.yaml")).document


def test_an_empty_document_means_all_defaults() -> None:
    assert decode_config(None) == decode_config({}) == decode_config({"journal": None}) == Config()


def test_what_is_encoded_is_decoded_to_the_same() -> None:
    config = replace(Config(), publisher=replace(Config().publisher, name="editor", package_type=PackageType.FILEVAULT))
    assert decode_config(json.loads(json.dumps(encode_config(config)))) == config


def test_what_differs_from_the_defaults_is_the_same_configuration() -> None:
    assert encode_changes(Config()) == {}
    kafka = KafkaConfig(("broker:9092",))
    config = replace(Config(), journal=JournalConfig(kafka=kafka), publisher=replace(Config().publisher, name="ann"))
    changes = encode_changes(config)
    assert changes.keys() == {"journal", "publisher"}
    assert changes["publisher"] == {"name": "ann"}
    assert decode_config(changes) == config


def test_the_commented_file_says_the_same_as_the_configuration() -> None:
    config = replace(Config(), subscriber=replace(Config().subscriber, max_retries=None))
    assert decode_config(read_yaml(commented_yaml(config))) == config


def test_a_key_that_yaml_takes_for_a_boolean_is_read_as_written() -> None:
    assert read_yaml("jobs:\n  on: []\n  off: true\n") == {"jobs": {"on": [], "off": True}}


def test_the_commented_file_names_the_schema_for_editors() -> None:
    first_line = commented_yaml(Config()).partition("\n")[0]
    assert first_line == f"# yaml-language-server: $schema={json_schema()['$id']}"


EVERYTHING = replace(
    Config(),
    journal=JournalConfig(kafka=KafkaConfig(("broker-1:9092", "broker-2:9092")), topic_prefix="shop-"),
    agents=AgentsConfig(subscribers=(SubscriberAgentConfig("a", "files:/srv/a b"), SubscriberAgentConfig("x", "no"))),
    http=replace(Config().http, tokens=(TokenConfig("ops", Secret(env="TOKEN"), (Verb.VIEW, Verb.CLEAR)),)),
)


def test_lists_and_nested_sections_survive_every_form() -> None:
    assert decode_config(json.loads(json.dumps(encode_config(EVERYTHING)))) == EVERYTHING
    assert decode_config(read_yaml(commented_yaml(EVERYTHING))) == EVERYTHING


@pytest.mark.parametrize("text", ["null", "yes", "1e3", "-", "", ".5", "a: b", "#x", "ü", "'", "0x10", "2026-01-01"])
def test_any_text_survives_the_commented_file(text: str) -> None:
    config = replace(Config(), journal=JournalConfig(path=text))
    assert decode_config(read_yaml(commented_yaml(config))) == config


def test_a_section_that_says_nothing_is_all_defaults() -> None:
    assert decode_config({"publisher": {"throttle": None}}) == Config()


@pytest.mark.parametrize(("section", "key"), KEYS, ids=[".".join(key) for key in KEYS])
def test_every_key_is_explained_everywhere(section: str, key: str) -> None:
    assert re.search(rf"^- `{section}\.{key}(\[\])?`", configuration_page(), re.MULTILINE)
    assert json_schema()["properties"][section]["properties"][key]["description"].endswith((".", "…"))
    lines = commented_yaml(Config()).splitlines()
    number = next(index for index, line in enumerate(lines) if line.startswith((f"  {key}:", f'  "{key}":')))
    assert lines[number - 1].startswith("  # ")


def test_the_page_names_every_key_as_messages_do_and_writes_numbers_out() -> None:
    page = configuration_page()
    assert "- `agents.publishers[].name` (required): " in page
    assert "- `agents.subscribers[].staging.golden` (required): " in page
    assert "- `http.tokens[].verbs[]` (" in page
    assert "5242880 to 5368709120, " in page


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigInvalidError, match=r"there is no key subscriber\.max_retrys") as caught:
        decode_config({"subscriber": {"max_retrys": 3}}, where="mailboat.yaml")
    assert caught.value.next_step == "did you mean subscriber.max_retries?"
    assert caught.value.exit_code == 2


def test_a_former_key_is_refused_with_its_present_name() -> None:
    message = r"agents\.subscribers\[0\]\.is_editable was renamed: use agents\.subscribers\[0\]\.editable"
    with pytest.raises(ConfigInvalidError, match=message):
        decode_config({"agents": {"subscribers": [{"name": "a", "target": "files:a", "is_editable": True}]}})


def test_an_unknown_section_without_a_near_one_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(ConfigInvalidError, match="there is no key zzz") as caught:
        decode_config({"zzz": {}})
    assert "journal, blobs, retention" in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the document is not a mapping"),
        ({"journal": "sqlite"}, "journal is not a mapping"),
        ({"publisher": {"package_type": "rar"}}, "publisher.package_type is 'rar', but must be one of tree, filevault"),
        ({"journal": {"kafka": {}}}, "journal.kafka.bootstrap_servers is missing"),
        ({"journal": {"kafka": {"bootstrap_servers": "a:1"}}}, "bootstrap_servers is 'a:1', but must be a list"),
        ({"journal": {"kafka": {"bootstrap_servers": [1]}}}, r"bootstrap_servers\[0\] is 1, but must be a string"),
        ({"agents": {"subscribers": [{"name": "a"}]}}, r"agents.subscribers\[0\].target is missing"),
        ({"http": {"tokens": [{"name": "a", "token": {"value": "x"}}]}}, "no key http.tokens.0..token.value"),
        ({"publisher": {"throttle": 3}}, "publisher.throttle is not a mapping"),
        ({"journal": {"path": None}}, "journal.path can't be null"),
        ({"journal": {"path": 3}}, "journal.path is 3, but must be a string"),
        ({"blobs": {"grace_seconds": 0}}, "blobs.grace_seconds is 0, the smallest allowed is 3600"),
        ({"publisher": {"inline_package_bytes": "1"}}, "inline_package_bytes is '1', but must be an integer"),
        ({"publisher": {"inline_package_bytes": True}}, "inline_package_bytes is True, but must be an integer"),
        ({"publisher": {"inline_package_bytes": 1.5}}, "inline_package_bytes is 1.5, but must be an integer"),
        ({"limits": {"max_ratio": "many"}}, "max_ratio is 'many', but must be a number"),
        ({"limits": {"max_ratio": float("nan")}}, "max_ratio is nan, the smallest allowed is 1"),
        ({"limits": {"refuse_collisions": 1}}, "refuse_collisions is 1, but must be a boolean"),
        ({"subscriber": {"max_retries": -1}}, "max_retries is -1, the smallest allowed is 0"),
        ({"http": {"port": 65_536}}, "http.port is 65536, the largest allowed is 65535"),
        ({"subscriber": {"announce_seconds": 30}}, "announce_seconds is 30, the largest allowed is 20"),
        ({"limits": {"max_entries": 2**53}}, "limits.max_entries is 9007199254740992, the largest allowed"),
        ({"limits": {"max_ratio": 10**400}}, "limits.max_ratio is 1000.*…, the largest allowed is 1000000000"),
        ({"limits": {"max_ratio": 1 << 20_000}}, "limits.max_ratio is a very large integer, the largest allowed"),
        ({"events": {"silent_seconds": float("inf")}}, "silent_seconds is inf, the largest allowed is 1000000000"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_name(document: Any, message: str) -> None:
    with pytest.raises(ConfigInvalidError, match=message):
        decode_config(document)


def test_a_whole_number_is_taken_for_a_number_of_seconds() -> None:
    assert decode_config({"retention": {"package_seconds": 60}}).retention.package_seconds == 60.0
    assert decode_config({"retention": {"package_seconds": None}}).retention.package_seconds is None


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(st.dictionaries(st.sampled_from([*SECTIONS, "x"]), VALUES | st.dictionaries(st.sampled_from(["path"]), VALUES)))
def test_any_document_is_decoded_or_refused_as_invalid(document: Any) -> None:
    try:
        config = decode_config(document)
    except ConfigInvalidError:
        return
    assert decode_config(encode_config(config)) == config


def test_all_mistakes_of_a_document_are_told_at_once() -> None:
    document = {"agents": {"publishers": [{"name": "a", "sorce": "x"}, {}]}, "http": {"port": "web"}, "foo": 1}
    with pytest.raises(ConfigInvalidError) as refused:
        decode_config(document, where="the file")
    told = [str(text) for text in refused.value.where.values()]
    assert refused.value.message == "the file has 4 mistakes"
    assert told[0] == (
        "the file: there is no key agents.publishers[0].sorce (did you mean agents.publishers[0].source?)"
    )
    assert told[1].startswith("the file: agents.publishers[1].name is missing")
    assert told[2].startswith("the file: http.port is 'web', but must be")
    assert told[3].startswith("the file: there is no key foo")


def test_of_very_many_mistakes_the_first_are_told() -> None:
    with pytest.raises(ConfigInvalidError, match="has 500 mistakes; the first 10:") as refused:
        decode_config({f"key-{number}": number for number in range(500)})
    assert len(refused.value.where) == 10


def test_mistakes_of_a_file_name_their_lines() -> None:
    text = "http:\n  port: web\nagents:\n  publishers:\n    - {}\n    - name: a\n      sorce: x\n"
    document, line_of = parse_document(text, Path("c.yaml"))
    with pytest.raises(ConfigInvalidError) as refused:
        decode_config(document, where="c.yaml", line_of=line_of)
    places = [str(text).partition(": ")[0] for text in refused.value.where.values()]
    assert places == ["c.yaml:2", "c.yaml:5", "c.yaml:7"]


def test_one_mistake_of_a_file_names_its_line() -> None:
    document, line_of = parse_document("# port\nhttp: {port: 99999}\n", Path("c.yaml"))
    with pytest.raises(ConfigInvalidError, match=r"c\.yaml:2: http\.port is 99999"):
        decode_config(document, where="c.yaml", line_of=line_of)


@pytest.mark.parametrize("text", ["a: 2026-99-99", "a: " + "9" * 5000, "[" * 100_000, "a: &a [*a]", "? [b]\n: c", "\0"])
def test_yaml_of_no_use_is_refused_shortly(text: str) -> None:
    with pytest.raises(ConfigInvalidError, match=r"^.{1,1000}$"):
        decode_config(parse_document(text, Path("c.yaml")).document)


def test_a_bare_off_which_yaml_reads_as_false_is_a_choice() -> None:
    document = read_yaml("retention: {consumption: {policy: off}}")
    assert decode_config(document).retention.consumption.policy is ConsumptionPolicy.OFF
    with pytest.raises(ConfigInvalidError, match="package_type is False, but must be one of tree, filevault"):
        decode_config({"publisher": {"package_type": False}})

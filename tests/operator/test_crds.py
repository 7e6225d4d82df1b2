"""The definitions are what the records give, bounded everywhere and explained everywhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mailboat.config import section_keys
from mailboat.config.document import TracingConfig
from mailboat.config.section_keys import Declaration
from mailboat_operator.definition.fields import Field, Form, keys_of, rules_of
from mailboat_operator.kinds.registry import KINDS
from mailboat_operator.workload.package_limits import Limits
from resources_page import resources_page

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = {
    path.stem: yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted((ROOT / "crds").glob("*.yaml"))
}
CLIENT_SIDE_APPLY_BYTES = 262_144


def version_of(definition: Any) -> Any:
    """The one version of a definition."""
    (version,) = definition["spec"]["versions"]
    return version


def places(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every place of a schema."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from places(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from places(schema[name], f"{path}[]")


PLACES = [
    (name, path, schema)
    for name, definition in DEFINITIONS.items()
    for part in ("spec", "status")
    for path, schema in places(version_of(definition)["schema"]["openAPIV3Schema"]["properties"][part], part)
]


def records(record: type) -> Iterator[type]:
    """A record and all that it is made of."""
    yield record
    for key in keys_of(record):
        if key.is_section:
            yield from records(key.kind)


def test_the_definitions_are_what_the_records_give() -> None:
    words = [sys.executable, "tools/generate_crds.py", "--check"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Listed(TracingConfig):
    """A section with a field of its own."""

    FIELDS: ClassVar = {"otlp_endpoint": Field(max_length=64), "own": Field("Own text.")}

    own: bool = False


class Unlisted(TracingConfig):
    """A section with a field that manifests would not have."""

    FIELDS: ClassVar = {"otlp_endpoint": Field()}

    own: bool = False


def test_a_field_that_a_record_takes_from_the_configuration_is_declared_there() -> None:
    (setting,) = section_keys.keys_of(TracingConfig)
    taken, own = keys_of(Listed)
    assert (taken.name, taken.kind, taken.default) == ("otlpEndpoint", str, None)
    assert (taken.field.text, taken.field.max_length) == (setting.setting.text, 64)
    assert (own.name, own.field.text) == ("own", "Own text.")


def test_bounds_of_a_taken_field_are_those_of_the_configuration_unless_the_record_has_others() -> None:
    bounds = {key.attribute: (key.field.minimum, key.field.maximum) for key in keys_of(Limits)}
    assert bounds["max_xml_depth"] == (1, 1000)  # of the configuration
    assert bounds["max_entries"] == (1, 10**9)  # the maximum is of the record
    assert bounds["max_entry_bytes"] == (None, None)  # the form of sizes has them


SETTINGS = [
    (f"{record.__name__}.{key.attribute}", key.field.form, setting)
    for record in sorted({record for kind in KINDS for record in records(kind.spec)}, key=lambda one: one.__name__)
    if hasattr(record, "FIELDS")
    for key in keys_of(record)
    for setting in section_keys.keys_of(record.__mro__[1])
    if setting.name == key.attribute and setting.maximum is not None and key.field.form is not None
]
"""Settings of agents that manifests have as texts: by name, with the form, and the bounds of the agents."""


@given(st.data())
@pytest.mark.parametrize(("form", "setting"), [pytest.param(*rest, id=name) for name, *rest in SETTINGS])
def test_what_has_the_form_of_a_setting_is_within_the_bounds_of_agents(
    form: Form, setting: Declaration, data: Any
) -> None:
    """An agent would not start with it."""
    number = form.read(data.draw(st.from_regex(form.pattern, fullmatch=True)))
    assert (setting.setting.minimum or 0) <= number <= (setting.maximum or 0)


def test_a_field_of_its_own_that_a_record_does_not_list_is_refused() -> None:
    with pytest.raises(TypeError, match="Unlisted has fields that FIELDS does not list"):
        keys_of(Unlisted)


def test_every_field_of_a_spec_is_read() -> None:
    # By name: of two records with a field of one name, reading one is enough. Sections of the configuration, and of
    # pods, reach agents and pods whole: no line names their fields.
    declared = {
        (record.__module__.rpartition("mailboat_operator.")[2], record.__name__, key.attribute)
        for kind in KINDS
        for record in records(get_type_hints(kind.resource)["spec"])
        if record.__module__.startswith("mailboat_operator.kinds.")
        for key in keys_of(record)
        if key.attribute not in getattr(record.__base__, "__dataclass_fields__", {})
    }
    read = set[str]()
    for path in (ROOT / "operator").rglob("*.py"):
        tree = ast.parse(path.read_text())
        rules = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Lambda) for part in ast.walk(node)}
        read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and id(node) not in rules}
    unread = [f"{module}: {record}.{field}" for module, record, field in sorted(declared) if field not in read]
    assert len(declared) > 100
    assert unread == [], "a field that no plan and no manifest reads has no effect"


def test_every_kind_has_its_names_and_is_listed_with_the_others() -> None:
    found = {
        definition["spec"]["names"]["kind"]: definition["spec"]["names"]["shortNames"][0]
        for definition in DEFINITIONS.values()
    }
    assert found == {
        "Journal": "mbj",
        "Topic": "mbt",
        "Publisher": "mbpub",
        "SubscriberPool": "mbpool",
        "Distribution": "mbdist",
        "PackageBuild": "mbbuild",
        "JobQueue": "mbq",
        "JobSchedule": "mbjs",
    }
    assert {definition["spec"]["names"]["categories"][0] for definition in DEFINITIONS.values()} == {"mailboat"}
    assert all(definition["spec"]["scope"] == "Namespaced" for definition in DEFINITIONS.values())


def test_every_text_list_and_mapping_has_a_largest_size() -> None:
    unbounded = []
    for name, path, schema in PLACES:
        is_text = schema["type"] == "string" and not {"enum", "format"} & schema.keys()
        wanted = {"array": "maxItems", "string": "maxLength" if is_text else "type"}.get(schema["type"], "type")
        if "additionalProperties" in schema:
            wanted = "maxProperties"
        if wanted not in schema:
            unbounded.append(f"{name}: {path} has no {wanted}")
    assert unbounded == []


def test_nothing_that_is_not_declared_is_kept() -> None:
    assert [path for _, path, schema in PLACES if "x-kubernetes-preserve-unknown-fields" in schema] == []
    assert [path for _, path, schema in PLACES if schema["type"] == "object" and len(schema) == 1] == []


def test_every_list_says_how_it_is_merged() -> None:
    assert [path for _, path, one in PLACES if one["type"] == "array" and "x-kubernetes-list-type" not in one] == []


def test_every_field_is_explained_in_a_sentence() -> None:
    fields = [(path, one.get("description", "")) for _, path, one in PLACES if not path.endswith("[]")]
    assert [path for path, text in fields if not text or text.strip()[-1] != "." or not text[0].isupper()] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda one: one.name)
def test_every_rule_is_written_for_both_who_read_unless_it_looks_back(kind: Any) -> None:
    rules = [*kind.rules, *(rule for record in records(kind.spec) for rule in rules_of(record))]
    assert [rule.expression for rule in rules if ("oldSelf" in rule.expression) != (rule.is_kept is None)] == []


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_a_definition_can_be_applied_from_the_client_s_side_too(definition: Any) -> None:
    assert len(yaml.safe_dump(definition)) < CLIENT_SIDE_APPLY_BYTES


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=DEFINITIONS)
def test_the_status_is_its_own_subresource_with_conditions(definition: Any) -> None:
    version = version_of(definition)
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    assert "status" in version["subresources"]
    assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]
    assert set(status["conditions"]["items"]["required"]) == {
        "type",
        "status",
        "reason",
        "message",
        "observedGeneration",
        "lastTransitionTime",
    }
    assert status["observedGeneration"]["type"] == "integer"


def test_only_pools_scale() -> None:
    scaled = {name: version_of(one)["subresources"].get("scale") for name, one in DEFINITIONS.items()}
    assert {name for name, scale in scaled.items() if scale} == {"subscriberpools"}
    assert scaled["subscriberpools"]["labelSelectorPath"] == ".status.selector"


FIELD = re.compile(r"^- `([^`]+)`(?: \((.+?)\))?: ", re.MULTILINE)
"""A field of the page with what stands in parentheses: its type and default."""


OF_KUBERNETES = re.compile(r"\b(template|env|resources)\.")
"""Fields below these are Kubernetes' own: the page refers to `kubectl explain`."""


def described(sections: dict[str, str], title: str, above: str) -> Iterator[str]:
    """The paths that a section leads to, those of linked types included; a type of Kubernetes is a line."""
    text = sections[title]
    several = ", ".join(re.findall(r"^- \[Of several kinds\]\(#fields-of-several-kinds\): `(.+)`$", text, re.MULTILINE))
    rows = FIELD.findall(text)
    rows += [row for row in FIELD.findall(sections["Fields of several kinds"]) if row[0] in several.split(", ")]
    states = ", ".join(re.findall(r"^Fields of `status`: `(.+)`$", text, re.MULTILINE))
    rows += [(name, "") for name in filter(None, states.split(", "))]
    items = re.findall(r"(?:^|, )`([^`]+)`(?: \((\w+)\))?", text, re.MULTILINE)
    for field, type_ in rows or items:
        path = f"{above}{field.replace('[]', '')}"
        yield from (path, *[path.removesuffix(".name")] * path.endswith(".name"))
        if "`{name}`" in type_:
            yield f"{path}.name"
        linked_types = re.findall(r"\[(\w+)\]\(#", type_) if rows else filter(None, [type_])
        for linked in set(linked_types) & set(sections):
            yield from described(sections, linked, f"{path}.")


def test_the_page_describes_every_field_of_every_spec() -> None:
    page = resources_page()
    assert "kubectl explain publisher.status   # fields of each status" in page
    sections = {text.split("\n", 1)[0]: text for text in re.split(r"\n###? ", page)}
    of_kubernetes = re.findall(r"^- `(\w+)`: (`.+)$", sections["Types of Kubernetes"].split("Rules:")[0], re.MULTILINE)
    sections |= {name: fields for name, fields in of_kubernetes if name not in sections}
    found = {kind.plural: set(described(sections, kind.name, "")) for kind in KINDS}
    asked = {(name, path.replace("[]", "").partition(".")[2], path) for name, path, one in PLACES if "." in path}
    assert len(asked) > 500
    former = {"isHostChecked", "isPathStyle", "isOff", "isEndless", "areCollisionsRefused"}  # refused by a rule
    moved = {"spec.events.webhooks[].only", "spec.events.webhooks[].paths"}  # into `filter`, and refused there
    missing = {
        f"{name}: {path}"
        for name, plain, path in asked
        if plain not in found[name]
        and path.startswith("spec.")
        and path.rpartition(".")[2] not in former
        and not OF_KUBERNETES.search(plain)
        and path not in moved
        and not path.endswith("[]")
    }
    assert sorted(missing) == []


def test_a_reference_never_has_a_namespace() -> None:
    assert [path for _, path, _ in PLACES if path.endswith((".namespace", "Ref[]"))] == []


def test_a_server_that_rested_answers_again(api_server: Any) -> None:
    api_server.rest()
    api_server.ensure_running()
    assert api_server.http.get("/api/v1/namespaces").is_success

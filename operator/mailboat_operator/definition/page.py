"""`docs/custom-resources.md`: every field of every kind once, from the records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mailboat_operator.definition import API_VERSION, CATEGORY
from mailboat_operator.definition.fields import REQUIRED, Key, Shape, keys_of, rules_of
from mailboat_operator.definition.kind import Kind
from mailboat_operator.definition.schema import default_of
from mailboat_operator.kinds.registry import KINDS
from mailboat_operator.workload import placement, template

_SHORT = re.compile(r":(?!port)| such as|,")
_DEFINED = {"absolute path without '/' at its end": "path", "http or https URL with a host name or address": "URL"}
_EVERY_STATUS = ("observedGeneration", "conditions[]")
_FIXED = " can't be changed: "
_KUBERNETES_TYPES = (
    "Fields with the names, types and meanings of Kubernetes: those that the restricted profile of pod security",
    "allows. `kubectl explain publisher.spec.template.spec` explains each.",
)


def resources_page() -> str:
    """The whole page."""
    shared = _shared_types()
    lines = [
        "# Custom resources",
        "",
        f"Generated from `mailboat_operator/kinds` by `make docs`. All kinds belong to `{API_VERSION}`, are",
        f"namespaced, and refer to objects of their own namespace only. `kubectl get {CATEGORY}` lists all",
        "objects. `kubectl explain` prints the same texts. The API server rejects unknown fields and invalid values.",
        "",
        "- A type with a link is in [Shared types](#shared-types).",
        "- A field of type `{name}` refers to an object by name.",
        "- A duration is a number with `ms`, `s`, `m`, `h` or `d`.",
        "- A size is a number of bytes, or a number with `Ki`, `Mi`, `Gi`, `Ti`, `k`, `M`, `G` or `T`.",
        "- A path is absolute and does not end in `/`. A URL begins with `http://` or `https://`.",
        "- Every status has `observedGeneration`, the generation of the spec that it describes, and",
        "  `conditions`, a list of [Condition](#condition) that begins with Ready.",
        "- Pod templates have [types of Kubernetes](#types-of-kubernetes).",
        "- A former name of a renamed field is refused by a rule that has the present name.",
        "",
        "| kind | short name | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| [{kind.name}](#{kind.name.lower()}) | `{kind.short_name}` | {kind.text} |" for kind in KINDS]
    several = _fields_of_several(shared)
    lines += ["", "## Fields of several kinds", "", *several]
    for kind in KINDS:
        lines += _kind_section(kind, shared, several)
    lines += ["", "## Shared types"]
    for record in shared:
        if not _is_of_kubernetes(record):
            lines += ["", f"### {record.__name__}", "", *_lines(record, shared)]
            lines += _list("Rules:", _rules(record, "", shared))
    of_kubernetes = [record for record in shared if _is_of_kubernetes(record)]
    lines += ["", "## Types of Kubernetes", "", *_KUBERNETES_TYPES, ""]
    lines += [f"- `{record.__name__}`: {_line(record, shared)}" for record in of_kubernetes]
    lines += _list("Rules:", _rules_by_type(of_kubernetes))
    return "\n".join(lines) + "\n"


def _fields_of_several(shared: Mapping[type, int]) -> list[str]:
    """The lines that two or more kinds have in common, each once."""
    lines = Counter(line for kind in KINDS for line in _lines(kind.spec, shared))
    return [line for line, number in lines.items() if number > 1]


def _shared_types() -> Mapping[type, int]:
    """The records with a section of their own, by name: those that several fields have."""
    used = Counter(record for kind in KINDS for root in (kind.spec, kind.status) for record in _records(root))
    several = [record for record, number in used.items() if number > 1]
    return {record: used[record] for record in sorted(several, key=lambda record: record.__name__)}


def _records(record: type) -> Iterator[type]:
    """The records of all fields below a record, except references."""
    for key in keys_of(record):
        if key.is_section and not _is_reference(key):
            yield key.kind
            yield from _records(key.kind)


def _is_reference(key: Key) -> bool:
    return key.is_section and [inner.name for inner in keys_of(key.kind)] == ["name"]


def _kind_section(kind: Kind[Any], shared: Mapping[type, int], several: Sequence[str]) -> Iterator[str]:
    lines = list(_lines(kind.spec, shared))
    common = ", ".join(line.split("`")[1] for line in lines if line in several)
    yield from ("", f"## {kind.name}", "", kind.text, "", "Fields of `spec`:", "")
    yield from (line for line in lines if line not in several)
    yield f"- [Of several kinds](#fields-of-several-kinds): `{common}`"
    messages = [f"- {rule.message}." for rule in kind.rules]
    yield from _list("Rules:", [*messages, *_rules(kind.spec, "", shared)])
    yield from ("", "Fields of `status`:", "")
    for key, path in _fields(kind.status, "", shared):
        if path not in _EVERY_STATUS:
            # of a status, which users only read, types say little beyond links to other records
            yield _field_line(path, [_type(key, shared)] if key.kind in shared else [], key.field.text)


def _lines(record: type, shared: Mapping[type, int]) -> Iterator[str]:
    """A line for each field: path, type, default, meaning."""
    for key, path in _fields(record, "", shared):
        yield _field_line(path, [_type(key, shared), _default(key)], key.field.text)


def _field_line(path: str, facts: Iterable[str], text: str) -> str:
    known = ", ".join(fact for fact in facts if fact)
    return f"- `{path}`{f' ({known})' if known else ''}: {text}"


def _joined(messages: Iterable[str]) -> Iterator[str]:
    """The messages, with one for all fields that cannot be changed for the same reason."""
    fields: dict[str, list[str]] = {}
    for message in messages:
        field, _, reason = message.partition(_FIXED)
        fields.setdefault(reason or message, []).append(field)
    for reason, names in fields.items():
        yield reason if reason in names else f"{', '.join(names)}{_FIXED}{reason}"


def _is_of_kubernetes(record: type) -> bool:
    """Whether the record has Kubernetes' own fields, which readers know; they are listed without their meaning."""
    return record.__module__ in (placement.__name__, template.__name__)


def _rules_by_type(records: Iterable[type]) -> Iterator[str]:
    """Each rule once, behind the names of the types that have it."""
    types: dict[str, list[str]] = {}
    for record in records:
        for rule in rules_of(record):
            types.setdefault(rule.message, []).append(f"`{record.__name__}`")
    return (f"- {', '.join(names)}: {message}." for message, names in types.items())


def _line(record: type, shared: Mapping[type, int]) -> str:
    """The fields of a record of Kubernetes, with their type where that is another record."""
    fields = []
    for key, path in _fields(record, "", shared):
        kind = f" ({key.kind.__name__})" if key.is_section and key.kind in shared else ""
        fields.append(f"`{path}.name`" if _is_reference(key) else f"`{path}`{kind}")
    return ", ".join(fields)


def _list(title: str, items: Iterator[str] | list[str]) -> Iterator[str]:
    found = list(items)
    if found:
        yield from ("", title, "", *found)


def _fields(record: type, above: str, shared: Mapping[type, int]) -> Iterator[tuple[Key, str]]:
    """The fields of a record with their paths, those of inner records after their field."""
    for key in keys_of(record):
        path = _path(above, key)
        yield key, path
        if _is_inner(key, shared):
            yield from _fields(key.kind, f"{path}.", shared)


def _is_inner(key: Key, shared: Mapping[type, int]) -> bool:
    """Whether the fields of this field's record stand in the table of the record around it."""
    return key.is_section and not _is_reference(key) and key.kind not in shared


def _path(above: str, key: Key) -> str:
    return f"{above}{key.name}{'[]' * (key.shape is Shape.LIST)}"


def _rules(record: type, above: str, shared: Mapping[type, int]) -> Iterator[str]:
    at = f"`{above.removesuffix('.')}`: " if above else ""
    for message in _joined(rule.message for rule in rules_of(record)):
        yield f"- {at}{message}."
    for key in keys_of(record):
        if _is_inner(key, shared):
            yield from _rules(key.kind, f"{_path(above, key)}.", shared)


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    default = default_of(key)
    if default is None or default == {}:
        return ""
    return f"default `{default if isinstance(default, str) else json.dumps(default)}`"


def _type(key: Key, shared: Mapping[type, int]) -> str:
    """The type of a value or of an item: a path shows lists by `[]`, and objects by the fields below it."""
    text = _value_type(key, shared)
    return f"map to {text}" if key.shape is Shape.MAPPING else text


def _value_type(key: Key, shared: Mapping[type, int]) -> str:
    if _is_reference(key):
        return "`{name}`"
    if key.is_section:
        return _section_type(key.kind) if key.kind in shared else ""
    if key.is_choice:
        return ", ".join(f"`{choice}`" for choice in key.kind)
    if key.is_time or key.kind is bool:
        return "time" if key.is_time else "boolean"
    if key.field.form is not None and key.shape is not Shape.MAPPING:
        text = _SHORT.split(key.field.form.meaning)[0].removeprefix("a ").removeprefix("an ")
        return _DEFINED.get(text, text)
    return "string" if key.kind is str else f"integer{_range(key)}"


def _section_type(record: type) -> str:
    place = "types-of-kubernetes" if _is_of_kubernetes(record) else record.__name__.lower()
    return f"[{record.__name__}](#{place})"


def _range(key: Key) -> str:
    if key.field.minimum is None:
        return ""
    return f", ≥ {key.field.minimum}" if key.field.maximum is None else f", {key.field.minimum} to {key.field.maximum}"

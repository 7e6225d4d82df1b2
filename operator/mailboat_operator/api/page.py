"""`docs/custom-resources.md`: every field of every kind, from the records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from mailboat_operator.api import API_VERSION, CATEGORY
from mailboat_operator.api.fields import REQUIRED, Key, Shape, keys_of, renamed_of, rules_of
from mailboat_operator.api.kind import Kind
from mailboat_operator.api.kinds import KINDS
from mailboat_operator.api.schema import default_of

_SHORT = re.compile(r":(?!port)| such as|,")


def resources_page() -> str:
    """The whole page."""
    lines = [
        "# Custom resources",
        "",
        f"Generated from `mailboat_operator/api` by `make docs`. All kinds are of `{API_VERSION}`; they live in a",
        f"namespace and name only what is in it. `kubectl get {CATEGORY}` lists them all, `kubectl explain` says what",
        "stands here. A field that does not exist, or a value that can't be meant, is refused by the API server.",
        "",
        "A duration is a number with `ms`, `s`, `m`, `h` or `d`; a size is a number with `Ki`, `Mi`, `Gi`, `Ti`, `k`,",
        "`M`, `G` or `T`, or bytes; what is left out of a pod template is what the restricted profile does not allow.",
        "",
        "| kind | short | what it is |",
        "|---|---|---|",
    ]
    lines += [f"| [{kind.name}](#{kind.name.lower()}) | `{kind.short_name}` | {kind.text} |" for kind in KINDS]
    for kind in KINDS:
        lines += _kind_section(kind)
    return "\n".join(lines) + "\n"


def _kind_section(kind: Kind[Any]) -> Iterator[str]:
    yield from ("", f"## {kind.name}", "", kind.text)
    for rule in kind.rules:
        yield from ("", f"- {rule.message}.")
    yield from ("", "| field | type | default | meaning |", "|---|---|---|---|")
    yield from _rows(kind.spec, "spec")
    said = list(_rules(kind.spec, "spec"))
    if said:
        yield from ("", "Rules:", "", *said)
    yield from ("", "What is found:", "", "| field | type | meaning |", "|---|---|---|")
    for key, path in _fields(kind.status, "status"):
        yield f"| `{path}` | {_type(key)} | {_cell(key.field.text)} |"


def _rows(record: type, path: str) -> Iterator[str]:
    for key, place in _fields(record, path):
        yield f"| `{place}` | {_type(key)} | {_default(key)} | {_cell(key.field.text)} |"


def _fields(record: type, path: str) -> Iterator[tuple[Key, str]]:
    for key in keys_of(record):
        place = f"{path}.{key.name}{'[]' * (key.shape is Shape.LIST)}"
        yield key, place
        if key.is_section:
            yield from _fields(key.kind, place)
    yield from _former(record, path)


def _former(record: type, path: str) -> Iterator[tuple[Key, str]]:
    for one in renamed_of(record).values():
        yield one.key, f"{path}.{one.former}"


def _rules(record: type, path: str) -> Iterator[str]:
    for rule in rules_of(record):
        yield f"- `{path}`: {_cell(rule.message)}."
    for key in keys_of(record):
        if key.is_section:
            yield from _rules(key.kind, f"{path}.{key.name}{'[]' * (key.shape is Shape.LIST)}")


def _default(key: Key) -> str:
    if key.default is REQUIRED:
        return "required"
    default = default_of(key)
    if default is None or default == {}:
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _type(key: Key) -> str:
    text = _value_type(key)
    if key.shape is Shape.LIST:
        return f"list of {text}"
    return f"map to {text}" if key.shape is Shape.MAPPING else text


def _value_type(key: Key) -> str:
    if key.is_section:
        return "object"
    if key.is_choice:
        return " or ".join(f"`{choice}`" for choice in key.kind)
    if key.is_time:
        return "time"
    if key.kind is bool:
        return "boolean"
    if key.field.form is not None and key.shape is not Shape.MAPPING:
        return _SHORT.split(_cell(key.field.form.meaning))[0]
    return "string" if key.kind is str else f"integer{_range(key)}"


def _range(key: Key) -> str:
    if key.field.minimum is None:
        return ""
    return f", ≥ {key.field.minimum}" if key.field.maximum is None else f", {key.field.minimum} to {key.field.maximum}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

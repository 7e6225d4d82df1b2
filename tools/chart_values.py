"""The page of the chart's values, from the comments of `values.yaml` and the types of `values.schema.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parent.parent / "helm" / "mailboat"
LINE = re.compile(r"(?P<indent> *)(?P<name>[A-Za-z]+):(?: |$)")


class Value(NamedTuple):
    """A value of the chart.

    Attributes:
        path: Its keys, joined by dots.
        meaning: The comment above it.
        default: As in `values.yaml`.
        schema: Its part of the schema.
    """

    path: str
    meaning: str
    default: Any
    schema: Mapping[str, Any]

    @property
    def is_group(self) -> bool:
        """Whether the values in it are described one by one."""
        return "properties" in self.schema


def chart_values(text: str, schema: Mapping[str, Any]) -> Iterator[Value]:
    """All values in the order of the file. Raises: ValueError: one has no comment; KeyError: the schema lacks one."""
    defaults = yaml.safe_load(text)
    comment: list[str] = []
    path: list[str] = []
    leaf: int | None = None
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.strip(" #"))
            continue
        found = LINE.match(line)
        depth = len(found["indent"]) // 2 if found else 0
        if found is None or (leaf is not None and depth > leaf):
            comment = []
            continue
        path = [*path[:depth], found["name"]]
        if not comment:
            raise ValueError(f"values.yaml: {'.'.join(path)} has no comment")
        value = Value(".".join(path), " ".join(comment), _default(defaults, path), _schema(schema, path))
        leaf = None if value.is_group else depth
        comment = []
        yield value


def values_page() -> str:
    """`docs/chart-values.md`."""
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    lines = [
        "# Chart values",
        "",
        "Generated from the chart's `values.yaml` and `values.schema.json` by `make docs`. Helm refuses unknown",
        "values. [Install on Kubernetes](kubernetes.md) says which to set before production. Values without a default",
        "are empty.",
        "",
        "```",
        "helm show values helm/mailboat > values.yaml",
        "helm upgrade --install mailboat helm/mailboat --namespace mailboat-system --values values.yaml",
        "```",
        "",
    ]
    # the same value of several images or monitors: one line names all
    paths: dict[str, list[str]] = {}
    for value in chart_values(text, schema):
        paths.setdefault(_facts_and_meaning(value, schema), []).append(f"`{value.path}`")
    lines += [f"- {', '.join(same)}{meaning}" for meaning, same in paths.items()]
    return "\n".join(lines) + "\n"


def _facts_and_meaning(value: Value, schema: Mapping[str, Any]) -> str:
    if value.is_group:
        return f": {value.meaning}"
    default = f"default `{json.dumps(value.default)}`" if value.default not in ("", [], {}) else ""
    type_ = _type(value.schema, schema)
    # a default shows these types itself
    facts = [
        *([] if default and type_ in ("string", "boolean", "duration") else [type_]),
        *([default] if default else []),
    ]
    return f" ({', '.join(facts)}): {value.meaning}"


def _type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if schema.get("pattern") == root["definitions"]["duration"]["pattern"]:
        return "duration"
    if schema["type"] == "array":
        return f"list of {schema['items']['type']}s"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ", ".join([schema["type"], *(f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema)])


def _default(defaults: Any, path: list[str]) -> Any:
    for name in path:
        defaults = defaults[name]
    return defaults


def _schema(root: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    found = root
    for name in path:
        found = found["properties"][name]
        if "$ref" in found:
            found = root["definitions"][found["$ref"].rpartition("/")[2]]
    return found

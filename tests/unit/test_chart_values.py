"""The generated page of the chart's values: comments become meanings, and none may be missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chart_values import CHART, chart_values

SCHEMA: dict[str, Any] = {
    "properties": {
        "image": {"properties": {"tag": {"type": "string"}}},
        "resources": {"type": "object"},
    }
}


def test_comments_become_the_meaning_of_the_value_below() -> None:
    text = "# Page.\n\n# Image.\nimage:\n  # Tag.\n  # Empty: none.\n  tag: ''\n# Limits.\nresources:\n  cpu: 1\n"
    found = [(value.path, value.meaning, value.default) for value in chart_values(text, SCHEMA)]
    assert found == [
        ("image", "Image.", {"tag": ""}),
        ("image.tag", "Tag. Empty: none.", ""),
        ("resources", "Limits.", {"cpu": 1}),
    ]


def test_a_value_without_a_comment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"image\.tag has no comment"):
        list(chart_values("# Image.\nimage:\n  tag: ''\n", SCHEMA))


def test_every_value_of_the_schema_has_a_default_in_the_chart() -> None:
    schema = json.loads(Path(CHART / "values.schema.json").read_text())
    found = {value.path for value in chart_values((CHART / "values.yaml").read_text(), schema)}

    def paths(part: Any, path: str) -> set[str]:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        inner = part.get("properties", {})
        return {path} | {item for name in inner for item in paths(inner[name], f"{path}.{name}".strip("."))}

    assert paths(schema, "") - {"", "global"} == found

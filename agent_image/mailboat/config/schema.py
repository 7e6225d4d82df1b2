"""JSON Schema (2020-12) of the configuration's document: for editors, for users' checks, for the operator's tests."""

from __future__ import annotations

import types
from typing import Any, Final

from mailboat.config.decoder import plain
from mailboat.config.document import Config
from mailboat.config.section_keys import REQUIRED, Declaration, keys_of

SCHEMA_FILE: Final = "configuration.schema.json"
"""Name of the generated file in `docs/`."""

SCHEMA_ID: Final = f"https://raw.githubusercontent.com/mailboat-dev/mailboat/main/docs/{SCHEMA_FILE}"
"""Where editors load the schema from; validators use it as the schema's identity and load nothing."""

_TYPES: Final = types.MappingProxyType({str: "string", int: "integer", float: "number", bool: "boolean"})


def json_schema() -> dict[str, Any]:
    """The schema of the whole document."""
    schema = _section_schema(Config)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "Mailboat configuration",
        **schema,
    }


def _section_schema(record: type) -> dict[str, Any]:
    keys = list(keys_of(record))
    schema: dict[str, Any] = {
        "type": "object",
        "description": record.__doc__,
        "additionalProperties": False,
        "properties": {key.name: _key_schema(key) for key in keys},
    }
    required = [key.name for key in keys if key.default is REQUIRED]
    return {**schema, "required": required} if required else schema


def _key_schema(key: Declaration) -> dict[str, Any]:
    schema = _value_schema(key)
    if key.is_list:
        schema = {"type": "array", "items": schema}
    elif key.is_section:
        return {**schema, "type": ["object", "null"]}  # null is nothing said, all defaults
    elif key.is_nullable:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
    schema["description"] = key.setting.text
    if key.default is not REQUIRED:
        schema["default"] = list(key.default) if key.is_list else plain(key.default)
    return schema


def _value_schema(key: Declaration) -> dict[str, Any]:
    if key.is_section:
        return _section_schema(key.kind)
    if key.is_choice:
        return {"type": "string", "enum": list(map(str, key.kind))}
    schema: dict[str, Any] = {"type": _TYPES[key.kind]}
    ends = {"minimum": key.setting.minimum, "maximum": key.maximum}
    return {**schema, **{name: end for name, end in ends.items() if end is not None}}

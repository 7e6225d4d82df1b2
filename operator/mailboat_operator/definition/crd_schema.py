"""Structural schemas of the records, as the API server checks by them: OpenAPI with Kubernetes' own extensions.

Each text, list and mapping has a largest size, so that the cost of the rules is bounded. What a text must look like is
a rule with a message in words instead of a pattern, which would be answered with the pattern alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from mailboat.config.section_keys import REQUIRED, FieldShape

from mailboat_operator.definition.encoder import encode, encode_field
from mailboat_operator.definition.fields import RecordField, Rule, keys_of, renamed_of, rules_of

_LARGEST: Final = 2**31 - 1


def spec_schema(record: type) -> dict[str, Any]:
    """The schema of a spec: with defaults, and with all rules."""
    return {"description": record.__doc__, **_section(record, is_asked=True)}


def status_schema(record: type) -> dict[str, Any]:
    """The schema of a status: what the operator writes, so without defaults and rules."""
    return {"description": record.__doc__, **_section(record, is_asked=False)}


def validations(rules: tuple[Rule, ...]) -> list[dict[str, str]]:
    """Rules as a schema has them."""
    return [
        {"rule": rule.expression, "message": rule.message} | ({} if rule.field is None else {"fieldPath": rule.field})
        for rule in rules
    ]


def _section(record: type, *, is_asked: bool) -> dict[str, Any]:
    keys = keys_of(record)
    schema: dict[str, Any] = {"type": "object"}
    required = [key.name for key in keys if key.default is REQUIRED]
    if required:
        schema["required"] = required
    schema["properties"] = {key.name: _field(key, is_asked=is_asked) for key in keys}
    # The API server drops fields that it does not know: former names stay, with a rule that refuses them.
    schema["properties"] |= {
        renamed.former: _field(renamed.key, is_asked=is_asked) for renamed in renamed_of(record).values()
    }
    rules = validations((*rules_of(record), *_renamed_rules(record))) if is_asked else []
    return {**schema, "x-kubernetes-validations": rules} if rules else schema


def _renamed_rules(record: type) -> Iterator[Rule]:
    for renamed in renamed_of(record).values():
        value = f"self.{renamed.former}"
        former = "" if renamed.default is None else f" || {value} == {json.dumps(renamed.default)}"
        yield Rule(f"!has({value}){former}", renamed.message, f".{renamed.former}")


def _field(key: RecordField, *, is_asked: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.field.text}
    default = default_of(key)
    if is_asked and default is not None:
        schema["default"] = default
    if key.shape is FieldShape.MAPPING:
        return schema | _mapping(key)
    if key.shape is FieldShape.LIST:
        return schema | _list(key, is_asked=is_asked)
    return schema | _value(key, is_asked=is_asked)


def default_of(key: RecordField) -> Any:
    """The default as a manifest would say it; None if absent, or nothing to say."""
    if key.default in (REQUIRED, None, (), {}, ""):
        return None
    if not key.is_section:
        return encode_field(key, key.default)
    if any(inner.default is REQUIRED for inner in keys_of(key.kind)):
        return encode(key.default)
    return {} if any(default_of(inner) is not None for inner in keys_of(key.kind)) else None


def _mapping(key: RecordField) -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": key.field.max_items,
        "additionalProperties": {"type": "string", "maxLength": key.field.max_length},
    }


def _list(key: RecordField, *, is_asked: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", "maxItems": key.field.max_items}
    if key.field.min_items:
        schema["minItems"] = key.field.min_items
    if key.field.key is None:
        # entries without a key have no identity: one client owns the list as a whole
        schema["x-kubernetes-list-type"] = "atomic"
    elif key.is_section:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key.field.key]}
    else:
        schema["x-kubernetes-list-type"] = "set"
    return {**schema, "items": _value(key, is_asked=is_asked)}


def _value(key: RecordField, *, is_asked: bool) -> dict[str, Any]:
    if key.is_section:
        return _section(key.kind, is_asked=is_asked)
    if key.is_choice:
        return {"type": "string", "enum": [str(choice) for choice in key.kind]}
    if key.is_time:
        return {"type": "string", "format": "date-time"}
    if key.kind is bool:
        return {"type": "boolean"}
    return _text(key, is_asked=is_asked) if key.kind is str or key.field.form else _number(key)


def _text(key: RecordField, *, is_asked: bool) -> dict[str, Any]:
    form = key.field.form
    if form is None:
        return {"type": "string", "maxLength": key.field.max_length}
    schema: dict[str, Any] = {"type": "string", "maxLength": form.max_length}
    if is_asked:
        rule = Rule(f'self.matches(r"{form.pattern}")', f"must be {form.meaning}")
        schema["x-kubernetes-validations"] = validations((rule,))
    return schema


def _number(key: RecordField) -> dict[str, Any]:
    largest = key.field.maximum
    is_long = largest is None or largest > _LARGEST
    schema: dict[str, Any] = {"type": "integer", "format": "int64" if is_long else "int32"}
    if key.field.minimum is not None:
        schema["minimum"] = key.field.minimum
    return schema if largest is None else {**schema, "maximum": largest}

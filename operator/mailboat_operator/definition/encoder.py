"""Writes records as manifests: specs of Topics that a Journal makes, and the status of every kind.

None and empty values are left out; the decoder reads back the same record. Times are written in UTC with seconds, as
Kubernetes writes them. Called by the plans' executor and the tests.
"""

from __future__ import annotations

import enum
from datetime import UTC, datetime
from typing import Any

from mailboat.config.section_keys import FieldShape

from mailboat_operator.definition.fields import RecordField, keys_of


def encode(record: object) -> dict[str, Any]:
    """The document of a spec, a status or a section of one, without None and empty values."""
    values = ((key, getattr(record, key.attribute)) for key in keys_of(type(record)))
    return {key.name: encode_field(key, value) for key, value in values if value is not None and value not in ((), {})}


def encode_field(key: RecordField, value: Any) -> Any:
    """The document of one field's value."""
    if key.shape is FieldShape.MAPPING:
        return dict(value)
    if key.shape is FieldShape.LIST:
        return [_encode_value(key, item) for item in value]
    return _encode_value(key, value)


def _encode_value(key: RecordField, value: Any) -> Any:
    if key.is_section:
        return encode(value)
    if isinstance(value, enum.StrEnum):
        return str(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return value if key.field.form is None else key.field.form.write(value)

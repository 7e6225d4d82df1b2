"""Reads custom resources, as hostile input from any client.

The API server has checked most of it by the same records, if the definitions that it holds are ours and were there when
the object was made. Nothing here trusts in that: an object is either wholly as its kind says, or it is refused with the
field and the reason, and nothing else is made of it. What a message quotes is short, and never a variable's value.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from operator import gt, lt
from typing import Any, Final, TypeVar, cast

from mailboat.config.section_keys import REQUIRED, FieldShape
from mailboat.errors import ResourceInvalidError

from mailboat_operator.definition import API_VERSION
from mailboat_operator.definition.fields import RecordField, keys_of, renamed_of, rules_of
from mailboat_operator.definition.kind import Kind
from mailboat_operator.definition.metadata import Metadata

R = TypeVar("R")

_QUOTED: Final = 60
_PLAIN_NAMES: Final = {str: "a string", int: "an integer", float: "a number", bool: "a boolean"}
_NUMBERS: Final = (int, float)
# ASCII control characters but tab, line feed and carriage return; half surrogates cannot be encoded.
_UNWANTED: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def decode_one_of(kinds: Mapping[str, Kind[Any]], manifest: object) -> Any:
    """Read an object of one of the kinds, as the API server or YAML gave it. Raises: ResourceInvalidError."""
    name = _mapping(manifest, "the object").get("kind")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ResourceInvalidError(f"kind is {_quote(name)}, but must be one of {', '.join(kinds)}", field="kind")
    return decode_as(kind, manifest)


def decode_as(kind: Kind[R], manifest: object) -> R:
    """Read an object of one kind.

    What of a status can't be understood counts as not there, and the rest holds: an operator of another version may
    have written it, and must make this one forget nothing that both know.

    Raises:
        ResourceInvalidError: Naming the field.
    """
    document = _mapping(manifest, "the object")
    for name, wanted in (("apiVersion", API_VERSION), ("kind", kind.name)):
        if document.get(name) != wanted:
            raise ResourceInvalidError(f"{name} is {_quote(document.get(name))}, but must be {wanted}", field=name)
    for name in document.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        raise ResourceInvalidError(f"there is no field {_quote(name)}", field=str(name)[:_QUOTED])
    metadata = decode_metadata(document.get("metadata"))
    spec: Any = decode_record(kind.spec, document.get("spec", {}), "spec")
    resource = kind.resource(metadata=metadata, spec=spec, status=_status(kind, document.get("status")))  # type: ignore[call-arg]  # each resource has these three
    for rule in kind.rules:
        if rule.is_kept is not None and not rule.is_kept(resource):
            raise ResourceInvalidError(rule.message, field=(rule.field or ".metadata.name").lstrip("."))
    return resource


def decode_metadata(document: object) -> Metadata:
    """Read the parts of an object's metadata that the operator uses. Raises: ResourceInvalidError."""
    found = _mapping(document, "metadata")
    return Metadata(
        name=_text(found, "name", is_needed=True),
        namespace=_text(found, "namespace") or "default",
        uid=_text(found, "uid"),
        generation=_whole(found, "generation"),
        created_at=_time(found, "creationTimestamp"),
        deleted_at=_time(found, "deletionTimestamp"),
        labels=_texts(found, "labels"),
        annotations=_texts(found, "annotations"),
        finalizers=_finalizers(found),
        owner_uid=_owner_uid(found),
    )


def decode_record(record: type[R], document: object, path: str) -> R:
    """Read one section, `path` being its place. Raises: ResourceInvalidError."""
    found = _mapping(document, path)
    known = {key.name: key for key in keys_of(record)}
    for name, value in found.items():
        if name in renamed_of(record):
            if value != renamed_of(record)[name].default:
                raise ResourceInvalidError(f"{path}: {renamed_of(record)[name].message}", field=f"{path}.{name}")
            continue
        if name not in known:
            raise ResourceInvalidError(f"{path} has no field {_quote(name)}", field=f"{path}.{str(name)[:_QUOTED]}")
    values = {}
    for key in known.values():
        value = found.get(key.name)
        if value is None and key.default is REQUIRED:
            raise ResourceInvalidError(f"{path}.{key.name} is required", field=f"{path}.{key.name}")
        values[key.attribute] = key.default if value is None else _decode_field(key, value, f"{path}.{key.name}")
    made = record(**values)
    for rule in rules_of(record):
        if rule.is_kept is not None and not rule.is_kept(made):
            raise ResourceInvalidError(f"{path}: {rule.message}", field=path + (rule.field or ""))
    return made


def _status(kind: Kind[Any], document: object) -> Any:
    """What of a status can be understood: of an operator of another version, or forged, some of it may not be."""
    found = document if isinstance(document, Mapping) else {}
    values: dict[str, Any] = {}
    for key in keys_of(kind.status):
        if found.get(key.name) is not None:
            with suppress(ResourceInvalidError):
                values[key.attribute] = _decode_field(key, _known_part(key, found[key.name]), f"status.{key.name}")
    return kind.status(**values)


def _known_part(key: RecordField, value: object) -> object:
    """Without the fields that this version does not know."""
    if isinstance(value, list):
        return [_known_part(key, item) for item in value]
    if not key.is_section or not isinstance(value, Mapping):
        return value
    return {inner.name: _known_part(inner, value[inner.name]) for inner in keys_of(key.kind) if inner.name in value}


def _decode_field(key: RecordField, value: object, path: str) -> Any:
    if key.shape is FieldShape.ONE:
        return _decode_value(key, value, path)
    if key.shape is FieldShape.MAPPING:
        return _decode_mapping(key, value, path)
    if not isinstance(value, list):
        raise ResourceInvalidError(f"{path} must be a list", field=path)
    _check_count(key, len(value), path)
    made = tuple(_decode_value(key, one, f"{path}[{number}]") for number, one in enumerate(value))
    if key.field.key is not None:
        _check_unique(key, made, path)
    return made


def _decode_mapping(key: RecordField, value: object, path: str) -> dict[str, str]:
    found = _mapping(value, path)
    _check_count(key, len(found), path)
    for name, one in found.items():
        if not isinstance(one, str) or len(one) > key.field.max_length:
            text = f"{path}: the value of {_quote(name)} must be a string of at most {key.field.max_length} characters"
            raise ResourceInvalidError(text, field=path)
        _check_form(key, name, f"{path}, each key,")
    return dict(found)


def _decode_value(key: RecordField, value: object, path: str) -> Any:
    if key.is_section:
        return decode_record(key.kind, value, path)
    if key.is_choice:
        return _decode_choice(key.kind, value, path)
    if key.is_time:
        return _parse_time(value, path)
    if key.field.form is not None:
        _check_form(key, value, path)
        return key.field.form.read(cast("str", value))
    kinds = _NUMBERS if key.kind is float else (key.kind,)
    # not isinstance: True would be an integer
    if type(value) not in kinds:
        raise ResourceInvalidError(f"{path} must be {_PLAIN_NAMES[key.kind]}", field=path)
    if isinstance(value, str):
        _check_text(value, key.field.max_length, path)
    else:
        _check_range(key, cast("float", value), path)
    return value


def _decode_choice(kind: type[enum.StrEnum], value: object, path: str) -> enum.StrEnum:
    if isinstance(value, str) and value in set(kind):
        return kind(value)
    raise ResourceInvalidError(f"{path} is {_quote(value)}, but must be one of {', '.join(kind)}", field=path)


def _check_form(key: RecordField, value: object, path: str) -> None:
    form = key.field.form
    if form is None:
        return
    if not isinstance(value, str) or len(value) > form.max_length or not re.fullmatch(form.pattern, value):
        raise ResourceInvalidError(f"{path} is {_quote(value)}, but must be {form.meaning}", field=path)


def _check_text(value: str, max_length: int, path: str) -> None:
    if len(value) > max_length:
        text = f"{path} has {len(value)} characters, the limit is {max_length}"
        raise ResourceInvalidError(text, field=path, limit=max_length)
    if _UNWANTED.search(value):
        raise ResourceInvalidError(f"{path} has a control character", field=path)


def _check_range(key: RecordField, value: float, path: str) -> None:
    for limit, is_beyond in ((key.field.minimum, lt), (key.field.maximum, gt)):
        if limit is not None and is_beyond(value, limit):
            text = f"{path} is {str(value)[:_QUOTED]}, the allowed range is {_range_text(key)}"
            raise ResourceInvalidError(text, field=path, limit=limit)


def _range_text(key: RecordField) -> str:
    if key.field.maximum is None:
        return f"{key.field.minimum} and more"
    return f"{key.field.minimum} to {key.field.maximum}"


def _check_count(key: RecordField, count: int, path: str) -> None:
    if not key.field.min_items <= count <= key.field.max_items:
        text = f"{path} has {count} entries, allowed are {key.field.min_items} to {key.field.max_items}"
        raise ResourceInvalidError(text, field=path, limit=key.field.max_items)


def _check_unique(key: RecordField, made: tuple[Any, ...], path: str) -> None:
    names = [getattr(item, key.field.key) if key.field.key else item for item in made]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ResourceInvalidError(f"{path}[{number}]: duplicate {_quote(name)}", field=f"{path}[{number}]")


def _mapping(value: object, path: str) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    raise ResourceInvalidError(f"{path} must be a mapping of fields to values", field=path)


def _text(found: Mapping[Any, Any], name: str, *, is_needed: bool = False) -> str:
    value = found.get(name)
    if value is None and not is_needed:
        return ""
    if not isinstance(value, str) or not value or len(value) > 253:
        raise ResourceInvalidError(f"metadata.{name} must be a string of 1 to 253 characters", field=f"metadata.{name}")
    return value


def _whole(found: Mapping[Any, Any], name: str) -> int:
    value = found.get(name, 0)
    if type(value) is not int:
        raise ResourceInvalidError(f"metadata.{name} must be an integer", field=f"metadata.{name}")
    return value


def _texts(found: Mapping[Any, Any], name: str) -> dict[str, str]:
    value = found.get(name) or {}
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise ResourceInvalidError(f"metadata.{name} must be a mapping of names to strings", field=f"metadata.{name}")
    return dict(value)


def _owner_uid(found: Mapping[Any, Any]) -> str:
    owners = found.get("ownerReferences") or []
    is_list = isinstance(owners, list) and all(isinstance(owner, Mapping) for owner in owners)
    if not is_list:
        raise ResourceInvalidError(
            "metadata.ownerReferences must be a list of objects", field="metadata.ownerReferences"
        )
    return next((str(owner.get("uid")) for owner in owners if owner.get("controller")), "")


def _finalizers(found: Mapping[Any, Any]) -> tuple[str, ...]:
    value = found.get("finalizers") or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ResourceInvalidError("metadata.finalizers must be a list of strings", field="metadata.finalizers")
    return tuple(value)


def _time(found: Mapping[Any, Any], name: str) -> datetime | None:
    value = found.get(name)
    return None if value is None else _parse_time(value, f"metadata.{name}")


def _parse_time(value: object, path: str) -> datetime:
    if isinstance(value, datetime):  # YAML and some clients parse times
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    try:
        made = datetime.fromisoformat(value) if isinstance(value, str) and len(value) <= 40 else None
    except ValueError:
        made = None
    if made is None or made.tzinfo is None:
        raise ResourceInvalidError(f"{path} must be a point in time with its zone", field=path)
    return made


def _quote(value: object) -> str:
    if isinstance(value, str | int | float | bool):
        text = repr(value[: _QUOTED + 1] if isinstance(value, str) else value)
        return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"
    return "nothing" if value is None else "a list or mapping"

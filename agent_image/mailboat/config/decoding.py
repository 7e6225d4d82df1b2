"""Reads and writes the configuration's document: plain mappings and lists, as YAML and JSON know them.

A key that nobody knows is refused with the nearest one that somebody does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

from mailboat.config.document import Config
from mailboat.config.keys import REQUIRED, Key, keys_of
from mailboat.errors import UsageError

R = TypeVar("R")


class ConfigInvalidError(UsageError):
    """The configuration has a key that does not exist, or a value that can't be meant. Nothing was started.

    The message names the key. `docs/configuration.md` lists all keys; `mailboat init --print` shows the defaults.
    """


def decode_config(document: object, *, where: str = "the configuration") -> Config:
    """Read a document, as YAML or JSON gave it. An empty one is all defaults.

    Args:
        document: A mapping, or None.
        where: Names the document in messages: its file.

    Raises:
        ConfigInvalidError: Naming the key, with the nearest known one where there is one.
    """
    return _decode_record(Config, {} if document is None else document, where, "")


def encode_config(config: Config) -> dict[str, Any]:
    """The document of a configuration, every key written out: plain mappings, lists, texts, numbers, truth values."""
    return _encode_record(config)


def encode_changes(config: Config) -> dict[str, Any]:
    """The same document without what it says of defaults: short, and quick to decode."""
    return _without(encode_config(config), encode_config(Config()))


def _without(document: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for name, value in document.items():
        same: Any = known.get(name)
        if value != same:
            are_sections = isinstance(value, dict) and isinstance(same, dict)
            changes[name] = _without(value, same) if are_sections else value
    return changes


def _decode_record(kind: type[R], document: object, where: str, prefix: str) -> R:
    if not isinstance(document, Mapping):
        raise ConfigInvalidError(f"{where}: {prefix.rstrip('.') or 'the document'} is not a mapping of keys to values")
    known = {key.name: key for key in keys_of(kind)}
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            raise _unknown_key(where, prefix, str(name), list(known))
        values[name] = _decode_key(known[name], value, where, f"{prefix}{name}")
    for key in known.values():
        if key.default is REQUIRED and key.name not in values:
            raise ConfigInvalidError(f"{where}: {prefix}{key.name} is missing", key=f"{prefix}{key.name}")
    return kind(**values)


def _unknown_key(where: str, prefix: str, name: str, known: list[str]) -> ConfigInvalidError:
    import difflib  # noqa: PLC0415  # for the unlucky only

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known here: {', '.join(known)}"
    return ConfigInvalidError(f"{where}: there is no key {prefix}{name}", next_step=hint, key=f"{prefix}{name}")


def _decode_key(key: Key, value: object, where: str, path: str) -> Any:
    if value is None:
        if key.is_nullable:
            return None
        if key.is_section and not key.is_list and key.default is not REQUIRED:
            return key.default  # a section with nothing below it but comments
        raise ConfigInvalidError(f"{where}: {path} can't be null", key=path)
    if not key.is_list:
        return _decode_value(key, value, where, path)
    if not isinstance(value, list):
        raise ConfigInvalidError(f"{where}: {path} is {value!r}, but must be a list", key=path)
    return tuple(_decode_value(key, one, where, f"{path}[{number}]") for number, one in enumerate(value))


def _decode_value(key: Key, value: object, where: str, path: str) -> Any:
    if key.is_section:
        return _decode_record(key.kind, value, where, f"{path}.")
    if key.is_choice:
        return _decode_choice(key.kind, value, where, path)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key.kind is float and is_number:
        value = float(cast("float", value))
    if type(value) is not key.kind:
        raise ConfigInvalidError(f"{where}: {path} is {value!r}, but must be {article_of(key.kind)}", key=path)
    smallest = key.setting.minimum
    if smallest is not None and not cast("float", value) >= smallest:
        raise ConfigInvalidError(f"{where}: {path} is {value!r}, the smallest allowed is {smallest:g}", key=path)
    return value


def _decode_choice(kind: type[enum.StrEnum], value: object, where: str, path: str) -> enum.StrEnum:
    try:
        return kind(str(value))
    except ValueError as error:
        message = f"{where}: {path} is {value!r}, but must be one of {', '.join(kind)}"
        raise ConfigInvalidError(message, key=path) from error


def article_of(kind: type) -> str:
    """What a value of this kind is called in a sentence."""
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _encode_record(record: object) -> dict[str, Any]:
    return dict(_encoded_keys(record))


def _encoded_keys(record: object) -> Iterator[tuple[str, Any]]:
    for key in keys_of(type(record)):
        value = getattr(record, key.name)
        yield key.name, [_encode_value(key, one) for one in value] if key.is_list else _encode_value(key, value)


def _encode_value(key: Key, value: object) -> object:
    if value is None:
        return None
    return _encode_record(value) if key.is_section else plain(value)


def plain(value: object) -> object:
    """A value as JSON and YAML know it."""
    return str(value) if isinstance(value, enum.StrEnum) else value

"""Reads and writes the configuration's document: plain mappings and lists, as YAML and JSON know them.

An unknown key is refused with the nearest known one. All mistakes of a document are reported together,
each with its line where the document is a file.
"""

from __future__ import annotations

import difflib
import enum
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from mailboat.config.document import Config
from mailboat.config.section_keys import REQUIRED, Declaration, keys_of
from mailboat.errors import MailboatError, UsageError

R = TypeVar("R")

_TOLD_MISTAKES: Final = 10
_SHOWN_CHARACTERS: Final = 80

_RENAMED: Final = types.MappingProxyType(
    {
        "are_collisions_refused": "refuse_collisions",
        "is_durable": "durable",
        "is_editable": "editable",
        "is_host_checked": "verify_hostname",
        "is_path_style": "path_style",
    }
)
"""Former names of keys, each with the present one."""

LineOf = Callable[[str], int | None]
"""The line of a key in the document's file; None where it is not known."""


class ConfigInvalidError(UsageError):
    """The configuration has an unknown key or an invalid value. Nothing was started.

    The message names the key. `docs/configuration.md` lists all keys; `mailboat init --print` prints the defaults.
    """


class Mistake(NamedTuple):
    """A key of a document, and a sentence about it; `next_step` is what to do, where there is something to say."""

    key: str
    text: str
    next_step: str | None = None


def mistakes_of(key: str, parse: Callable[..., object], *arguments: object) -> Iterator[Mistake]:
    """The mistake of a value that its parser refuses, if it does."""
    try:
        parse(*arguments)
    except MailboatError as error:
        yield Mistake(key, error.message.removeprefix(f"{key} "), error.next_step)


def _unknown_line(_key: str) -> int | None:
    return None


def invalid_config(where: str, mistakes: Sequence[Mistake], line_of: LineOf = _unknown_line) -> ConfigInvalidError:
    """The error for all mistakes of a document: one as a sentence, several as a numbered list; each with its line."""
    texts = [f"{_place(where, mistake.key, line_of)}: {mistake.text}" for mistake in mistakes[:_TOLD_MISTAKES]]
    if len(mistakes) == 1:
        return ConfigInvalidError(texts[0], next_step=mistakes[0].next_step, key=mistakes[0].key or None)
    hints = [f" ({mistake.next_step})" if mistake.next_step else "" for mistake in mistakes]
    listed = {str(number): text + hint for number, (text, hint) in enumerate(zip(texts, hints, strict=False), 1)}
    more = len(mistakes) - len(texts)
    return ConfigInvalidError(
        f"{where} has {len(mistakes)} mistakes" + (f"; the first {len(texts)}:" if more else ""), **listed
    )


def _place(where: str, key: str, line_of: LineOf) -> str:
    line = line_of(key)
    return where if line is None else f"{where}:{line}"


def decode_config(document: object, *, where: str = "the configuration", line_of: LineOf = _unknown_line) -> Config:
    """Read a document, as YAML or JSON gave it. An empty one is all defaults.

    Args:
        document: A mapping, or None.
        where: Names the document in messages: its file.
        line_of: The lines of its keys.

    Raises:
        ConfigInvalidError: Naming each key that is wrong, with the nearest known one where there is one.
    """
    return decode_record(Config, {} if document is None else document, where=where, line_of=line_of)


def decode_record(kind: type[R], document: object, *, where: str, line_of: LineOf = _unknown_line) -> R:
    """Read a document of another kind by the same rules. Raises: ConfigInvalidError."""
    mistakes: list[_MistakeError] = []
    try:
        record = _decode_record(kind, document, "", mistakes)
    except _MistakeError as mistake:
        raise invalid_config(where, [mistake.mistake(is_alone=True)], line_of) from mistake
    if record is None:
        texts = [mistake.mistake(is_alone=len(mistakes) == 1) for mistake in mistakes]
        raise invalid_config(where, texts, line_of)
    return record


def encode_config(config: Config) -> dict[str, Any]:
    """The document of a configuration, every key written out: plain mappings, lists, texts, numbers, truth values."""
    return encode_record(config)


def encode_record(record: object) -> dict[str, Any]:
    """The document of a record, every key written out."""
    return _encode_section(type(record), record)


def _encode_section(kind: type, record: object) -> dict[str, Any]:
    """The keys of `kind`, which `record` is or extends: the operator's records of sections do."""
    document: dict[str, Any] = {}
    for key in keys_of(kind):
        value = getattr(record, key.name)
        document[key.name] = [_encode_value(key, item) for item in value] if key.is_list else _encode_value(key, value)
    return document


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


class _MistakeError(Exception):
    """An invalid key or value; `near` is the most similar key, `known` are the valid ones."""

    def __init__(self, path: str, text: str, near: str | None = None, known: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.path, self.text, self.near, self.known = path, text, near, ", ".join(known)

    def mistake(self, *, is_alone: bool) -> Mistake:
        """The mistake for people; all keys that are known are listed for one that is alone only."""
        hint = None
        if self.near:
            hint = f"did you mean {self.near}?"
        elif is_alone and self.known:
            hint = f"known here: {self.known}"
        return Mistake(self.path, self.text, hint)


def _decode_record(kind: type[R], document: object, prefix: str, mistakes: list[_MistakeError]) -> R | None:
    """Decode a record; None after mistakes, which are collected and reported together."""
    if not isinstance(document, Mapping):
        path = prefix.rstrip(".")
        raise _MistakeError(path, f"{path or 'the document'} is not a mapping of keys to values")
    known, made_before = {key.name: key for key in keys_of(kind)}, len(mistakes)
    values: dict[str, Any] = {}
    for name, value in document.items():
        try:
            if name not in known:
                raise _unknown_key(prefix, str(name), list(known))
            values[name] = _decode_key(known[name], value, f"{prefix}{name}", mistakes)
        except _MistakeError as mistake:
            mistakes.append(mistake)
    missing = [f"{prefix}{key.name}" for key in known.values() if key.default is REQUIRED and key.name not in document]
    mistakes += [_MistakeError(path, f"{path} is missing") for path in missing]
    return kind(**values) if len(mistakes) == made_before else None


def _unknown_key(prefix: str, name: str, known: list[str]) -> _MistakeError:
    new = _RENAMED.get(name)
    if new in known:
        return _MistakeError(f"{prefix}{name}", f"{prefix}{name} was renamed: use {prefix}{new}")
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return _MistakeError(
        f"{prefix}{name}", f"there is no key {prefix}{name}", f"{prefix}{near[0]}" if near else None, known
    )


def _decode_key(key: Declaration, value: object, path: str, mistakes: list[_MistakeError]) -> Any:
    if value is None:
        if key.is_nullable:
            return None
        if key.is_section and not key.is_list and key.default is not REQUIRED:
            return key.default  # a section with nothing below it but comments
        raise _MistakeError(path, f"{path} can't be null")
    if not key.is_list:
        return _decode_value(key, value, path, mistakes)
    if not isinstance(value, list):
        raise _MistakeError(path, f"{path} is {_shown(value)}, but must be a list")
    return tuple(_decode_value(key, one, f"{path}[{number}]", mistakes) for number, one in enumerate(value))


def _decode_value(key: Declaration, value: object, path: str, mistakes: list[_MistakeError]) -> Any:
    if key.is_section:
        return _decode_record(key.kind, value, f"{path}.", mistakes)
    if key.is_choice:
        return _decode_choice(key.kind, value, path)
    is_float = key.kind is float and type(value) is int
    if type(value) is not key.kind and not is_float:
        raise _MistakeError(path, f"{path} is {_shown(value)}, but must be {article_of(key.kind)}")
    _refuse_beyond(key, value, path)
    return float(cast("int", value)) if is_float else value


def _refuse_beyond(key: Declaration, value: object, path: str) -> None:
    """Refuse a number out of its range; nan is in none."""
    least, most = key.setting.minimum, key.maximum
    if least is not None and not cast("float", value) >= least:
        raise _MistakeError(path, f"{path} is {_shown(value)}, the smallest allowed is {least:.15g}")
    if most is not None and not cast("float", value) <= most:
        raise _MistakeError(path, f"{path} is {_shown(value)}, the largest allowed is {most:.16g}")


def _decode_choice(kind: type[enum.StrEnum], value: object, path: str) -> enum.StrEnum:
    # YAML 1.1 reads a bare `off` as false
    text = "off" if value is False else str(value)
    try:
        return kind(text)
    except ValueError as error:
        raise _MistakeError(path, f"{path} is {_shown(value)}, but must be one of {', '.join(kind)}") from error


def _shown(value: object) -> str:
    """A value in a message, shortened."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a very large integer"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def article_of(kind: type) -> str:
    """What a value of this kind is called in a sentence."""
    return {str: "a string", int: "an integer", float: "a number", bool: "a boolean"}[kind]


def _encode_value(key: Declaration, value: object) -> object:
    if value is None:
        return None
    return _encode_section(key.kind, value) if key.is_section else plain(value)


def plain(value: object) -> object:
    """A value as JSON and YAML know it."""
    return str(value) if isinstance(value, enum.StrEnum) else value

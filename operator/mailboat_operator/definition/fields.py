"""What the records of the kinds say of themselves: each field with its kind, form, bounds, rules and explanation.

A record is a frozen dataclass whose fields are annotated with `Field`; rules over several fields stand in its class
variable `RULES`, and fields that had another name in `RENAMED`: the API server would drop them silently. A rule is
written twice, for the API server in CEL and for the decoder in Python, side by side, and the tests hold both to the
same manifests.

A record that extends a section of the configuration lists its fields in `FIELDS`, in the order of manifests: type,
default, text and bounds of a setting are the section's, as far as the record does not differ. The record is a section,
so agents are configured with it; the section's other settings are not in manifests.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Final, NamedTuple

from mailboat.config import section_keys
from mailboat.config.section_keys import Declaration, FieldShape, Setting, declarations
from mailboat.frozen import Frozen

LONGEST_TEXT: Final = 1024
"""Of a text that says nothing of its length."""


class Rule(Frozen):
    """What a value must fulfil beyond its form.

    Attributes:
        expression: In CEL; `self` is the value, `oldSelf` the one before.
        message: What is wrong when it does not hold, for the person who wrote the manifest.
        field: Path of the field to blame, relative to the value, such as `.replicas`.
        is_kept: The same in Python, over the record; None for a transition, which only the API server sees.
    """

    expression: str
    message: str
    field: str | None = None
    is_kept: Callable[[Any], bool] | None = None


class Renamed(NamedTuple):
    """A field that had another name.

    Attributes:
        former: The name that manifests used.
        name: The name now.
        default: The former default. The API server stored it in objects that did not set the field, so it is ignored;
            any other value is refused. None: it was a list of texts, of which the API server stored nothing.
    """

    former: str
    name: str
    default: bool | str | None

    @property
    def message(self) -> str:
        """Why the former name is refused."""
        return f"{self.former} was renamed: use {self.name}"

    @property
    def key(self) -> RecordField:
        """The former field, as the schema and the page describe it."""
        kind = bool if isinstance(self.default, bool) else str
        shape = FieldShape.LIST if self.default is None else FieldShape.ONE
        return RecordField(self.former, self.former, kind, shape, Field(f"Renamed to {self.name}."), default=None)


def unchangeable(name: str, why: str) -> Rule:
    """A transition rule of a record: the field, optional or not, stays as it was."""
    expression = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})"
    return Rule(expression, f"{name} can't be changed: {why}", f".{name}")


class Form(Frozen):
    """How a text looks, and what is made of it.

    Attributes:
        pattern: A regular expression over the whole text, of what RE2 and Python both understand.
        meaning: What the text must be, in words: it ends the sentence "… must be".
        max_length: In characters.
        read: Makes the value of a text that fits.
        write: Makes the text of a value.
        ending: What the name of the attribute ends in, and the manifest's name does not: the unit.
    """

    pattern: str
    meaning: str
    max_length: int
    read: Callable[[str], Any] = str
    write: Callable[[Any], str] = str
    ending: str = ""


class Field(Frozen):
    """The declaration of one field.

    Attributes:
        text: One or two sentences for people: `kubectl explain` shows them. Empty: those of the section's setting.
        form: How the text looks, or each text of a list, or each key of a mapping.
        minimum: The smallest number allowed.
        maximum: The largest.
        max_length: Characters of a text, or of each text of a list or mapping, without a form.
        min_items: The least number of entries of a list.
        max_items: The most entries of a list or mapping.
        key: The attribute that identifies the records of a list; a text occurs once in a list.
        rules: Further conditions of the value.
        name: How manifests call it, where that is not the attribute in camel case.
    """

    text: str = ""
    form: Form | None = None
    minimum: float | None = None
    maximum: float | None = None
    max_length: int = LONGEST_TEXT
    min_items: int = 0
    max_items: int = 100
    key: str | None = None
    rules: tuple[Rule, ...] = ()
    name: str | None = None


class RecordField(NamedTuple):
    """One field of a record, as the record declares it.

    Attributes:
        attribute: Its name in Python.
        name: Its name in manifests.
        kind: Of the value, or of each: str, int, float, bool, datetime, a StrEnum, a record, or `object` for anything.
        shape: One value, a list, or a mapping from texts.
        field: Its declaration.
        default: What holds when the manifest does not say; `REQUIRED` where it must.
    """

    attribute: str
    name: str
    kind: Any
    shape: FieldShape
    field: Field
    default: Any

    @property
    def is_section(self) -> bool:
        """Whether the value, or each, has fields of its own."""
        return is_dataclass(self.kind)

    @property
    def is_choice(self) -> bool:
        """Whether the value, or each, is one of some words."""
        return isinstance(self.kind, type) and issubclass(self.kind, enum.StrEnum)

    @property
    def is_time(self) -> bool:
        """Whether the value is a point in time."""
        return self.kind is datetime


def keys_of(record: type) -> tuple[RecordField, ...]:
    """The fields of a record that manifests have, in order."""
    return _read_keys(record)


@cache
def _read_keys(record: type) -> tuple[RecordField, ...]:
    declared = {one.name: one for one in declarations(record)}
    listed: Mapping[str, Field] | None = getattr(record, "FIELDS", None)
    if listed is None:
        return tuple(_key(one, one.note) for one in declared.values())
    settings = {key.name: key.setting for key in section_keys.keys_of(record.__mro__[1])}
    if not declared.keys() <= listed.keys() | settings.keys():
        raise TypeError(f"{record.__name__} has fields that FIELDS does not list")
    return tuple(_key(declared[name], _completed(field, settings.get(name))) for name, field in listed.items())


def _completed(field: Field, setting: Setting | None) -> Field:
    """The field with what the configuration says of the same setting, where the field does not say it."""
    if setting is None:
        return field
    text = field.text or setting.text
    # a form has its own bounds: those of the setting are numbers, and the manifest has a text
    if field.form is not None:
        return replace(field, text=text)
    minimum = setting.minimum if field.minimum is None else field.minimum
    maximum = setting.maximum if field.maximum is None else field.maximum
    return replace(field, text=text, minimum=minimum, maximum=maximum)


def _key(declared: Declaration, field: Field | None) -> RecordField:
    if field is None or not field.text:
        raise TypeError(f"field {declared.name} has no description")
    name = _name_of(declared.name, field)
    return RecordField(declared.name, name, declared.kind, declared.shape, field, declared.default)


def renamed_of(record: type) -> Mapping[str, Renamed]:
    """The fields of a record that had another name, by that name."""
    return {renamed.former: renamed for renamed in getattr(record, "RENAMED", ())}


def rules_of(record: type) -> tuple[Rule, ...]:
    """The rules over several fields of a record."""
    return getattr(record, "RULES", ())


def _name_of(attribute: str, declared: Field) -> str:
    if declared.name is not None:
        return declared.name
    ending = declared.form.ending if declared.form is not None else ""
    first, *rest = attribute.removesuffix(ending).split("_")
    return first + "".join(word.capitalize() for word in rest)

"""What records say of themselves: each field with its kind, shape and default; each key of the configuration."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin

from mailboat.frozen import Frozen

DAY_SECONDS: Final = 24 * 3600.0
KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
GIBIBYTE: Final = 1024 * MEBIBYTE

LARGEST_INTEGER: Final = 2**53 - 1
"""Of a key without a maximum of its own: what JSON's readers keep exactly, 8 PiB as a size."""

LARGEST_NUMBER: Final = 1e9
"""The same for numbers: 31 years as a duration. Timers and time stamps overflow not far beyond."""

REQUIRED: Final = object()
"""The default of a key that has none: the document must say it."""


class Setting(NamedTuple):
    """What is said of one key: a sentence, and the smallest and the largest value allowed."""

    text: str
    minimum: float | None = None
    maximum: float | None = None


Section = Frozen
"""A section of the configuration, or a value in it that has keys of its own."""


class FieldShape(enum.Enum):
    """Whether a field has one value or several."""

    ONE = enum.auto()
    LIST = enum.auto()
    MAPPING = enum.auto()


_SHAPES: Final = types.MappingProxyType({tuple: FieldShape.LIST, Mapping: FieldShape.MAPPING})


class Declaration(NamedTuple):
    """A field of a record, as its annotation declares it: a key of a section, a field of a custom resource.

    Attributes:
        name: Its name in Python, and in the configuration.
        kind: Of the value, or of each of several: str, int, float, bool, a StrEnum, a record.
        shape: One value, a list, or a mapping from texts.
        is_nullable: Whether the value may be None.
        note: What `Annotated` adds; None where nothing is added.
        default: What holds when a document does not say; `REQUIRED` where it must.
    """

    name: str
    kind: Any
    shape: FieldShape
    is_nullable: bool
    note: Any
    default: Any

    @property
    def setting(self) -> Setting:
        """What is said of a key of the configuration."""
        return self.note or Setting(self.kind.__doc__ or "")  # a section may leave it to its docstring

    @property
    def is_list(self) -> bool:
        """Whether there are any number of values."""
        return self.shape is FieldShape.LIST

    @property
    def is_section(self) -> bool:
        """Whether the value has keys of its own."""
        return issubclass(self.kind, Section)

    @property
    def maximum(self) -> float | None:
        """The largest value allowed; None for values that are not numbers."""
        largest = {int: LARGEST_INTEGER, float: LARGEST_NUMBER}.get(self.kind)
        return largest if self.setting.maximum is None else self.setting.maximum

    @property
    def is_choice(self) -> bool:
        """Whether the value is one of some words."""
        return issubclass(self.kind, enum.StrEnum)


def keys_of(record: type) -> tuple[Declaration, ...]:
    """The keys of a section, in order."""
    return _read_keys(record)  # mypy takes no generic class as the argument of a cached function


@cache  # reading the hints of all sections takes milliseconds; the operator writes a configuration at each look
def _read_keys(record: type) -> tuple[Declaration, ...]:
    return tuple(declarations(record))


def declarations(record: type) -> Iterator[Declaration]:
    """The fields of a record, in order: of the configuration's sections, and of the operator's custom resources."""
    hints = typing.get_type_hints(record, include_extras=True)
    for field in fields(record):
        kind, note = hints[field.name], None
        if get_origin(kind) is typing.Annotated:
            kind, note = get_args(kind)[:2]
        is_nullable = get_origin(kind) in {types.UnionType, typing.Union}  # the latter where a NewType may be None
        if is_nullable:
            kind = next(option for option in get_args(kind) if option is not types.NoneType)
        shape = _SHAPES.get(get_origin(kind), FieldShape.ONE)
        if shape is not FieldShape.ONE:
            kind = get_args(kind)[0 if shape is FieldShape.LIST else 1]
        kind = getattr(kind, "__supertype__", kind)  # a NewType is the text that it names
        yield Declaration(field.name, kind, shape, is_nullable, note, _default(field))


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return REQUIRED if field.default is MISSING else field.default

"""What the configuration's records say of themselves: each key with its kind, default, range and explanation."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, Final, NamedTuple, dataclass_transform, get_args, get_origin

DAY_SECONDS: Final = 24 * 3600.0
KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
GIBIBYTE: Final = 1024 * MEBIBYTE

REQUIRED: Final = object()
"""The default of a key that has none: the document must say it."""


class Setting(NamedTuple):
    """What is said of one key: a sentence, and the smallest value allowed."""

    text: str
    minimum: float | None = None


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Section:
    """A record of the configuration: a frozen dataclass, declared by inheriting from this.

    All sections share the methods below. Were they compiled for each of the thirty, every start would pay for it, and
    a process makes each section about once.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False, match_args=False)(cls)

    def __init__(self, *values: object, **named: object) -> None:
        """Take values in the order of the keys, or by name. Raises: TypeError for unknown, doubled or missing keys."""
        keys = self.__dataclass_fields__
        given = dict(zip(keys, values, strict=False))
        if len(values) > len(keys) or not named.keys() <= keys.keys() - given.keys():
            raise TypeError(f"{type(self).__name__} has the keys {', '.join(keys)}, each once")
        given.update(named)
        for name, key in keys.items():
            value = given[name] if name in given else _default(key)
            if value is REQUIRED:
                raise TypeError(f"{type(self).__name__} needs {name}")
            self.__dict__[name] = value

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be changed")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be removed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Key(NamedTuple):
    """One key of a section, as the records declare it.

    Attributes:
        name: How the document calls it.
        kind: Of the value, or of each value where `is_list`: str, int, float, bool, a StrEnum or a record.
        is_nullable: Whether null can be meant.
        is_list: Whether there are any number of values.
        setting: What is said of it.
        default: What holds when the document does not say; `REQUIRED` where it must.
    """

    name: str
    kind: Any
    is_nullable: bool
    is_list: bool
    setting: Setting
    default: Any

    @property
    def is_section(self) -> bool:
        """Whether the value has keys of its own."""
        return is_dataclass(self.kind)

    @property
    def is_choice(self) -> bool:
        """Whether the value is one of some words."""
        return issubclass(self.kind, enum.StrEnum)


def keys_of(record: type) -> Iterator[Key]:
    """The keys of a section, in order."""
    hints = typing.get_type_hints(record, include_extras=True)
    for one in fields(record):
        kind, setting = _parts_of(hints[one.name])
        is_nullable = get_origin(kind) is types.UnionType
        if is_nullable:
            kind = next(option for option in get_args(kind) if option is not types.NoneType)
        is_list = get_origin(kind) is tuple
        if is_list:
            kind = get_args(kind)[0]
        yield Key(one.name, kind, is_nullable, is_list, setting or Setting(kind.__doc__ or ""), _default(one))


def _parts_of(hint: Any) -> tuple[Any, Setting | None]:
    """A kind and what is said of it; sections may leave that to the docstring of their record."""
    if get_origin(hint) is typing.Annotated:
        kind, setting = get_args(hint)[:2]
        return kind, setting
    return hint, None


def _default(one: Field[Any]) -> Any:
    if one.default is not MISSING:
        return one.default
    if one.default_factory is not MISSING:
        return one.default_factory()
    return REQUIRED

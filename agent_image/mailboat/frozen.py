"""Records that a process makes few of: settings, policies, sections of the configuration, reports.

A frozen dataclass compiles six methods of its own, half a millisecond at every start. A `Frozen` record is declared
by inheriting, shares its methods with all others, and is a dataclass to everybody else (`fields`, `replace`, `asdict`).
Making one takes a few microseconds longer: what is made for each package or node stays a compiled dataclass.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen:
    """A frozen dataclass, declared by inheriting from this."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, *values: object, **named: object) -> None:
        """Take values in the order of the fields, or by name. Raises: TypeError unless each is there once."""
        known = self.__dataclass_fields__
        given = dict(zip(known, values, strict=False))
        if len(values) > len(known) or not named.keys() <= known.keys() - given.keys():
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(known)}, each once")
        given.update(named)
        for name, one in known.items():
            self.__dict__[name] = given[name] if name in given else self._default(one)

    def _default(self, one: Field[Any]) -> object:
        if one.default_factory is not MISSING:
            return one.default_factory()
        if one.default is MISSING:
            raise TypeError(f"{type(self).__name__} needs {one.name}")
        return one.default

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be changed")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be removed")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        shown = [name for name, one in self.__dataclass_fields__.items() if one.repr]
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

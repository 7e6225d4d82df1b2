"""Records that a process makes few of: settings, policies, sections of the configuration, reports.

A frozen dataclass compiles six methods of its own, half a millisecond at every start. A `Frozen` record is declared
by inheriting, shares its methods with all others, and works as a dataclass (`fields`, `replace`, `asdict`).
Making one takes a few microseconds longer: what is made for each package or node stays a compiled dataclass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from typing import Any, ClassVar, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Frozen:
    """A frozen dataclass, declared by inheriting from this."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    _constants: ClassVar[dict[str, object]]
    _makers: ClassVar[dict[str, Callable[[], object]]]

    def __init_subclass__(cls) -> None:
        # without the methods that `dataclass` would compile: they are those below, for all records
        dataclass(init=False, repr=False, eq=False)(cls)
        known = fields(cls)
        cls.__dataclass_fields__ = {
            declared.name: declared for declared in known
        }  # without class variables: they take no value
        cls._constants = {declared.name: declared.default for declared in known if declared.default is not MISSING}
        cls._makers = {
            declared.name: declared.default_factory for declared in known if declared.default_factory is not MISSING
        }

    def __init__(self, *values: object, **named: object) -> None:
        """Take values in the order of the fields, or by name. Raises: TypeError unless each is there once."""
        known, own = self.__dataclass_fields__, self.__dict__
        given = {**dict(zip(known, values, strict=False)), **named}
        if len(given) < len(values) + len(named) or not given.keys() <= known.keys():
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(known)}, each once")
        # past `__setattr__`, which refuses
        own.update(self._constants)
        own.update(given)
        for name, make in self._makers.items():
            if name not in given:
                own[name] = make()
        if len(own) < len(known):
            raise TypeError(f"{type(self).__name__} needs {', '.join(name for name in known if name not in own)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be changed")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} can't be removed")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(map(self.__dict__.__getitem__, self.__dataclass_fields__)))

    def __repr__(self) -> str:
        shown = [name for name, one in self.__dataclass_fields__.items() if one.repr]
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

"""Options of our formats: texts that Spark hands on, read with the option's name in every message.

Also what all formats share: they refuse options that they do not know, and streams.
"""

from __future__ import annotations

import difflib
import enum
import json
from collections.abc import Mapping
from typing import ClassVar, TypeVar

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter
from pyspark.sql.types import StructType

from mailboat.errors import UsageError

C = TypeVar("C", bound=enum.StrEnum)


class BatchFormat(DataSource):
    """A format that is read or written by batches, and not by streams.

    Attributes:
        known_options: The names of its options, besides `path`.
    """

    known_options: ClassVar[frozenset[str]] = frozenset()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # PySpark's signature
        """Raises: UsageError."""
        raise UsageError(f"{self.name()} cannot be read as a stream; use spark.read")

    def streamWriter(  # noqa: N802  # PySpark's name
        self,
        schema: StructType,  # noqa: ARG002  # PySpark's signature
        overwrite: bool,  # noqa: ARG002, FBT001  # PySpark's signature
    ) -> DataSourceStreamWriter:
        """Raises: UsageError."""
        raise UsageError(f"{self.name()} cannot be written as a stream; use DataFrame.write")


def check_options(options: Mapping[str, str], known: frozenset[str]) -> None:
    """Check that every option besides `path` is known. Raises: UsageError."""
    names = {name.lower(): name for name in known}
    for given in options:
        if given.lower() in names or given.lower() == "path":
            continue
        near = difflib.get_close_matches(given.lower(), names, n=1)
        hint = f"; did you mean {names[near[0]]!r}?" if near else ""
        raise UsageError(f"unknown option {given!r}{hint} (options: {', '.join(sorted(known))})")


def number_of(options: Mapping[str, str], name: str, default: int) -> int:
    """An option that is a whole number, or `default`. Raises: UsageError."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name} is {text!r}, but must be a number")
    return int(text)


def positive_of(options: Mapping[str, str], name: str, default: int) -> int:
    """The same of an option that can't be 0. Raises: UsageError."""
    found = number_of(options, name, default)
    if found == 0:
        raise UsageError(f"{name} is 0, but must be a number above 0")
    return found


def choice_of(options: Mapping[str, str], name: str, default: C) -> C:
    """An option that is a member of an enumeration. Raises: UsageError."""
    text = options.get(name, default)
    kinds = type(default)
    if text not in list(kinds):
        raise UsageError(f"{name} is {text!r}; expected one of {', '.join(kinds)}")
    return kinds(text)


def texts_of(options: Mapping[str, str], name: str) -> list[str] | None:
    """An option that is a JSON list of texts; None when it is left out. Raises: UsageError."""
    text = options.get(name)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{name} is not a JSON list: {error}") from error
    if not isinstance(found, list) or not all(isinstance(load, str) for load in found) or not found:
        raise UsageError(f'{name} must be a JSON list of strings, such as ["/en", "/de"]')
    return found

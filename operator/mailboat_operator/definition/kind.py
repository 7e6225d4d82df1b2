"""A kind as a whole: its names, its columns, whether it scales."""

from __future__ import annotations

import re
import typing
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from mailboat.frozen import Frozen

from mailboat_operator.definition.fields import Rule

R = TypeVar("R")
AGENT_NAME_LENGTH = 40

_AGENT_NAME = f"^[a-z]([-a-z0-9]{{0,{AGENT_NAME_LENGTH - 2}}}[a-z0-9])?$"

NAMES_AGENTS = Rule(
    f"self.metadata.name.matches('{_AGENT_NAME}')",
    f"metadata.name names agents and Services: at most {AGENT_NAME_LENGTH} lower case letters, digits or '-', "
    "a letter first",
    ".metadata.name",
    lambda one: re.fullmatch(_AGENT_NAME, one.metadata.name) is not None,
)


class PrinterColumn(Frozen):
    """A column of `kubectl get`.

    Attributes:
        name: Its head.
        path: JSONPath of the value within the object.
        type: As OpenAPI calls it; a `date` is shown as its age.
        text: What it says.
        is_wide: Shown by `-o wide` only.
    """

    name: str
    path: str
    type: str = "string"
    text: str = ""
    is_wide: bool = False


READY = PrinterColumn(
    "Ready", '.status.conditions[?(@.type=="Ready")].status', text="Whether the Ready condition holds."
)
REASON = PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason', text="Why it holds, or does not.")
MESSAGE = PrinterColumn(
    "Message", '.status.conditions[?(@.type=="Ready")].message', text="The same in a sentence.", is_wide=True
)
"""The last column of every kind, as it is long."""
AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date", "How long ago it was made.")


@dataclass(frozen=True)
class Kind(Generic[R]):
    """One kind of custom resource.

    Attributes:
        name: As manifests write it.
        plural: As URLs do.
        short_name: As `kubectl` takes it too.
        resource: The record of a whole object: metadata, spec and status.
        columns: Of `kubectl get`.
        text: What it is, for people.
        is_scaled: Whether it has the scale subresource (`spec.replicas`, `status.replicas`, `status.selector`).
        rules: Over the whole object, its name included.
    """

    name: str
    plural: str
    short_name: str
    resource: type[R]
    columns: tuple[PrinterColumn, ...]
    text: str
    is_scaled: bool = False
    rules: tuple[Rule, ...] = ()

    @property
    def spec(self) -> type:
        """The record of what is asked for."""
        return self._part("spec")

    @property
    def status(self) -> type:
        """The record of what was found."""
        return self._part("status")

    def _part(self, name: str) -> type:
        resource: type = self.resource
        return _hints_of(resource)[name]


@cache
def _hints_of(resource: type) -> dict[str, type]:
    return typing.get_type_hints(resource)

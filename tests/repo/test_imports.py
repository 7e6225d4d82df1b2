"""Modules import each other in one direction, counting imports inside functions and for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

FACADE = "mailboat"
"""Offers names of `mailboat.library` when they are asked for, and the version to the modules below."""


def dotted(module: Any) -> str:
    return module.name.partition("/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(module: Any, known: set[str]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{name.name}" for name in node.names)
            yield from (name if name in known else str(node.module) for name in names)


def graph(modules: Any) -> Mapping[str, set[str]]:
    named = {dotted(module): module for module in modules}
    named.pop(FACADE)
    return {name: (set(imported(one, set(named))) & set(named)) - {name} for name, one in named.items()}


def test_no_import_cycle(product: Any) -> None:
    try:
        TopologicalSorter(graph(product)).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error

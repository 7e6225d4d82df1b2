"""The modules that mypyc compiles: all there, and free of what it can't compile or would take for something else."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def compiled(root: Path) -> list[str]:
    """Their paths below `agent_image`, as the build hook is told."""
    document = tomllib.loads((root / "pyproject.toml").read_text())
    modules: list[str] = document["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules


def test_the_list_is_sorted_and_names_modules_that_are_there(root: Path, compiled: list[str]) -> None:
    assert compiled == sorted(set(compiled))
    assert [item for item in compiled if not (root / "agent_image" / item).is_file()] == []


def test_no_compiled_class_needs_what_native_classes_lack(product: Any, compiled: list[str]) -> None:
    names = {f"agent_image/{item}" for item in compiled}
    found = [
        f"{module.at(node)}: {node.name}"
        for module in product
        if module.name in names
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        and ("Frozen" in map(ast.unparse, node.bases) or "runtime_checkable" in map(ast.unparse, node.decorator_list))
    ]
    assert not found, "\n".join(found)


def test_no_compiled_method_is_a_cached_property_which_would_be_computed_at_each_use(
    product: Any, compiled: list[str]
) -> None:
    names = {f"agent_image/{item}" for item in compiled}
    found = [
        f"{module.at(node)}: {node.name}"
        for module in product
        if module.name in names
        for node in module.nodes
        if isinstance(node, ast.FunctionDef) and "cached_property" in map(ast.unparse, node.decorator_list)
    ]
    assert not found, "\n".join(found)

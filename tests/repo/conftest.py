"""The repository as the tests of this folder look at it: tracked files, and Python modules with their syntax trees."""

from __future__ import annotations

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file."""

    path: Path

    @property
    def name(self) -> str:
        """Its path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    @cached_property
    def lines(self) -> list[str]:
        """Its source by lines; line n of the syntax tree is `lines[n - 1]`."""
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    def functions(self) -> Iterator[tuple[str, Function]]:
        """All functions and methods with their qualified names."""
        yield from _functions(self.tree, "")

    def classes(self) -> Iterator[ast.ClassDef]:
        """All classes."""
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))

    def at(self, node: ast.AST) -> str:
        """The place of a node, for messages."""
        return f"{self.name}:{getattr(node, 'lineno', 1)}"


@pytest.hookimpl(tryfirst=True)  # before the groups of the tests are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that parse all modules to one worker: each further worker would spend four seconds on parsing."""
    for item in items:
        if {"product", "test_modules"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group("syntax trees"))


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function):
            yield prefix + child.name, child
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        else:
            yield from _functions(child, prefix)


def _modules(folder: str) -> list[Module]:
    found = [
        Module(path)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "_generated" not in path.parts and "__pycache__" not in path.parts
    ]
    gc.disable()  # a million nodes are made and stay: collections meanwhile cost three times as much as parsing
    try:
        for module in found:
            assert module.nodes, module.name  # parsed once, here, and not on the account of the first test that looks
        gc.freeze()  # collections in later tests would look through them
    finally:
        gc.enable()
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def product() -> list[Module]:
    """Every module of the packages `mailboat` and `mailboat_operator`, but the generated ones."""
    return [*_modules("agent_image/mailboat"), *_modules("operator/mailboat_operator")]


@pytest.fixture(scope="session")
def tools() -> list[Module]:
    """Every script in `tools/`."""
    return _modules("tools")


@pytest.fixture(scope="session")
def test_modules() -> list[Module]:
    """Every Python file below `tests/`."""
    return _modules("tests")


@pytest.fixture(scope="session")
def tracked() -> list[Path]:
    """Every file that a commit of everything would hold: tracked, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]

"""Alarms against fragments. A ceiling is what the code had when it was set: it may be lowered, and never raised."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

SMALL_MODULE_LINES = 80
KINDS = re.compile(r"/(kinds|adapters|targets|sources|routes|api)/")
"""Folders where each kind has a file of the same name."""
ROLES = re.compile(r"/kinds/\w+/")
"""The operator's folders of kinds: one file for each role, however short, so that each is found without a search."""
NOUNS = {"routing", "setting", "sling", "string", "thing", "tracing"}

FRAGMENTS = 11
"""Modules under 80 lines that one other module imports."""
FOREIGN_ASSIGNMENTS = 190
"""Statements that assign an attribute of something other than `self` or `cls`."""
GERUNDS = 0
REPEATED_NAMES = 10
"""Files whose name occurs more than twice outside the folders of kinds."""
FUNCTION_IMPORTS = 74


def dotted(module: Any) -> str:
    """The name that Python imports a module by."""
    path = Path(module.name).with_suffix("")
    parts = path.parts[1:-1] if path.name == "__init__" else path.parts[1:]
    return ".".join(parts)


def imported(module: Any) -> set[str]:
    """All names that a module imports, as modules or from them."""
    found = set[str]()
    for node in module.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_small_modules_with_one_importer_do_not_increase(product: Any) -> None:
    importers = defaultdict[str, set[str]](set)
    for module in product:
        for name in imported(module):
            importers[name].add(module.name)
    found = [
        one.name
        for one in product
        if one.path.stem not in {"__init__", "__main__"}
        and not ROLES.search(one.name)
        and len(one.lines) < SMALL_MODULE_LINES
        and len(importers[dotted(one)]) == 1
    ]
    assert len(found) <= FRAGMENTS, "join one with its only importer:\n" + "\n".join(found)


def test_assignments_to_attributes_of_others_do_not_increase(product: Any) -> None:
    found = [
        f"{module.at(node)}: {ast.unparse(node)}"
        for module in product
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) not in {"self", "cls"}
    ]
    assert len(found) <= FOREIGN_ASSIGNMENTS, "pass it to the constructor:\n" + "\n".join(found)


def test_gerund_module_names_do_not_increase(product: Any) -> None:
    stems = [one.name for one in product if one.path.stem.endswith("ing") and one.path.stem not in NOUNS]
    assert len(stems) <= GERUNDS, "name a module by a noun of the domain:\n" + "\n".join(stems)


def test_file_names_that_occur_more_than_twice_do_not_increase(product: Any) -> None:
    names = Counter(one.path.name for one in product if not KINDS.search(one.name))
    found = {name: count for name, count in names.items() if count > 2 and not name.startswith("__")}
    assert sum(found.values()) <= REPEATED_NAMES, f"choose names that differ: {found}"


def test_function_level_imports_do_not_increase(product: Any) -> None:
    found = {
        module.at(node)
        for module in product
        for _, function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(found) <= FUNCTION_IMPORTS, "import at the top; adapters may be loaded lazily:\n" + "\n".join(
        sorted(found)
    )

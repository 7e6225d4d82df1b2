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

FRAGMENTS = 7
"""Modules under 80 lines that one other module imports."""
FOREIGN_ASSIGNMENTS = 125
"""Statements that assign an attribute of something other than `self` or `cls`."""
GERUNDS = 0
REPEATED_NAMES = 4
"""Files whose name occurs more than twice outside the folders of kinds."""
SEAMS = {
    "mailboat/__init__": "the library is loaded by the first use of a name of it",
    "agent/observability": "OpenTelemetry, an extra",
    "agent/process": "the control service: an agent without a publisher stays small",
    "agent/subscriber_process": "hooks with subprocess: a subscriber's restart has none",
    "cli/agents": "HTTP server or client: `agent run` needs the first only, `agent health` the second",
    "cli/__main__": "all but the handling of signals: a process with id 1 ignores them until then",
    "cli/bulk": "pyspark and pyarrow, an extra that plan does without",
    "cli/fast_path": "the engine, for `subscribe` only",
    "cli/main": "typer: a subscriber's restart does without",
    "cli/output": "rich and PyYAML, for the forms of output that need them",
    "cli/session": "the engine or the HTTP client: a command needs one of them, help none",
    "cli/subscriber_run": "the engine of jobs, for shared pools only",
    "cli/transfer": "rich, where a terminal shows it",
    "composition/home": "PyYAML, where the JSON copy of the configuration is not used",
    "composition/journals": "confluent-kafka, an extra",
    "composition/package_formats": "codecs: a subscriber loads those that it meets",
    "composition/source_openers": "FileVault's codec",
    "composition/stores": "boto3, an extra",
    "composition/workspace": "the publisher: a subscriber's restart does without",
    "content/targets/durability": "ctypes, for file systems without syncfs in Python",
    "http/agent_server": "FastAPI: an agent without a publisher stays small",
    "kinds/journal/observe": "botocore: a tenth of the operator's start",
}
"""Modules that import inside functions: adapters, extras and what a start can do without."""
FUNCTION_IMPORTS = 30


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
        and not KINDS.search(one.name)
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


def test_function_level_imports_are_at_seams_and_do_not_increase(product: Any) -> None:
    found = {
        module.at(node)
        for module in product
        for _, function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    elsewhere = [one for one in sorted(found) if not any(f"{seam}.py" in one for seam in SEAMS)]
    assert not elsewhere, "import at the top, or give the reason in SEAMS:\n" + "\n".join(elsewhere)
    assert len(found) <= FUNCTION_IMPORTS, "import at the top:\n" + "\n".join(sorted(found))
    unused = [seam for seam in SEAMS if not any(f"{seam}.py" in one for one in found)]
    assert not unused, "not needed any more: " + ", ".join(unused)

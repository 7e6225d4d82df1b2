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

FRAGMENTS = {
    "cli/fast_path": "reads a command line without the framework; a test compares the two",
    "cli/python_handlers": "handlers of users, loaded without the framework of options",
    "composition/bucket": "boto3, an extra",
    "composition/publisher_setup": "the publisher: a subscriber's restart does without",
    "http/agent_application": "FastAPI: an agent without a publisher stays small",
    "http/agent_server": "the HTTP server, which other commands of `agents` do without",
    "packages/filevault/inspection": "reads on where the codec stops, with parts that only FileVault's folder knows",
    "telemetry/topic_sender": "an adapter of EventSender, next to those for webhooks and e-mails",
}
"""Modules under 80 lines that one other module imports, with the reason why they are not joined with it."""
LIBRARIES = {
    "bulk/spark/spark_session": "PySpark's context",
    "cli/options": "the signature that typer reads",
    "filevault/document_reader": "handlers of expat",
    "filevault/markup": "handlers of expat",
    "filevault/properties": "handlers of expat",
    "http/application": "the state of a Starlette application",
    "http/connections": "a request of uvicorn",
    "http/server": "uvicorn's configuration",
    "journal/kafka_topics": "an SSL context",
    "mailboat_operator/resources": "a request of lightkube",
    "mailboat_operator/watches": "settings of kopf",
    "telemetry/logs": "a record of logging",
    "telemetry/mail_client": "a timer of threading",
    "telemetry/webhook_client": "a timer of threading, a connection of http.client",
    "wire/package_messages": "a message of protobuf",
    "wire/tree_records": "a message of protobuf",
}
"""Modules that assign attributes of objects of a library, which takes its settings so."""
RECORDS = {
    "journal/sqlite_writer": "its counts",
    "filevault/layout_reader": "the tree that it builds from documents",
    "filevault/layout_writer": "the folders that are open",
    "filevault/patterns": "the group that it reads",
    "queues/log_view": "its counts",
    "subscriber/piece_store": "its counts, and the packages that it collects",
    "testing/memory_content": "the store that its parts share",
    "mailboat_operator/broker_connections": "the connections that it keeps",
}
"""Modules that assign attributes of records of their own."""
RECORD_ASSIGNMENTS = 53
"""Statements of these modules that do."""
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
    "cli/status": "rich, for a watch only",
    "cli/session": "the engine or the HTTP client: a command needs one of them, help none",
    "cli/subscriber_run": "the engine of jobs, for shared pools only",
    "composition/home": "PyYAML, where the JSON copy of the configuration is not used",
    "composition/journals": "confluent-kafka, an extra",
    "composition/package_formats": "codecs: a subscriber loads those that it meets",
    "composition/source_openers": "FileVault's codec",
    "composition/stores": "boto3, an extra",
    "composition/workspace": "the publisher: a subscriber's restart does without",
    "content/targets/durability": "ctypes, for file systems without syncfs in Python",
    "http/agent_server": "FastAPI: an agent without a publisher stays small",
    "kinds/journal/controller": "botocore: a tenth of the operator's start",
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


def test_a_small_module_with_one_importer_has_a_reason(product: Any) -> None:
    importers = defaultdict[str, set[str]](set)
    for module in product:
        for name in imported(module):
            importers[name].add(module.name)
    found = {
        module.name
        for module in product
        if module.path.stem not in {"__init__", "__main__"}
        and not ROLES.search(module.name)
        and not KINDS.search(module.name)
        and len(module.lines) < SMALL_MODULE_LINES
        and len(importers[dotted(module)]) == 1
    }
    new = sorted(name for name in found if not any(f"{known}.py" in name for known in FRAGMENTS))
    assert not new, "join one with its only importer, or give the reason in FRAGMENTS:\n" + "\n".join(new)
    unused = [known for known in FRAGMENTS if not any(f"{known}.py" in name for name in found)]
    assert not unused, "not a fragment any more: " + ", ".join(unused)


def test_no_module_assigns_attributes_of_objects_of_others(product: Any) -> None:
    found = [
        (module.name, f"{module.at(node)}: {ast.unparse(node)}")
        for module in product
        for node in module.nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) not in {"self", "cls"}
        and node.attr != "__cause__"
        and not any(f"{library}.py" in module.name for library in LIBRARIES)
    ]
    foreign = [text for name, text in found if not any(f"{known}.py" in name for known in RECORDS)]
    assert not foreign, "pass it to the constructor, or call a method:\n" + "\n".join(foreign)
    assert len(found) <= RECORD_ASSIGNMENTS, "call a method:\n" + "\n".join(text for _, text in found)


def test_gerund_module_names_do_not_increase(product: Any) -> None:
    stems = [module.name for module in product if module.path.stem.endswith("ing") and module.path.stem not in NOUNS]
    assert len(stems) <= GERUNDS, "name a module by a noun of the domain:\n" + "\n".join(stems)


def test_file_names_that_occur_more_than_twice_do_not_increase(product: Any) -> None:
    names = Counter(module.path.name for module in product if not KINDS.search(module.name))
    found = {name: count for name, count in names.items() if count > 2 and not name.startswith("__")}
    assert sum(found.values()) <= REPEATED_NAMES, f"choose names that differ: {found}"


def test_a_public_class_name_is_defined_once(product: Any) -> None:
    # the record of a section of a custom resource has the section's name, whatever the engine calls its own class
    places = defaultdict[tuple[str, bool], list[str]](list)
    for module in product:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name, ROLES.search(module.name) is not None].append(module.at(node))
    found = [f"{name}: {', '.join(places)}" for (name, _), places in places.items() if len(places) > 1]
    assert not found, "a search for a class has to find one; name each by what it is:\n" + "\n".join(found)


def test_function_level_imports_are_at_seams_and_do_not_increase(product: Any) -> None:
    found = {
        module.at(node)
        for module in product
        for _, function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    elsewhere = [item for item in sorted(found) if not any(f"{seam}.py" in item for seam in SEAMS)]
    assert not elsewhere, "import at the top, or give the reason in SEAMS:\n" + "\n".join(elsewhere)
    assert len(found) <= FUNCTION_IMPORTS, "import at the top:\n" + "\n".join(sorted(found))
    unused = [seam for seam in SEAMS if not any(f"{seam}.py" in item for item in found)]
    assert not unused, "not needed any more: " + ", ".join(unused)


def test_decoders_of_json_are_made_by_one_thread_at_a_time(product: Any) -> None:
    found = [
        f"{module.name}:{node.lineno}"
        for module in product
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"msgspec.json.decode", "msgspec.json.Decoder", "msgspec.convert"}
        if [keyword.arg for keyword in node.keywords] == ["type"] or ast.unparse(node.func) != "msgspec.json.decode"
    ]
    assert [place.partition(":")[0] for place in found] == ["agent_image/mailboat/json_decoder.py"]

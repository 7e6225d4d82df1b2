"""Dependencies: floors for everything, hashes for what is installed, and one set of versions."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def document(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())


def pins(path: Path) -> dict[str, str]:
    """Package → version of a lock."""
    return dict(re.findall(r"^([A-Za-z0-9_.\-]+)==(\S+)", path.read_text(), flags=re.MULTILINE))


def test_every_dependency_has_a_floor(document: dict[str, Any]) -> None:
    project = document["project"]
    listed = [
        *document["build-system"]["requires"],
        *project["dependencies"],
        *(item for extra in project["optional-dependencies"].values() for item in extra),
        *(item for group in document["dependency-groups"].values() for item in group),
    ]
    assert [item for item in listed if ">=" not in item] == []


def test_the_extras_are_those_of_the_documentation(document: dict[str, Any]) -> None:
    assert set(document["project"]["optional-dependencies"]) == {
        "kafka",
        "s3",
        "tracing",
        "spark",
        "operator",
        "testing",
    }


@pytest.mark.parametrize(
    "name", ["agent", "compile", "dev", "dev-all", "installer", "operator", "plugin", "runtime", "spark"]
)
def test_every_locked_package_has_hashes(root: Path, name: str) -> None:
    text = (root / "requirements" / f"{name}.txt").read_text()
    blocks = [block for block in re.split(r"\n(?=[A-Za-z0-9])", text) if "==" in block]
    assert {block.partition("==")[0] for block in blocks} == set(pins(root / "requirements" / f"{name}.txt"))
    assert [block.split()[0] for block in blocks if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize("name", ["agent", "compile", "dev", "installer", "operator", "plugin", "runtime", "spark"])
def test_users_and_developers_get_the_same_versions(root: Path, name: str) -> None:
    lock, dev = pins(root / f"requirements/{name}.txt"), pins(root / "requirements/dev-all.txt")
    assert {package: version for package, version in lock.items() if dev.get(package) != version} == {}


def test_the_locks_name_no_place(root: Path) -> None:
    for path in (root / "requirements").glob("*.txt"):
        assert re.findall(r"://|--index|--find-links|--extra-index", path.read_text()) == []


def test_the_engine_imports_only_what_it_declares(product: Any, document: dict[str, Any]) -> None:
    homes = {
        "protobuf": "google",
        "PyYAML": "yaml",
        "confluent-kafka": "confluent_kafka",
        "opentelemetry-api": "opentelemetry",
    }
    declared = [re.split(r"[<>=\[ ]", dependency)[0] for dependency in document["project"]["dependencies"]]
    declared += [
        re.split(r"[<>=\[ ]", item)[0]
        for extra in document["project"]["optional-dependencies"].values()
        for item in extra
    ]
    allowed = (
        {homes.get(name, name.lower().replace("-", "_")) for name in declared}
        | {"mailboat", "mailboat_operator"}
        | sys.stdlib_module_names
    )
    test_only = {"pytest", "hypothesis"}
    allowed |= {"types_boto3_s3"}  # the types of boto3's client, never imported when it runs
    found = set()
    for module in product:
        for node in module.nodes:
            names = (
                [name.name for name in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            refused = set() if module.name.startswith("agent_image/mailboat/testing/") else test_only
            found |= {f"{module.name}: {name}" for name in names if name.split(".")[0] not in allowed - refused}
    assert sorted(found) == []

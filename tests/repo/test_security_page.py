"""SECURITY.md says what the product does: its tests, listeners and keys are those of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mailboat.config.document import Config
from mailboat.config.section_keys import keys_of
from mailboat.config.storage import Secret

NAMED_TEST = re.compile(r"`(test_\w+)`")
DEFINED_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", flags=re.MULTILINE)
LISTENING = {"bind", "listen", "create_server", "start_server", "create_unix_server", "start_unix_server", "TCPSite"}
SERVING = LISTENING | {"HTTPServer", "ThreadingHTTPServer", "UnixSite", "run_app"}
NETWORK = {"socket", "asyncio", "aiohttp", "http", "socketserver", "uvicorn"}


@pytest.fixture(scope="module")
def page(root: Path) -> dict[str, str]:
    """The sections of the page by their titles."""
    _, *sections = (root / "SECURITY.md").read_text().split("\n## ")
    return {title: text for title, _, text in (section.partition("\n") for section in sections)}


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines[2:]]


def test_every_claim_about_an_actor_names_a_test_that_exists(root: Path, page: dict[str, str]) -> None:
    places = [*(root / "tests").rglob("test_*.py"), *(root / "agent_image/mailboat/testing").glob("*_contract.py")]
    defined = {name for place in places for name in DEFINED_TEST.findall(place.read_text())}
    table = rows(page["Actors"])
    assert len(table) > 20
    assert {len(row) for row in table} == {4}  # a further cell would not be shown
    assert [row for row in table if not NAMED_TEST.search(row[-1])] == []
    assert sorted({name for text in page.values() for name in NAMED_TEST.findall(text)} - defined) == []


def test_every_listener_of_both_images_is_on_the_page(page: dict[str, str], product: Any) -> None:
    found = {module.name for module in product if "/testing/" not in module.name and is_listening(module.tree)}
    assert found == {row[1].strip("`") for row in rows(page["What listens"])}


def is_listening(tree: ast.Module) -> bool:
    """Whether a module that imports a network library calls what binds a port."""
    imported = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return bool(imported & NETWORK and called & SERVING)


def test_every_secret_of_the_configuration_is_on_the_page(page: dict[str, str]) -> None:
    named = {key for row in rows(page["Keys and secrets"]) for key in re.findall(r"`([^`]+)`", row[0])}
    assert named == set(secrets_of(Config, ""))


def secrets_of(section: Any, above: str) -> Iterator[str]:
    """The keys of all secrets below a section."""
    for key in keys_of(section):
        name = f"{above}{key.name}" + ("[]" if key.is_list else "")
        if key.kind is Secret:
            yield name
        elif hasattr(key.kind, "__dataclass_fields__"):
            yield from secrets_of(key.kind, f"{name}.")


def test_the_address_and_the_ports_are_those_of_the_code(page: dict[str, str]) -> None:
    http = next(key.default for key in keys_of(Config) if key.name == "http")
    defaults = http() if callable(http) else http
    assert f"by default {defaults.host}:{defaults.port}" in page["What listens"]

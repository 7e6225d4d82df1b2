"""What people see, letter by letter; fields that differ from run to run are normalised.

When an output changes on purpose: `pytest tests/golden/test_cli_output.py --update-golden`, and read the difference.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "cli"
SUBSTITUTES = (
    (r"dstrpck-\d+-[0-9a-f-]{36}", "dstrpck-<ID>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3,6})?Z", "<TIME>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "<UUID>"),
    (r"\d[\d.]* (ms|s) ago", "<AGO> ago"),
    (r"\b(in|waiting) \d[\d.]* (ms|s)\b", r"\1 <SECONDS>"),
    (r"   \d[\d.]* [kM]?B   kept", "   <SIZE>   kept"),
    (r"(\"?bytes\"?): \d+", r"\1: <SIZE>"),
    (r"discovery        0 {6}\d {10}\d ", "discovery        0      N          N "),
    (r"(_ms\"?): \d+", r"\1: <MS>"),
    (r"^\d+ messages and", "N messages and"),
)


def steps(site: Path, place: Path) -> dict[str, tuple[object, ...]]:
    """The commands, in order, by the names of their files."""
    target = f"files:{place / 'web'}"
    return {
        "init": ("init",),
        "plan": ("plan", "--source", site, "/en"),
        "publish": ("publish", "--source", site, "/en", "/index.html", "--request-id", "r-1"),
        "publish-again": ("publish", "--source", site, "/en", "/index.html", "--request-id", "r-1"),
        "subscribe": ("subscribe", "web", "--into", target, "--until", "caught-up"),
        "publish-wait": ("publish", "--source", site, "--changed", "--wait", "0"),
        "delete": ("delete", "/en/news"),
        "status": ("status",),
        "status-json": ("status", "-o", "json"),
        "status-yaml": ("status", "-o", "yaml"),
        "queues": ("queues", "ls"),
        "queue": ("queues", "show", "web"),
        "queue-json": ("queues", "show", "web", "-n", "1", "-o", "json"),
        "distribution": ("distributions", "get", "r-1"),
        "distribution-missing": ("distributions", "get", "r-2"),
        "not-clearable": ("queues", "clear", "web", "--yes"),
        "topics": ("journal", "topics"),
        "show": ("journal", "show"),
        "verify": ("journal", "verify"),
        "truncate": ("journal", "truncate", "--before", "2", "--yes"),
        "stopped": ("subscribe", "web", "--until", "caught-up"),
        "stopped-new": ("subscribe", "late", "--into", f"files:{place / 'late'}", "--until", "caught-up"),
        "errors": ("errors", "ls"),
        "ls": ("content", "ls", target, "--deep"),
        "diff": ("content", "diff", site, target),
        "explain": ("explain", "JournalTrimmed"),
    }


def normalised(text: str, place: Path) -> str:
    text = text.replace(str(place), "<DIR>")
    for pattern, substitute in SUBSTITUTES:
        text = re.sub(pattern, substitute, text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """What every command of the story printed, with its exit code."""
    place = tmp_path_factory.mktemp("golden")
    site = place / "site"
    (site / "en" / "news").mkdir(parents=True)
    for name in ("index.html", "en/index.html", "en/news/1.html"):
        (site / name).write_text(f"<h1>{name}</h1>")
    boat = request.getfixturevalue("command_line")(place / "boat")
    shown = {}
    for name, words in steps(site, place).items():
        ran = boat.run(*words)
        said = ran.out + ("".join(f"! {line}\n" for line in ran.err.splitlines()))
        shown[name] = normalised(f"{said}exit code {ran.code}\n", place)
    return shown


@pytest.mark.parametrize("name", steps(Path(), Path()))
def test_a_command_prints_what_it_did(printed: dict[str, str], name: str, request: pytest.FixtureRequest) -> None:
    file = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        file.write_text(printed[name])
    assert printed[name] == file.read_text()


def test_no_expectation_is_left_over() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(steps(Path(), Path()))

"""Nothing committed depends on the machine or the network place where it was written."""

from __future__ import annotations

import re
from pathlib import Path

# one character of each is written as a class, so that this file does not find itself
HOSTS = (
    r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.org|repo1?\.mave[n]\.|mave[n]\.apache\.org/maven2"
    r"|proxy\.golan[g]\.org|de[b]\.debian\.org|crate[s]\.io"
)
PLACES = (
    r"(?<![\w.}])/wor[k]/|/roo[t]/\.|/opt/wheel[s]|/tmp/brie[f]/|/tmp/rep[o]/|\.\./share[d]/"
    r"|(?<![\w/])share[d]/(facts|design|experience|kind)"
)


def offenders(paths: list[Path], root: Path, pattern: re.Pattern[bytes]) -> list[str]:
    """Files and the first matching text in each."""
    found = []
    for path in paths:
        match = pattern.search(path.read_bytes())
        if match:
            found.append(f"{path.relative_to(root)}: {match.group().decode(errors='replace')}")
    return found


def test_no_file_names_the_host_of_a_package_registry(tracked: list[Path], root: Path) -> None:
    pattern = re.compile(HOSTS.encode(), re.IGNORECASE)
    assert offenders(tracked, root, pattern) == []


def test_no_file_names_a_place_of_one_machine(tracked: list[Path], root: Path) -> None:
    assert offenders(tracked, root, re.compile(PLACES.encode())) == []


def test_no_file_is_large(tracked: list[Path], root: Path) -> None:
    limit = 600_000
    assert [str(path.relative_to(root)) for path in tracked if path.stat().st_size > limit] == []


def test_hosted_checks_only_call_the_script(root: Path) -> None:
    commands = re.findall(r"- run: (.+)", (root / ".github/workflows/ci.yml").read_text())
    assert commands[-1] == "bash .ci/run"
    assert all(command.startswith(("apt-get ", "git config ")) for command in commands[:-1])

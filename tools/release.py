"""What a release needs to know of the repository: `check TAG`, `notes TAG`.

`check` fails unless the package, the chart and the changelog have the version of the tag. `notes` prints the section of
the changelog, which becomes the text of the release.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from mailboat import __version__

ROOT = Path(__file__).resolve().parent.parent


def problems(tag: str, package: str, chart: dict[str, str], changelog: str) -> Iterator[str]:
    """Why this tag is no release, one sentence each."""
    version = tag.removeprefix("v")
    if not re.fullmatch(r"v\d+\.\d+\.\d+((a|b|rc)\d+)?", tag):
        yield f"the tag {tag} is not v followed by a version such as 1.2.3 or 1.2.3rc1"
    if package != version:
        yield f"agent_image/mailboat/__init__.py has version {package}, not {version}"
    for key in ("version", "appVersion"):
        if chart[key] != version:
            yield f"helm/mailboat/Chart.yaml has {key} {chart[key]}, not {version}"
    if not notes(version, changelog):
        yield f"CHANGELOG.md has no section [{version}] with a text"


def notes(version: str, changelog: str) -> str:
    """The section of a version, without its heading; empty if absent."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else ""


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit code."""
    verb, tag = arguments
    changelog = (ROOT / "CHANGELOG.md").read_text()
    if verb == "notes":
        print(notes(tag.removeprefix("v"), changelog))
        return 0
    chart = yaml.safe_load((ROOT / "helm/mailboat/Chart.yaml").read_text())
    found = list(problems(tag, __version__, chart, changelog))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

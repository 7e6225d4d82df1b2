"""Documents stay true: links lead somewhere, lists are complete, versions agree, the README stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mailboat
import pytest

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
README_LINES = 150


def pages(root: Path) -> list[Path]:
    """Every Markdown page of the project."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")])


def anchors(text: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    plain = [re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain} | set(
        re.findall(r'<a id="([^"]+)"', text)
    )


def broken_links(page: Path) -> list[str]:
    """Links of a page that lead nowhere within the repository."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    found = []
    for match in LINK.finditer(text):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


def test_every_link_leads_somewhere(root: Path) -> None:
    found = {str(page.relative_to(root)): broken_links(page) for page in pages(root)}
    assert {page: links for page, links in found.items() if links} == {}


def test_the_map_of_decisions_names_modules_and_functions_that_are_there(root: Path) -> None:
    text = (root / "CONTRIBUTING.md").read_text()
    rows = [row.split("|") for row in text.partition("### Where it is decided")[2].partition("\n## ")[0].splitlines()]
    answers = [(question.strip(), answer) for _, question, answer, _ in (row for row in rows if len(row) == 4)]
    assert len(answers) > 30
    assert [f"{question}: {wrong}" for question, answer in answers for wrong in unresolved(answer, root)] == []


def unresolved(answer: str, root: Path) -> Iterator[str]:
    """Names of an answer that lead nowhere: to no file, to several ones, to a definition that is not in the file."""
    sources = [path for folder in ("agent_image", "operator") for path in (root / folder).rglob("*.py")]
    packages = ("", "agent_image/mailboat", "operator/mailboat_operator")
    modules: list[Path] = []
    for name in re.findall(r"`([^`\s]+)`", answer):
        if name.endswith(".py"):
            ending = re.compile("/" + re.escape(name.removeprefix("operator/…/")).replace("KIND", r"\w+") + r"\Z")
            found = [path for path in sources if ending.search(path.as_posix())]
            # a bare name means the file next to the one before; next to those of all kinds there may be one for each
            beside = [path for path in found if path.parent in {module.parent for module in modules}]
            modules = beside or found
            is_there = len(modules) == 1 or (bool(modules) and "kinds/KIND/" in answer)
        elif "/" in name or not modules:
            is_there = any((root / package / name).exists() for package in packages)
        else:
            defined = re.compile(rf"^(\s*(async )?def |class |){name}\b(?!\.)", re.MULTILINE)
            is_there = any(defined.search(path.read_text()) for path in modules)
        if not is_there:
            yield name


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ("`subscriber/failures.py`: `decide_retry`; `importer.py`", []),
        ("`operator/…/kinds/KIND/plan.py`: `plan_publisher`, `plan_pool`", []),
        ("`http/routes`; `helm/mailboat/values.yaml`", []),
        ("`subscriber/failure.py`", ["subscriber/failure.py"]),
        ("`plan.py`", ["plan.py"]),
        ("`subscriber/failures.py`: `decide_nothing`", ["decide_nothing"]),
        ("`operator/…/kinds/KIND/plan.py`: `plan_nothing`", ["plan_nothing"]),
        ("`http/nowhere`", ["http/nowhere"]),
    ],
)
def test_names_of_the_map_that_lead_nowhere_are_found(root: Path, answer: str, wrong: list[str]) -> None:
    assert list(unresolved(answer, root)) == wrong


def test_every_page_is_reached_from_the_index(root: Path) -> None:
    index = (root / "docs/index.md").read_text()
    listed = {(root / "docs" / (item[0] or item[1]).split("#")[0]).resolve() for item in LINK.findall(index)}
    decisions = root / "docs/decisions"
    missing = [page for page in (root / "docs").rglob("*.md") if page.parent != decisions and page.name != "index.md"]
    assert [str(page.relative_to(root)) for page in missing if page.resolve() not in listed] == []


def test_every_decision_is_listed_and_numbered(root: Path) -> None:
    folder = root / "docs/decisions"
    listed = (folder / "README.md").read_text()
    names = sorted(page.name for page in folder.glob("*.md") if page.name != "README.md")
    assert [name for name in names if f"({name})" not in listed] == []
    numbers = [re.match(r"(\d{4})-[a-z0-9-]+\.md$", name) for name in names]
    assert None not in numbers
    assert len({match.group(1) for match in numbers if match}) == len(names)


def test_a_decision_says_what_was_weighed(root: Path) -> None:
    for page in (root / "docs/decisions").glob("0*.md"):
        text = page.read_text().lower()
        assert page.read_text().startswith("# "), page.name
        for heading in ("## context", "## decision", "## consequences"):
            assert heading in text, f"{page.name} has no {heading!r}"


def test_the_readme_is_short(root: Path) -> None:
    assert len((root / "README.md").read_text().splitlines()) <= README_LINES


def test_the_readme_lists_every_folder(root: Path, tracked: list[Path]) -> None:
    folders = {path.relative_to(root).parts[0] for path in tracked if len(path.relative_to(root).parts) > 1}
    text = (root / "README.md").read_text()
    assert [name for name in sorted(folders) if name != ".ci" and f"`{name}/`" not in text] == []


def test_the_newest_version_of_the_changelog_is_that_of_the_code(root: Path) -> None:
    versions = re.findall(r"^## \[?([0-9][^\]\s]*|Unreleased)\]?", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1:2] in ([mailboat.__version__], [])
    if len(versions) == 1:
        assert mailboat.__version__ == "0.1.0"


@pytest.mark.parametrize("target", ["demo", "test", "lint", "bench", "docs"])
def test_make_targets_are_explained(root: Path, target: str) -> None:
    assert re.search(rf"^{target}:.*## \w", (root / "Makefile").read_text(), re.MULTILINE)
    assert f"make {target}" in (root / "CONTRIBUTING.md").read_text()


def test_the_continuous_check_is_make_test_the_real_cluster_and_slices_that_are_due(root: Path) -> None:
    lines = (root / ".ci/run").read_text().strip().splitlines()
    slices = 'python3 tools/stages.py long --due --minutes "$minutes"'
    assert lines.index("make test") < lines.index("python3 tools/stages.py e2e") < lines.index(slices) == len(lines) - 1
    assert "trap 'make cluster-down' EXIT" in lines
    assert "set -euo pipefail" in lines


def test_drawings_are_files(root: Path) -> None:
    """A package index shows Mermaid as code, and the site would load its script from elsewhere."""
    assert [page.name for page in pages(root) if "```mermaid" in page.read_text()] == []


def test_the_site_builds_without_a_broken_link(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/build_site.py"], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    page = (root / "build/site/index.html").read_text()
    assert '<ol start="2">' in (root / "build/site/how-to/install.html").read_text()
    assert 'id="installation"' in page
    [runbooks] = re.findall(r"^    runbooks: (\S+)$", (root / "helm/mailboat/values.yaml").read_text(), re.MULTILINE)
    sections = re.findall(r"runbooks }}#(\w+)", (root / "helm/mailboat/templates/alerts.yaml").read_text())
    linked = (root / "build/site" / runbooks.rpartition("/")[2]).read_text()
    assert len(sections) > 10
    assert [section for section in sections if f'<h2 id="{section}">' not in linked] == []
    assert 'data-md-component="source"' not in page  # its script asks api.github.com
    assert not re.search(
        r'(src|href)="https?://(?!github\.com/mailboat-dev/)', page.replace("https://zensical.org/", "")
    )

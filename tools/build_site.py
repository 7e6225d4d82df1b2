"""Build the documentation site from `docs/` and the pages of the repository's root into `build/site`.

The generator takes one folder, and links that leave it are broken, so the pages are copied to `build/pages` with their
links rewritten. The README is the first page, and `docs/index.md` the list of all pages: the generator would make
`index.html` of both. A broken link or anchor fails the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
NAMES = {"README.md": "index.md", "docs/index.md": "all-pages.md"}
"""Pages with another name in the site."""
ROOT_PAGES = ("README.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md")


def page_of_site(text: str, depth: int) -> str:
    """A page of `docs/` with its links to the root's pages made links within one folder; depth 0 is `docs/` itself."""
    up = re.escape("../" * (depth + 1))
    names = "|".join(map(re.escape, ROOT_PAGES))
    return re.sub(
        rf"\]\({up}({names})([#)])", lambda found: f"]({'../' * depth}{NAMES.get(found[1], found[1])}{found[2]}", text
    )


def root_page_of_site(text: str, repository: str) -> str:
    """A page of the root: links into `docs/` lose that folder, others lead to the repository."""
    for name, new in NAMES.items():
        text = text.replace(f"]({name}", f"]({new}")
    text = re.sub(r"\]\(docs/", "](", text)
    names = "|".join(map(re.escape, ROOT_PAGES))
    return re.sub(
        rf"\]\((?!{names}|{'|'.join(map(re.escape, NAMES.values()))}|[a-z]+:|#)([^)\s]+)\)",
        lambda found: found[0] if (ROOT / "docs" / found[1].split("#")[0]).exists() else f"]({repository}/{found[1]})",
        text,
    )


def main() -> int:
    """Copy the pages and build; the exit code of the generator."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    for page in PAGES.rglob("*.md"):
        page.write_text(page_of_site(page.read_text(), len(page.relative_to(PAGES).parts) - 1))
    (PAGES / "index.md").rename(PAGES / NAMES["docs/index.md"])
    repository = "https://github.com/mailboat-dev/mailboat/blob/main"
    for name in ROOT_PAGES:
        (PAGES / NAMES.get(name, name)).write_text(root_page_of_site((ROOT / name).read_text(), repository))
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

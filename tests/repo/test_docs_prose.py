"""Pages stay short and readable: sentences, the words of all pages, a command on each how-to page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
)
HOW_TO = sorted((ROOT / "docs/how-to").glob("*.md"))
LONGEST_SENTENCE = 35
GENERATED = ("chart-values.md", "cli.md", "configuration.md", "custom-resources.md", "errors.md", "metrics.md")
MOST_WORDS = {"written": 22_570, "decisions": 4_280}
"""By kind of page, as `wc -w` counts them: one in twelve is a dash of a list or a bar of a table.

Lower them when pages become shorter.
"""
MOST_WORDS_A_LINE = 10.5
"""Of the generated pages, where a line is a row, a field, an option or a paragraph: 10.3 measured, ceiling rounded up.

Not their sum: a further field of a custom resource changes the operator's folder of that kind alone.
"""
END_OF_SENTENCE = re.compile(r"[.!?](?=\s|$)|[;:](?=\s)")


def blocks(text: str) -> Iterator[str]:
    """The paragraphs, list items, headings and table cells of a page, without its code."""
    block: list[str] = []
    for line in [*re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE).splitlines(), ""]:
        if not line.strip() or re.match(r" *([-*>]|\d+\.|\|#*) ", line):
            yield " ".join(block)
            block = []
        if line.startswith("|"):
            yield from re.split(r"(?<!\\)\|", line)
        else:
            block.append(line.strip())
    yield " ".join(block)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page. A clause after a colon or semicolon is a sentence of its own."""
    for block in blocks(text):
        plain = re.sub(r"`[^`]*`", "CODE", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block))
        yield from END_OF_SENTENCE.split(plain)


def words(sentence: str) -> int:
    """The words of a sentence; a list of code or of dashes is counted as it stands."""
    return len(re.findall(r"[^\W_][\w'-]*", sentence))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_too_long(page: Path) -> None:
    long = [sentence for sentence in sentences(page.read_text()) if words(sentence) > LONGEST_SENTENCE]
    assert long == []


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_how_to_page_has_commands_that_can_be_copied(page: Path) -> None:
    assert re.search(r"^ *```(console)?\n *\$? ?\w", page.read_text(), re.MULTILINE)


@pytest.mark.parametrize("kind", MOST_WORDS)
def test_the_pages_have_no_more_words_than_readers_have_patience(kind: str) -> None:
    def kind_of(page: Path) -> str:
        return "decisions" if page.parent.name == "decisions" else "generated" if page.name in GENERATED else "written"

    pages = [page for page in (ROOT / "docs").rglob("*.md") if kind_of(page) == kind]
    count = sum(len(page.read_text().split()) for page in pages)
    assert count <= MOST_WORDS[kind], (
        f"{kind} pages have {count} words. MOST_WORDS stops pages that grow unnoticed: raise it by the words of a new "
        "feature; for anything else shorten a page"
    )


def test_generated_pages_say_a_thing_in_few_words() -> None:
    texts = [(ROOT / "docs" / name).read_text() for name in GENERATED]
    lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
    assert sum(len(text.split()) for text in texts) / lines <= MOST_WORDS_A_LINE

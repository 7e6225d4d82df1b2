"""Plain words: phrases that operations engineers do not use, counted in text for users and in the code.

User-facing text has none. The code has ceilings that are lowered with every clean-up, and never raised.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

IDIOMS = (
    r"anew",
    r"can't be meant",
    r"in silence",
    r"for (?:ever|good)",
    r"as yet",
    r"on the books",
    r"not said",
    r"in vain",
    r"the original",
    r"at hand",
    r"beside(?! the point)",
    r"once more",
    r"(?:passed|passes|went|goes) by",
    r"passed over",
    r"(?:stand|stands|stood|standing) (?:at|before|beyond)",
    r"driven again",
    r"(?:what|who) (?:there is|is there)",
    r"left in peace",
    r"(?:become|becomes|became) of",
    r"(?<!there )is (?:no (?!longer\b|such\b)\w+|none\b)",
    r"there is none",
    r"no more(?! (?:\w+ )?than)",
    r"by (?:itself|themselves)",
    r"(?:take|takes|took|taken|taking) in(?! memory)",
    r"let(?:s|ting)? in",
    r"(?:their|its|the) time is over",
    r"(?:goes|went|gone) away",
    r"way back",
    r"mend(?:s|ed|ing)?",
    r"fits? together",
)
"""Literal idioms, and own expressions for what has a term of art."""

PERSONIFICATION = (
    r"nobody",
    r"somebody",
    r"anybody",
    r"everybody",
    r"whoever",
    r"who asks",
    r"its word",
    r"tells?(?: of)?",
    r"told",
    r"knows",
    r"hears?",
    r"heard(?: of)?",
    r"look(?:s|ed|ing)? (?:after|again|at|on)",
    r"(?-i:Who) (?!can\b|may\b)",
    r"fore(?:see|sees|saw|seen)",
    r"says? to be",
)
"""Software described as people, and pronouns where a noun belongs."""

PHRASE = re.compile(rf"\b(?:{'|'.join(IDIOMS + PERSONIFICATION)})\b", re.IGNORECASE)

PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "helm/mailboat",
    "crds",
    "examples",
    "proto",
    "agent_image/mailboat/api/dashboard",
)
"""Files for users, and folders of them."""

GENERATED = ("cli.md", "configuration.md", "custom-resources.md", "errors.md", "metrics.md", "openapi.json")
"""Pages of `docs/` that show docstrings and descriptions of the code."""

SUFFIXES = {".md", ".yaml", ".yml", ".txt", ".tpl", ".json", ".js", ".html", ".proto"}

QUOTED = re.compile(r"`[^`\n]+`|\"title\": \"[^\"]*\"")
"""Code and identifiers within prose."""

COMMENT = re.compile(r"(?:^\s*|  )# (.*)")
"""The text of a comment, on a line of its own or behind code."""

CEILINGS = {"docs": 0, "docstrings": 0, "comments": 0}
"""Occurrences that are left; lower a number with each clean-up."""

METAPHORS = re.compile(
    r"(?:Audience|Desk|Errand|Fate|News|Office|Picture|Portrait|Pulse|Room|Shelf|Troupe)s?$"
    r"|^(?:Actor|Board|Boat|Books|Care|Cast|Given|Heard|Kept|Member|Passage|Showing|Taken|Trouble|Truth|Wish)$"
)
"""Class names, or endings of them, that are metaphors."""


def documentation(module: Any) -> set[int]:
    """Identities of the string constants that are statements: docstrings of modules, classes, functions and values."""
    return {
        id(node.value)
        for node in module.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def strings(module: Any, *, are_docstrings: bool) -> Iterator[tuple[int, str]]:
    """Line and text of a module's string constants: its docstrings, or all others."""
    documents = documentation(module)
    for node in module.nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and (id(node) in documents) is are_docstrings:
            yield node.lineno, node.value


def found_in(text: str, place: str, first_line: int = 1) -> list[str]:
    """Each forbidden phrase of a text with its place."""
    bare = QUOTED.sub("``", text)
    return [
        f"{place}:{first_line + bare.count(chr(10), 0, match.start())}: {match[0]}" for match in PHRASE.finditer(bare)
    ]


def pages(root: Path, tracked: list[Path]) -> Iterator[Path]:
    """Files that users read."""
    for path in tracked:
        name = path.relative_to(root).as_posix()
        is_page = name.startswith(PAGES) or name in {f"docs/{item}" for item in GENERATED}
        if is_page and path.suffix in SUFFIXES:
            yield path


def test_printed_strings_have_no_forbidden_phrase(product: Any) -> None:
    found = [
        each
        for module in product
        if "/testing/" not in module.name
        for line, text in strings(module, are_docstrings=False)
        if " " in text
        for each in found_in(text, module.name, line)
    ]
    assert found == [], "\n".join(found)


def test_pages_for_users_have_no_forbidden_phrase(root: Path, tracked: list[Path]) -> None:
    found = [
        each for path in pages(root, tracked) for each in found_in(path.read_text(), path.relative_to(root).as_posix())
    ]
    assert found == [], "\n".join(found)


def test_docs_have_fewer_forbidden_phrases_than_the_ceiling(root: Path) -> None:
    written = [path for path in sorted((root / "docs").rglob("*.md")) if path.name not in GENERATED]
    found = [each for path in written for each in found_in(path.read_text(), path.relative_to(root).as_posix())]
    assert len(found) <= CEILINGS["docs"], "\n".join(found)


def test_docstrings_have_fewer_forbidden_phrases_than_the_ceiling(product: Any) -> None:
    found = [
        each
        for module in product
        for line, text in strings(module, are_docstrings=True)
        for each in found_in(text, module.name, line)
    ]
    assert len(found) <= CEILINGS["docstrings"], "\n".join(found)


def test_comments_have_fewer_forbidden_phrases_than_the_ceiling(product: Any, tools: Any) -> None:
    found = [
        each
        for module in [*product, *tools]
        for number, line in enumerate(module.lines, 1)
        if (comment := COMMENT.search(line)) is not None
        for each in found_in(comment[1], module.name, number)
    ]
    assert len(found) <= CEILINGS["comments"], "\n".join(found)


def test_class_names_are_terms_of_the_field(product: Any) -> None:
    assert [class_.name for module in product for class_ in module.classes() if METAPHORS.search(class_.name)] == []


MOST_LOOPS_OVER_ONE = 30
"""Loops whose variable is `one` instead of the noun of its items. Lower it with each that gets a name."""


def test_loops_name_their_items(product: Any, tools: Any) -> None:
    found = [module.name for module in [*product, *tools] for _ in re.finditer(r"\bfor one in\b", module.text)]
    assert len(found) <= MOST_LOOPS_OVER_ONE


DELICATE = re.compile(
    r"fsync|os\.(?:replace|rename|link)|Lock\(|Condition\(|\bEvent\(|KafkaError|flock|O_NOFOLLOW|\.reach\(|PRAGMA|IfMatch"
)
"""What a module with ordering, locks, durable files or bugs of a client library contains."""
FEW = 2
COMMENTS_PER_100_LINES = {"all": 5.1, "own": 4.3}
"""Reasons in those modules, in all comments and in those on a line of their own. Raise them with each reason added."""
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|pragma|-{9})")


def test_delicate_modules_give_reasons_at_the_line(product: Any) -> None:
    delicate = [
        module for module in product if "/testing/" not in module.name and len(DELICATE.findall(module.text)) > FEW
    ]
    lines = [line for module in delicate for line in module.lines]
    comments = [line for line in lines if re.match(r"\s*# |.*\S  # ", line) and not DIRECTIVE.search(line)]
    own = [line for line in comments if line.lstrip().startswith("#")]
    found = {"all": 100 * len(comments) / len(lines), "own": 100 * len(own) / len(lines)}
    assert len(delicate) > 30
    assert {kind: found[kind] for kind, least in COMMENTS_PER_100_LINES.items() if found[kind] < least} == {}

"""Makes large sites to build from: as many pages as asked for, in the sizes and folders that real sites have.

Sizes are log-normal about a median; folders are chosen by a power law, so that some are hot and most are small. The
words come from pages that exist (a documentation tree), cut and repeated to size, with a line of their own in each, so
no two pages are equal and they compress as prose does. The same settings make the same site, byte for byte. Used by the
tests and figures of bulk builds.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Final

from mailboat.errors import UsageError

_PROSE: Final = b"""<html><head><title>Page</title></head><body><p>Every subscriber applies the packages of a journal in
one order; a crash at any instant neither loses nor repeats an effect, and nobody configures anybody.</p></body></html>
"""
_STEP: Final = 8_192


@dataclass(frozen=True, slots=True)
class ForestSettings:
    """What the site is like.

    Attributes:
        pages: How many.
        sections: Folders that the pages are spread over, two levels deep.
        median_bytes: Half of the pages are smaller.
        spread: Of the logarithm of the size: 1 makes one page in forty seven times as large as the median.
        heat: How much more a hot folder has: the section of rank n gets pages in proportion to n ** -heat.
        seed: Other numbers make other sites.
    """

    pages: int
    sections: int = 400
    median_bytes: int = 4_000
    spread: float = 1.0
    heat: float = 1.0
    seed: int = 1


def make_forest(folder: Path, settings: ForestSettings, material: Path | None = None) -> int:
    """Write the site; how many bytes it has. Raises: UsageError where `material` has no pages.

    Args:
        folder: An empty or missing folder.
        settings: What the site is like.
        material: A folder with HTML pages to take the words from; a few sentences of ours otherwise.
    """
    words, chance = _words(material), random.Random(settings.seed)  # no secrets
    sections = [f"s{number % 20:02d}/{number:04d}" for number in range(settings.sections)]
    for section in sections:
        (folder / section).mkdir(parents=True, exist_ok=True)
    total = 0
    for number, section in enumerate(_chosen(sections, settings, chance)):
        data = _page(number, max(64, round(settings.median_bytes * chance.lognormvariate(0, settings.spread))), words)
        with open(f"{folder}/{section}/p{number:06d}.html", "wb", buffering=0) as file:  # noqa: PTH123  # many
            file.write(data)
        total += len(data)
    return total


def change_some(folder: Path, share: float, seed: int = 2) -> int:
    """Change about this share of the pages of a site, each by a line; how many."""
    chance = random.Random(seed)  # no secrets
    changed = 0
    for found, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if chance.random() < share:
                with (Path(found) / name).open("ab") as file:
                    file.write(b"<p>changed</p>\n")
                changed += 1
    return changed


def change_sections(folder: Path, share: float) -> int:
    """Change one page of neighbours after the other until about this share of all was changed; how many."""
    pages = sorted(folder.rglob("*.html"))
    chosen = pages[: round(len(pages) * share)]
    for page in chosen:
        with page.open("ab") as file:
            file.write(b"<p>changed</p>\n")
    return len(chosen)


def _chosen(sections: Sequence[str], settings: ForestSettings, chance: random.Random) -> Iterator[str]:
    weights = list(accumulate((rank + 1) ** -settings.heat for rank in range(len(sections))))
    for begin in range(0, settings.pages, _STEP):
        yield from chance.choices(sections, cum_weights=weights, k=min(_STEP, settings.pages - begin))


def _words(material: Path | None) -> bytes:
    if material is None:
        return _PROSE * 400
    pages = sorted(material.rglob("*.html"))
    if not pages:
        raise UsageError(f"{material} has no pages")
    return b"".join(page.read_bytes() for page in pages[:200])


def _page(number: int, size: int, words: bytes) -> bytes:
    head = b"<!-- page %d -->\n" % number
    start = number * 7_919 % max(1, len(words) - size)
    body = words[start : start + size]
    return head + (body * (size // max(1, len(body)) + 1))[: max(0, size - len(head))]

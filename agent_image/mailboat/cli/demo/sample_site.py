"""The site that the demo publishes when it is given none: the website of a small shipping line.

Pages in two languages, news, timetables, drawings and photographs of different sizes; a few names with blanks and
umlauts, since real sites have them. The same bytes on every run. Generated, so that the package stays small.
"""

from __future__ import annotations

import html
import json
import math
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_HARBOURS: Final = (
    ("Aldersund", "Lighthouse, post office and the line's home port."),
    ("Birkholm", "A jetty among birches; the school boat calls twice a day."),
    ("Duneskerry", "Seals on the eastern reef; landing by tender in westerly winds."),
    ("Fährhörn", "Cars and lorries; the only harbour with a linkspan."),
    ("Gullness", "Four houses, one crane, the best coffee of the crossing."),
    ("Kvitsand", "White beaches; summer calls only."),
    ("Lambholm", "Sheep travel free of charge in October."),
    ("Ostervik", "Boatyard and winter berth."),
    ("Skarvøy", "Cormorants, a chapel, and the relay station."),
    ("Tangen", "Change here for the inner islands."),
)
_STORIES: Final = (
    (
        "New boat named",
        "Neues Schiff getauft",
        "The Postillion was named in front of 300 islanders and a band.",
    ),
    ("Winter timetable", "Winterfahrplan", "From Sunday the evening crossing leaves twenty minutes earlier."),
    ("Jetty at Birkholm repaired", "Steg in Birkholm repariert", "Larch instead of pine: it should last until 2050."),
    ("Parcels on the night boat", "Pakete mit dem Nachtschiff", "What is handed in by ten is delivered by seven."),
    ("Fog stops the morning tour", "Nebel stoppt die Frühfahrt", "Two tours were merged; every letter arrived, once."),
    (
        "Seal counted at Duneskerry",
        "Robben bei Duneskerry gezählt",
        "There are 112, nine more than last year.",
    ),
    ("School boat full", "Schulboot voll besetzt", "A second boat runs on Mondays and Fridays."),
    ("Lost and found", "Fundsachen", "Eleven umbrellas, one tuba, no owner yet."),
)
_SEED: Final = 1831
_VOCABULARY: Final = """
tide boat mail island harbour crossing rope wind letter morning parcel lantern pilot channel buoy deck engine gull
timetable jetty fog bell chart anchor ferry signal crew depth mark keel stern bow weather
"""


def write_site(folder: Path) -> Path:
    """Write the site into `folder`, which is returned."""
    chance = random.Random(_SEED)  # noqa: S311  # the same site every time; nothing secret
    for name, content in _files(chance):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def _files(chance: random.Random) -> Iterator[tuple[str, bytes | str]]:
    yield "index.html", _page("en", "Mailboat Line", _paragraphs(chance, 3))
    yield "robots.txt", "User-agent: *\nAllow: /\n"
    yield "assets/site.css", "\n".join(_css()) + "\n"
    yield "assets/site.js", "document.documentElement.dataset.ready = 'yes';\n"
    yield "assets/logo.svg", _drawing(chance, 3)
    for language in ("en", "de"):
        yield from _pages(language, chance)
    yield from _harbours(chance)
    yield from _data(chance)
    for number, (width, height) in enumerate(((640, 400), (480, 300), (320, 200), (640, 400), (400, 400), (200, 120))):
        yield f"images/crossing-{number + 1}.png", _photograph(chance, width, height)
    yield "images/Chart of the sound.png", _photograph(chance, 800, 500)


def _pages(language: str, chance: random.Random) -> Iterator[tuple[str, str]]:
    english = language == "en"
    names = ("index", "timetable", "fares", "contact") if english else ("index", "fahrplan", "überfahrt", "kontakt")
    for name in names:
        yield f"{language}/{name}.html", _page(language, name.title(), _paragraphs(chance, 4))
    for number in range(24):
        story = _STORIES[number % len(_STORIES)]
        day = f"{2025 + number // 12}-{number % 12 + 1:02}-{chance.randrange(1, 29):02}"
        title = story[0] if english else story[1]
        text = f"<p><time>{day}</time> {html.escape(story[2])}</p>\n{_paragraphs(chance, 2)}"
        yield f"{language}/news/{day[:4]}/{day[5:]}.html", _page(language, title, text)


def _harbours(chance: random.Random) -> Iterator[tuple[str, str]]:
    for name, text in _HARBOURS:
        folder = f"harbours/{name.lower()}"
        yield f"{folder}/index.html", _page("en", name, f"<p>{html.escape(text)}</p>\n{_paragraphs(chance, 2)}")
        yield f"{folder}/map.svg", _drawing(chance, 12)
        yield f"{folder}/tides 2026.csv", _tides(chance)


def _data(chance: random.Random) -> Iterator[tuple[str, str]]:
    departures = [
        {"from": start[0], "to": end[0], "at": f"{hour:02}:{chance.randrange(0, 60, 5):02}"}
        for start in _HARBOURS
        for end in _HARBOURS
        for hour in (6, 9, 12, 15, 18)
        if start is not end
    ]
    yield "data/departures.json", json.dumps(departures, ensure_ascii=False, indent=1) + "\n"
    urls = "".join(f"<url><loc>https://mailboat.example/harbours/{name.lower()}/</loc></url>" for name, _ in _HARBOURS)
    yield "sitemap.xml", f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset>{urls}</urlset>\n'


def _page(language: str, title: str, body: str) -> str:
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n"
        '<link rel="stylesheet" href="/assets/site.css">\n<script src="/assets/site.js" defer></script>\n</head>\n'
        f'<body>\n<header><img src="/assets/logo.svg" alt=""></header>\n<main>\n<h1>{html.escape(title)}</h1>\n{body}'
        "</main>\n</body>\n</html>\n"
    )


def _paragraphs(chance: random.Random, count: int) -> str:
    return "".join(
        f"<p>{' '.join(chance.choices(_VOCABULARY.split(), k=chance.randrange(30, 90))).capitalize()}.</p>\n"
        for _ in range(count)
    )


def _css() -> Iterator[str]:
    yield "body { font: 1.05rem/1.6 Georgia, serif; margin: 0 auto; max-width: 42rem; color: #12303f }"
    yield "h1 { font-weight: 500 }"
    for level in range(40):
        yield f".tide-{level} {{ height: {level * 4}px; background: hsl(200 60% {90 - level}%) }}"


def _drawing(chance: random.Random, islands: int) -> str:
    shapes = "".join(
        f'<ellipse cx="{chance.randrange(400)}" cy="{chance.randrange(240)}" rx="{chance.randrange(8, 50)}"'
        f' ry="{chance.randrange(6, 30)}" fill="#c9d8b6" stroke="#5b7553"/>'
        for _ in range(islands)
    )
    sea = '<rect width="400" height="240" fill="#d7ebf5"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 240">{sea}{shapes}</svg>\n'


def _tides(chance: random.Random) -> str:
    lines = ["day,high,low"]
    lines += [
        f"{day},{2.1 + math.sin(day / 2.3) * 0.7 + chance.random() / 10:.2f},{0.4 + chance.random() / 5:.2f}"
        for day in range(1, 366)
    ]
    return "\n".join(lines) + "\n"


def _photograph(chance: random.Random, width: int, height: int) -> bytes:
    """A PNG of sea and sky with enough grain that it does not compress away."""
    rows = bytearray()
    for y in range(height):
        depth = y / height
        waves = [math.sin(x / 17 + y / 5) * 14 * depth for x in range(width)]
        grain = chance.randbytes(width)
        row = bytearray(1 + 3 * width)  # 0: the row is not filtered
        for channel, colour in enumerate((90 + 70 * depth, 140 + 20 * depth, 190 - 40 * depth)):
            row[1 + channel :: 3] = bytes(
                int(colour + wave) + (noise & 7) for wave, noise in zip(waves, grain, strict=True)
            )
        rows += row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    )

"""How results are printed: one place for tables, JSON, YAML and bare names.

A command makes a `Report`: a document whose keys are stable and tested, the names that identify its rows, and the
blocks that people read. Everything printed may come from others, so control characters are made visible and nothing
is taken for markup. rich is imported only for a table on a terminal: it costs as much as the rest of a quick command.
"""

from __future__ import annotations

import enum
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TextIO

from mailboat.cli.tables import INDENT, Table, plain_text
from mailboat.frozen import Frozen
from mailboat.printable import printable

if TYPE_CHECKING:
    from mailboat.api.records import CauseView
    from mailboat.model.messages import FailureCause

_TITLE: Final = re.compile(r"[a-z]+ {2,}")
"""What begins a line of a page of facts: `journal    `."""


_UNBROKEN: Final = 100_000
"""Columns of a line of YAML."""

_GAP: Final = "   "
_INNER_SPACE: Final = re.compile(r"(?<=\S) (?=\S)")
_GLUE: Final = "\u00a0"
"""No text that is printed has it: it counts as not printable, and textwrap breaks no line at it."""


class Output(enum.StrEnum):
    """The forms that every command can print its result in."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


Block = Table | str
"""A table, or a line of text."""


class Report(Frozen):
    """What a command found out.

    Attributes:
        document: For JSON and YAML: mappings, lists, texts, numbers, truth values and None.
        names: For `-o name`: the identifiers of the rows, one a line.
        blocks: Makes what people read; called for tables only.
    """

    document: Mapping[str, Any] | Sequence[Any]
    names: Sequence[str]
    blocks: Callable[[], Sequence[Block]]


def show(report: Report, output: Output, into: TextIO | None = None) -> None:
    """Print a report to standard output, or elsewhere."""
    stream = sys.stdout if into is None else into
    match output:
        case Output.JSON:
            stream.write(json.dumps(report.document, indent=2, ensure_ascii=False) + "\n")
        case Output.YAML:
            stream.write(_yaml(report.document))
        case Output.NAME:
            stream.writelines(f"{printable(name)}\n" for name in report.names)
        case Output.TABLE:
            stream.write(blocks_text(report.blocks(), stream))
    stream.flush()


def show_next(document: Mapping[str, Any], names: Sequence[str], output: Output) -> None:
    """Print one of many documents to standard output: a line of JSON, a document of a YAML stream, or names."""
    match output:
        case Output.JSON:
            sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        case Output.YAML:
            sys.stdout.write(f"---\n{_yaml(document)}")
        case _:
            sys.stdout.writelines(f"{printable(name)}\n" for name in names)
    sys.stdout.flush()


def rich_module() -> Any:
    """The module `rich_output`, for what only a terminal shows."""
    from mailboat.cli import rich_output

    return rich_output


def styled_line(parts: Sequence[tuple[str, str]], stream: TextIO) -> str:
    """A line of texts with their styles, which only a terminal shows."""
    if not stream.isatty():
        return "".join(text for text, _ in parts)
    line: str = rich_module().styled_line(parts, stream)
    return line


def bytes_text(count: int) -> str:
    """A size for people: `41 kB`, `3.1 MB`; decimal units."""
    if count < 1000:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5:
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:.0f} {unit}"
    return f"{value:.0f} TB"


def seconds_text(seconds: float) -> str:
    """A duration for people: `14 ms`, `2.5 s`, `12 s`, `3 min`, `5 h`, `7 d`."""
    if seconds < 0.9995:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def ago_text(ago: timedelta) -> str:
    """A time for people: `14 ms ago`; one that lies ahead by another clock is now."""
    return f"{seconds_text(max(0.0, ago.total_seconds()))} ago"


def count_text(count: int, noun: str) -> str:
    """`1 file`, `3 files`, `2 entries`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun.removesuffix('y')}ies" if noun.endswith("try") else f"{count:,} {noun}s"


def cause_text(cause: CauseView | FailureCause) -> str:
    """A cause in one line: code, path, message."""
    return f"{cause.code}: {cause.path + ': ' if cause.path else ''}{cause.message}"


def time_text(at: datetime | None) -> str | None:
    """A time as RFC 3339, to the millisecond; None stays None."""
    return None if at is None else at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _yaml(document: object) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=_UNBROKEN)
    return text


def blocks_text(blocks: Sequence[Block], stream: TextIO) -> str:
    """Blocks as lines for a stream: as wide as its terminal."""
    return "".join(_block_text(block, stream) for block in blocks)


def _block_text(block: Block, stream: TextIO) -> str:
    if isinstance(block, str):
        return "".join(f"{line}\n" for line in _wrapped(printable(block), stream))
    if not block.rows:
        return block.empty + "\n"
    if not stream.isatty():
        return plain_text(block)
    text: str = rich_module().table_text(block, stream)
    return text


def _wrapped(text: str, stream: TextIO) -> list[str]:
    """The text in lines of a terminal, broken between words. What is indented may be pasted elsewhere: left whole."""
    width = shutil.get_terminal_size().columns
    if len(text) <= width or text.startswith(" ") or not stream.isatty():
        return [text]
    title = _TITLE.match(text)
    indent = " " * (len(INDENT) if title is None else title.end())
    facts = text.split(_GAP)
    if len(facts) > 1 and max(map(len, facts)) < width - len(indent):  # each fact stays in one line
        text = _GAP.join(_INNER_SPACE.sub(_GLUE, fact) for fact in facts)
    lines = textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_GLUE, " ") for line in lines] or [text]

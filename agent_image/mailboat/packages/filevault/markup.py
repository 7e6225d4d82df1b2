"""XML in and out: expat with everything off that a package could misuse, and the escaping of what we write.

A DOCTYPE may declare elements; entities, which can multiply text, and attributes, which cost time at each element, are
refused, and nothing is fetched. Depth and size are capped, and expat works on bytes that are in memory already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final
from xml.parsers import expat

from mailboat.errors import LimitExceededError, PackageCorruptError
from mailboat.model.namespaces import MAX_URI

XML_HEAD: Final = '<?xml version="1.0" encoding="UTF-8"?>\n'

MAX_EXPANDED_CHARACTERS: Final = 64 * 1024 * 1024
"""Of all names of a document, each with the longest namespace."""

_MAX_DOCTYPE_BYTES: Final = 64 * 1024
_LONG_NAMESPACE: Final = re.compile(rb"""xmlns(?::[^\s=<>"':]*)?\s*=\s*(?:"[^"]{256}|'[^']{256})""")
_TO_ESCAPE: Final = re.compile('[&<>"\t\n\r]')
_TO_ESCAPE_IN_CONTENT: Final = re.compile(r"[&<\r]|(?<=]])>")
_NOT_IN_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        '"': "&quot;",
        "\t": "&#x9;",
        "\n": "&#xa;",
        "\r": "&#xd;",
    }
)


def escape(text: str) -> str:
    """Text for an attribute in double quotes. It must have no character that XML can't hold."""
    return _TO_ESCAPE.sub(_entity, text) if _TO_ESCAPE.search(text) else text


def escape_content(text: str) -> str:
    """Text for between tags, with line feeds and tabs as they are. It must have no character that XML can't hold."""
    return _TO_ESCAPE_IN_CONTENT.sub(_entity, text)


def can_hold(text: str) -> bool:
    """Whether XML has all characters of a text."""
    return not _NOT_IN_XML.search(text)


def guarded_parser(
    entry: str, separator: str | None = None, intern: dict[str, str] | None = None
) -> expat.XMLParserType:
    """An expat parser that refuses declarations of entities and attributes, named in the error by `entry`.

    expat reads no other file, and passes over references to entities that such a file might define, as FileVault does.

    `separator` turns namespaces on, see `xml.parsers.expat.ParserCreate`; `intern` keeps names between documents.
    """
    parser = expat.ParserCreate(None, separator, {} if intern is None else intern)
    parser.ordered_attributes = True
    parser.specified_attributes = True
    doctype = _Doctype(parser, entry)
    parser.EntityDeclHandler = parser.AttlistDeclHandler = doctype.refuse
    parser.StartDoctypeDeclHandler, parser.EndDoctypeDeclHandler = doctype.start, doctype.end
    return parser


class _Doctype:
    """Checks the document type of one document."""

    def __init__(self, parser: expat.XMLParserType, entry: str) -> None:
        self._parser = parser
        self._entry = entry

    def start(self, *_: object) -> None:
        self._parser.DefaultHandler = self.check

    def end(self) -> None:
        self._parser.DefaultHandler = None

    def check(self, token: str) -> None:
        # expat believes nothing that comes behind a reference to declarations elsewhere
        if token.startswith("%") or self._parser.CurrentByteIndex > _MAX_DOCTYPE_BYTES:
            self.refuse()

    def refuse(self, *_: object) -> None:
        raise PackageCorruptError(
            "the document type of an XML document declares entities or attributes, or is too long",
            next_step="write into the document what they stand for, and remove the document type",
            entry=self._entry,
        )


def parse_all(parser: expat.XMLParserType, content: bytes, entry: str) -> None:
    """Parse a whole document. Raises: PackageCorruptError, and what the handlers raise."""
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise PackageCorruptError(f"an XML document can't be parsed: {error}", entry=entry) from error
    except (ValueError, LookupError) as error:  # an encoding that Python does not have
        raise PackageCorruptError(f"an XML document can't be decoded: {error}", entry=entry) from error
    finally:
        # Parser and `_Doctype` refer to each other. Left to the garbage collector, the buffers of each parser would
        # stay for hundreds of documents, and reading a small package would take twice the time.
        parser.EntityDeclHandler = parser.AttlistDeclHandler = parser.DefaultHandler = None
        parser.StartDoctypeDeclHandler = parser.EndDoctypeDeclHandler = None


def check_namespaces(content: bytes, entry: str) -> None:
    """Refuse namespaces that are too long, or too long for the number of names. Raises: LimitExceededError.

    expat writes the namespace of each name out, before a handler could stop it: 200 KB became gigabytes.
    """
    plain = content if 0 not in content[:4] else _from_utf16(content)
    if _LONG_NAMESPACE.search(plain) is None:
        return
    longest = 0

    def start(_: str, attributes: list[str]) -> None:
        nonlocal longest
        for name, uri in zip(attributes[::2], attributes[1::2], strict=True):
            if name.startswith("xmlns"):
                longest = max(longest, len(uri))

    parser = guarded_parser(entry)
    parser.StartElementHandler = start
    parse_all(parser, content, entry)
    limit = min(MAX_URI, MAX_EXPANDED_CHARACTERS // (plain.count(b":") + plain.count(b"<")))
    if longest > limit:
        raise LimitExceededError(f"the URI of a namespace has {longest} characters", entry=entry, limit=limit)


def _from_utf16(content: bytes) -> bytes:
    """A document in UTF-16, of which the first bytes are zero, or a mark and zero, in UTF-8."""
    is_big = content[:1] in (b"\0", b"\xfe")
    return content.decode("utf-16-be" if is_big else "utf-16-le", "replace").encode()


def parse_small(content: bytes, entry: str, start: Callable[[str, list[str]], None], limit_bytes: int) -> None:
    """Parse a document of metadata by its start tags alone. Raises: PackageCorruptError, LimitExceededError."""
    if len(content) > limit_bytes:
        raise LimitExceededError(f"an XML document has {len(content)} bytes", entry=entry, limit=limit_bytes)
    parser = guarded_parser(entry)
    parser.StartElementHandler = start
    parse_all(parser, content, entry)


def attribute_pairs(attributes: list[str]) -> dict[str, str]:
    """Expat's ordered attributes as a dictionary."""
    return dict(zip(attributes[::2], attributes[1::2], strict=True))


def _entity(match: re.Match[str]) -> str:
    return _ESCAPES[match[0]]

r"""The grammar of property values in DocView XML: `[{Type}] ( value | "[" value, value … "]" )`.

Values are understood as `DocViewProperty2` of FileVault 4.2 understands them, with these differences: a `\u` without
four hex digits and half of a surrogate pair are refused instead of guessed. An unknown type is refused, and so are
numbers and dates of lists that are not of their type: FileVault leaves out their document, with an error.
Of a Boolean, anything but `true` is false, as it is in Java: published packages have `{Boolean}false}`. `BinaryRef` is
a type of its own here. What a repository can hold, `parse_values` and Jackrabbit read back as `format_values` got it.

https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-core/src/main/java/org/apache/jackrabbit/vault/util/DocViewProperty2.java
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from mailboat.errors import ValueRefusedError
from mailboat.model.nodes import PropertyType
from mailboat.model.values import canonical_value
from mailboat.packages.filevault.java_values import URI, read_java

BINARY_REF: Final = "BinaryRef"

_NAMES: Final[Mapping[PropertyType, str]] = MappingProxyType(
    {
        PropertyType.STRING: "String",
        PropertyType.BINARY: "Binary",
        PropertyType.LONG: "Long",
        PropertyType.DOUBLE: "Double",
        PropertyType.DATE: "Date",
        PropertyType.BOOLEAN: "Boolean",
        PropertyType.NAME: "Name",
        PropertyType.PATH: "Path",
        PropertyType.REFERENCE: "Reference",
        PropertyType.WEAK_REFERENCE: "WeakReference",
        PropertyType.URI: "URI",
        PropertyType.DECIMAL: "Decimal",
    }
)
_TYPES: Final[Mapping[str, PropertyType]] = MappingProxyType(
    {name: kind for kind, name in _NAMES.items()} | {"undefined": PropertyType.STRING, BINARY_REF: PropertyType.BINARY}
)
_UNCHECKED: Final = frozenset(
    {
        PropertyType.STRING,
        PropertyType.BINARY,
        PropertyType.NAME,
        PropertyType.REFERENCE,
        PropertyType.WEAK_REFERENCE,
        PropertyType.URI,
    }
)
# One step of FileVault's state machine: an escape, a separator or a run of plain text.
_PIECES: Final = re.compile(
    r"\\u(?P<unicode>[0-9a-fA-F]{4})|\\(?P<escaped>.)|(?P<comma>,)|(?P<text>[^\\,]+)", re.DOTALL
)
_NOT_XML: Final = "\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff"
_SINGLE_ESCAPES: Final = re.compile(rf"[\\{_NOT_XML}]")
_OPENING: Final = frozenset("[{")
_MULTI_ESCAPES: Final = re.compile(rf"[\\,{_NOT_XML}]")

_PLAIN_PATH: Final = re.compile(r"(?!.*(?:/|\A)\.{1,2}(?:/|\Z))[^\[]+\Z", re.DOTALL)
_FIRST: Final = re.compile(r"\[0*[01]\](?=/|\Z)")
"""The index that the first of siblings has anyway."""
_NO_UUID: Final = re.compile(r"(?![0-9a-fA-F]+(?:-[0-9a-fA-F]+){4}\Z)")
_NOT_OF_TYPE: Final = {
    PropertyType.NAME: re.compile(r"\.{0,2}\Z|:|[^{}]*(?:[/|*\[\]]|:\Z|:[^{}]*:)"),
    PropertyType.PATH: re.compile(
        r"[^{}]*(?://|[|*]|\[(?![0-9]+\](?:/|\Z))|(?<![0-9])\]|(?<![^/]):|:(?:/|\Z)|:[^{}/]*:)"
    ),
    PropertyType.REFERENCE: _NO_UUID,
    PropertyType.WEAK_REFERENCE: _NO_UUID,
    PropertyType.DATE: re.compile(r"1582-10-(?:0[5-9]|1[0-4])T|[+-]?[0-9]{5}"),
}
"""What Oak makes a String of. Nodes of other sources may have it: see `jcr_rules.py`."""


class ParsedValues(NamedTuple):
    """What an attribute says.

    Attributes:
        type: The type; STRING where the attribute names none.
        is_multiple: Whether the values stand in brackets.
        values: Lexical forms, canonical. For binaries: references, or empty where the bytes are in an entry.
        is_reference: Whether the type is `BinaryRef`.
    """

    type: PropertyType
    is_multiple: bool
    values: tuple[str, ...]
    is_reference: bool = False


def parse_values(text: str) -> ParsedValues:
    """Understand an attribute's text.

    Raises:
        ValueRefusedError: When the grammar or the type forbids it. The caller adds entry, path and property.
    """
    kind, is_reference = PropertyType.STRING, False
    if text[:1] == "{":
        end = text.find("}")
        if end < 0:  # FileVault takes the rest for a String, without escapes
            return ParsedValues(kind, False, (text[1:],))
        named = _TYPES.get(text[1:end])
        if named is None:
            raise ValueRefusedError(f"{text[:40]!r} does not begin with a known {{Type}}")
        kind, is_reference, text = named, text[1:end] == BINARY_REF, text[end + 1 :]
    if text[:1] == "[":
        values = _split(text)
        is_multiple = True
    else:
        values = (_joined([_piece(match) for match in _PIECES.finditer(text)]) if "\\" in text else text,)
        is_multiple = False
    kind, values = _understood(kind, values, is_multiple=is_multiple)
    return ParsedValues(kind, is_multiple, values, is_reference)


def _understood(
    kind: PropertyType, values: tuple[str, ...], *, is_multiple: bool
) -> tuple[PropertyType, tuple[str, ...]]:
    """Canonical values, and their type: FileVault makes a String of one value that is not of its type."""
    if kind is PropertyType.STRING:
        return kind, values
    if kind is PropertyType.BOOLEAN:
        return kind, tuple(["true" if value.lower() == "true" else "false" for value in values])
    if not is_multiple and _is_not_of_type(kind, values[0]):
        return PropertyType.STRING, values
    if kind in _UNCHECKED:
        return kind, values
    read = [_checked(kind, value) for value in values]
    held = tuple([value for value in read if value is not None])
    if len(held) == len(values):
        return kind, held
    if is_multiple:
        raise ValueRefusedError(f"{values[read.index(None)][:80]!r} is not a {kind.name} value")
    return PropertyType.STRING, values


def _is_not_of_type(kind: PropertyType, text: str) -> bool:
    if kind is PropertyType.URI:
        return URI.match(text) is None
    return kind in _NOT_OF_TYPE and _NOT_OF_TYPE[kind].match(text) is not None


def _checked(kind: PropertyType, text: str) -> str | None:
    """The canonical form; None for what FileVault does not take for a value of the type."""
    if kind is PropertyType.PATH:
        return _normal_path(text)
    try:
        return canonical_value(kind, text)
    except ValueRefusedError:
        return read_java(kind, text)


def _normal_path(path: str) -> str | None:
    """A path as Oak stores it; None for one above the root, which it does not take."""
    if "{" in path or "//" in path or _PLAIN_PATH.match(path):
        return path.removesuffix("/") or path
    steps: list[str] = []
    for step in _FIRST.sub("", path.removesuffix("/")).removeprefix("/").split("/"):
        if step == ".." and steps and steps[-1] != "..":
            steps.pop()
        elif step == ".." and path.startswith("/"):
            return None
        elif step not in (".", ""):
            steps.append(step)
    return ("/" if path.startswith("/") and steps else "") + "/".join(steps) or "."


def format_values(kind: PropertyType, values: Sequence[str], *, is_multiple: bool, is_reference: bool = False) -> str:
    """The attribute's text, before XML escaping. Values of binaries are references, or empty."""
    prefix = BINARY_REF if is_reference else _NAMES[kind]
    head = "" if kind is PropertyType.STRING else f"{{{prefix}}}"
    if not is_multiple:
        value = values[0]
        if value[:1] in _OPENING:
            return f"{head}\\{value[0]}{_SINGLE_ESCAPES.sub(_escape, value[1:])}"
        return head + (_SINGLE_ESCAPES.sub(_escape, value) if "\\" in value or not value.isprintable() else value)
    if len(values) == 1 and not values[0]:
        return f"{head}[\\0]"
    return f"{head}[{','.join([_MULTI_ESCAPES.sub(_escape, value) for value in values])}]"


def _split(text: str) -> tuple[str, ...]:
    before = text[:-1]
    is_escaped = (len(before) - len(before.rstrip("\\"))) % 2 == 1
    is_closed = text[-1] == "]" and not is_escaped
    inner = text[1:-1] if is_closed and len(text) > 1 else text[1:]
    if "\\" not in inner:
        values = inner.split(",")
    elif inner == "\\0":
        return ("",)
    else:
        values = _unescape_values(inner)
    if values[-1] == "" and (len(values) == 1 or not is_closed):
        values.pop()
    return tuple(values)


def _unescape_values(inner: str) -> list[str]:
    values: list[list[str]] = [[]]
    for match in _PIECES.finditer(inner):
        if match.lastgroup == "comma":
            values.append([])
        else:
            values[-1].append(_piece(match))
    return [_joined(pieces) for pieces in values]


def _piece(match: re.Match[str]) -> str:
    if match.lastgroup == "unicode":
        return chr(int(match["unicode"], 16))
    if match.lastgroup != "escaped":
        return match[0]
    if match["escaped"] == "u":
        raise ValueRefusedError(f"{match.string[match.start() :][:8]!r} is not \\u and four hex digits")
    return "" if match["escaped"] == "0" else match["escaped"]


def _joined(pieces: list[str]) -> str:
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        # FileVault writes characters beyond the 16-bit plane as two escapes.
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise ValueRefusedError(f"{text[:40]!r} has half of a surrogate pair") from error


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return f"\\{character}" if character in "\\," else f"\\u{ord(character):04x}"

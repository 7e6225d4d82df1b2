"""Names as FileVault writes them: in the paths of a zip (platform names) and in XML (ISO 9075).

Platform names follow `PlatformNameFormat` of FileVault 4.2. Where FileVault does not get its own name back (`_<`) or
passes the name over (`.vlt`), the first character is written as `%xx`, which FileVault reads. So every name of ours
comes back, and every name that Jackrabbit writes is understood.

https://github.com/apache/jackrabbit-filevault/blob/jackrabbit-filevault-4.1.4/vault-core/src/main/java/org/apache/jackrabbit/vault/util/PlatformNameFormat.java
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

CONTENT_XML: Final = ".content.xml"
DIRECTORY_SUFFIX: Final = ".dir"
BINARY_SUFFIX: Final = ".binary"
XML_SUFFIX: Final = ".xml"

_ESCAPED: Final = r"\\<>|\"/?%\x00-\x1f\x7f"
_PLAIN: Final = re.compile(rf"[^_:{_ESCAPED}][^:{_ESCAPED}]*\Z")
_PREFIXED: Final = re.compile(rf"([^_:{_ESCAPED}]+):([^:{_ESCAPED}]+)\Z")
_TO_ESCAPE: Final = re.compile(rf"[:{_ESCAPED}]")
_PERCENT: Final = re.compile(r"%([0-9a-fA-F]{2})")
_IGNORED: Final = frozenset({".vlt", ".svn"})
_PROPERTY_FILE: Final = re.compile(r"(.+?)(?:\[(\d{1,6})\])?\.binary\Z", re.DOTALL)

_XML_PLAIN: Final = re.compile(r"(?!xmlns\Z|[0-9.-])(?:[A-Za-z0-9.-]|_(?!x))+\Z")
_XML_REFUSED: Final = re.compile(r"[^A-Za-z0-9_.-]|_(?=x[0-9a-fA-F]{4}_)|\A[0-9.-]|\Ax(?=mlns\Z)")
_XML_ESCAPE: Final = re.compile(r"((?:_x[0-9a-fA-F]{4}_)+)")
PREFIX: Final = r"[A-Za-z_][A-Za-z0-9._-]*"
"""A prefix of names in JCR that is one in XML."""
_XML_PREFIX: Final = re.compile(rf"(?!xmlns\Z){PREFIX}\Z")


# ---------------------------------------------------------------------------------------------------- platform names


def platform_name(name: str) -> str:
    """The name of a node or property as a segment of a zip path, before any suffix."""
    if _PLAIN.match(name):
        is_passed_over = name[0] == "." and (name == CONTENT_XML or is_ignored(name))
        return f"%2e{name[1:]}" if is_passed_over else name
    prefixed = _PREFIXED.match(name)
    if prefixed:
        return f"_{prefixed[1]}_{prefixed[2]}"
    mapped = _mapped(name)
    return mapped if repository_name(mapped) == name else f"%{ord(name[0]):02x}{_escape(name[1:])}"


def repository_name(platform: str) -> str:
    """The name of a node or property from a segment without suffix. A `%` without two hex digits stands for itself."""
    if platform[0] != "_" or len(platform) == 1:
        return _decode_percent(platform)
    if platform[1] == "_":
        return _decode_percent(platform[1:])
    # FileVault takes the character after a leading underscore as it is.
    first, (prefix, underscore, local) = platform[1], platform[2:].partition("_")
    if not underscore:
        return f"_{first}{_decode_percent(prefix)}"
    return f"{first}{_decode_percent(prefix)}:{_decode_percent(local)}"


@lru_cache(4096)
def directory_name(name: str) -> str:
    """The zip directory of a node: `.dir` at its end is taken off when it is read, so a name's own is doubled."""
    platform = platform_name(name)
    return platform + DIRECTORY_SUFFIX if name.endswith(DIRECTORY_SUFFIX) else platform


def is_reserved_file(name: str) -> bool:
    """Whether a file of that name is not read as a plain file. XML files depend on their content besides."""
    return name.endswith((DIRECTORY_SUFFIX, BINARY_SUFFIX))


def is_ignored(platform: str) -> bool:
    """Whether FileVault passes over an entry: its own bookkeeping and that of version control."""
    return platform in _IGNORED or platform.startswith(".vlt-")


def property_file_name(name: str, index: int | None) -> str:
    """The zip name of a property's binary; `index` counts the values of a multi-valued property from 0."""
    platform = platform_name(name).replace("[", "%5b")
    return f"{platform}{'' if index is None else f'[{index}]'}{BINARY_SUFFIX}"


def split_property_file(platform: str) -> tuple[str, int | None] | None:
    """Property and index of a `.binary` entry; None for other entries."""
    match = _PROPERTY_FILE.match(platform)
    if match is None:
        return None
    return repository_name(match[1]), None if match[2] is None else int(match[2])


def _mapped(name: str) -> str:
    before, colon, after = name.partition(":")
    if colon and before and "_" not in before:
        return f"_{_escape(before)}_{_escape(after)}"
    escaped = _escape(name)
    return f"_{escaped}" if name[0] == "_" and name.count("_") > 1 else escaped


def _escape(text: str) -> str:
    return _TO_ESCAPE.sub(lambda match: f"%{ord(match[0]):02x}", text)


def _decode_percent(text: str) -> str:
    return _PERCENT.sub(lambda match: chr(int(match[1], 16)), text) if "%" in text else text


# ---------------------------------------------------------------------------------------------------------- ISO 9075


@lru_cache(4096)
def xml_name(name: str) -> str:
    """The name of a node or property as an XML name: `jcr:content`, `a_x0020_b`.

    The prefix of a JCR name stays an XML prefix; a colon that can't be one is escaped with the rest.
    """
    prefix, colon, local = name.partition(":")
    if colon and local and ":" not in local and _XML_PREFIX.match(prefix):
        return f"{prefix}:{_xml_local(local)}"
    return _xml_local(name)


def decode_xml_name(local: str) -> str:
    """Undo the escapes of ISO 9075. Raises: ValueError for half of a surrogate pair."""
    if "_x" not in local:
        return local
    return _XML_ESCAPE.sub(_xml_characters, local)


def _xml_local(local: str) -> str:
    return local if _XML_PLAIN.match(local) else _XML_REFUSED.sub(_xml_escape, local)


def _xml_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"_x{units[at : at + 2].hex()}_" for at in range(0, len(units), 2))


def _xml_characters(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1].replace("_x", "").replace("_", "")).decode("utf-16-be")

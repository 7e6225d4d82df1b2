"""`properties.xml`: what a package says of itself, in the XML form of Java's properties.

Read by start tags and text; written with the DOCTYPE that Java's reader demands. Keys that change what the content
means and that we do not follow are refused rather than ignored: a `Path-Mapping` (Sling moves the content on import),
and a `packageFormatVersion` beyond 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from mailboat.errors import LimitExceededError, PackageCorruptError, UnknownRequiredFeatureError, UsageError
from mailboat.model.paths import NodePath, is_within
from mailboat.packages.filevault.markup import (
    attribute_pairs,
    can_hold,
    escape,
    escape_content,
    guarded_parser,
    parse_all,
)
from mailboat.packages.filevault.xml_namespaces import KNOWN
from mailboat.packages.port import AC_HANDLING, NAMESPACE_KEY

PROPERTIES_XML: Final = "META-INF/vault/properties.xml"
MAX_PROPERTIES_BYTES: Final = 1024 * 1024
FORMAT_VERSION: Final = 2
OWNS_ROOT: Final = "mailboat.ownsRoot"
"""Said by our packages of the root `/`: they replace all content, where FileVault keeps what it finds at the top."""
_REPLACED: Final = MappingProxyType({"generator": "Mailboat", "useBinaryReferences": "false"})
"""What a source's properties say of its file, and what is true of a package that is made of it."""

_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8" standalone="no"?>\n'
    '<!DOCTYPE properties SYSTEM "http://java.sun.com/dtd/properties.dtd">\n<properties>\n'
)
_INTEGER: Final = re.compile(r"[+-]?\d{1,40}")
_LARGEST_INTEGER: Final = 2**31 - 1
_HANDLINGS: Final = frozenset({"ignore", "overwrite", "merge", "merge_preserve", "clear"})
"""Values of `acHandling`. FileVault takes any other for `ignore`, which drops access control lists."""
DEFAULT_PROPERTIES: Final = (("group", "mailboat"), ("name", "package"), ("version", "1.0.0"))
"""Also of each package that a publisher makes."""
_IMMUTABLE: Final = (NodePath("/apps"), NodePath("/libs"))


def parse_properties(content: bytes) -> dict[str, str]:
    """Understand `properties.xml`. Raises: PackageCorruptError, LimitExceededError."""
    if len(content) > MAX_PROPERTIES_BYTES:
        raise LimitExceededError(
            f"an XML document has {len(content)} bytes", entry=PROPERTIES_XML, limit=MAX_PROPERTIES_BYTES
        )
    found: dict[str, str] = {}
    key: list[str] = []
    pieces: list[str] = []

    def start(name: str, attributes: list[str]) -> None:
        if name == "entry" and not key and "key" in attributes[::2]:
            key[:] = [attribute_pairs(attributes)["key"]]
        elif name not in ("properties", "comment"):
            raise PackageCorruptError(f"the element {name[:40]!r} is not known there", entry=PROPERTIES_XML)

    def text(characters: str) -> None:
        if key:
            pieces.append(characters)  # expat gives each line apart: adding them to a text would be quadratic

    def end(_: str) -> None:
        if key:
            found[key.pop()] = "".join(pieces)
        pieces.clear()

    parser = guarded_parser(PROPERTIES_XML)
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parse_all(parser, content, PROPERTIES_XML)
    return found


def check_properties(properties: Mapping[str, str]) -> None:
    """Refuse what we would misunderstand. Raises: UnknownRequiredFeatureError."""
    mapping = properties.get("Path-Mapping", "").strip()
    if mapping:
        raise UnknownRequiredFeatureError(
            f"the package maps paths on import ({mapping[:200]!r}), which is not supported",
            next_step="export the package without a path mapping",
            entry=PROPERTIES_XML,
        )
    version = properties.get("packageFormatVersion", "")
    # as Java's Integer.parseInt: FileVault takes any other text for its own version
    if _INTEGER.fullmatch(version) and FORMAT_VERSION < int(version) <= _LARGEST_INTEGER:
        raise UnknownRequiredFeatureError(
            f"the package has the format version {version}, known is up to {FORMAT_VERSION}",
            next_step=f"export the package with packageFormatVersion {FORMAT_VERSION}",
            entry=PROPERTIES_XML,
        )


def check_written(properties: Mapping[str, str]) -> None:
    """Refuse properties that readers of the package would refuse, ignore or take for others. Raises: UsageError."""
    for key, text in properties.items():
        if not can_hold(key) or not can_hold(text):
            raise UsageError(
                f"the property {key[:80]!r} has a character that XML can't hold: {text[:80]!r}",
                next_step="remove the character; a package without the property name is named after its file",
            )
        uri = KNOWN.get(key.removeprefix(NAMESPACE_KEY)) if key.startswith(NAMESPACE_KEY) else None
        if uri not in (None, text):
            raise UsageError(
                f"{key}={text[:200]} can't be declared: the prefix stands for {uri} in all packages",
                next_step="leave the property out, or rename the prefix in the source",
            )
    if not properties.get("name", "package").strip():
        raise UsageError("the name of a package can't be empty", next_step="leave it out, or pass --property name=NAME")
    handling = properties.get(AC_HANDLING)
    if handling is not None and handling.lower() not in _HANDLINGS:
        raise UsageError(
            f"acHandling can't be {handling[:80]!r}: FileVault would take it for ignore, and drop access control lists",
            next_step=f"one of {', '.join(sorted(_HANDLINGS))}: in the source, or by packages build --property",
        )
    try:
        check_properties(properties)
    except UnknownRequiredFeatureError as error:
        raise UsageError(f"no reader would accept the package: {error.args[0]}", next_step=error.next_step) from None


def replaces_root(properties: Mapping[str, str]) -> bool:
    """Whether a root `/` replaces all content: in packages of ours, also of publishers that did not say so."""
    return OWNS_ROOT in properties or all(properties.get(key) == text for key, text in DEFAULT_PROPERTIES)


def kept_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """What a package that is made of another one keeps: everything but what describes the other's file.

    A key that begins with `xmlns:` would decide about a prefix, see `PackageContents.properties`.
    """
    kept = {key: text for key, text in properties.items() if not key.startswith(NAMESPACE_KEY) and key != OWNS_ROOT}
    if kept.get(AC_HANDLING, "ignore").lower() not in _HANDLINGS:
        del kept[AC_HANDLING]  # which FileVault takes for the default
    return kept | {key: text for key, text in _REPLACED.items() if key in kept}


def format_properties(properties: Mapping[str, str]) -> str:
    """Write `properties.xml`; name, group and version have defaults."""
    wanted = dict(DEFAULT_PROPERTIES) | {
        key: value for key, value in properties.items() if not key.startswith(NAMESPACE_KEY)
    }
    entries = [f'<entry key="{escape(key)}">{escape_content(value)}</entry>\n' for key, value in sorted(wanted.items())]
    return f"{_HEAD}{''.join(entries)}</properties>\n"


def with_package_type(properties: Mapping[str, str], roots: Iterable[NodePath]) -> Mapping[str, str]:
    """The properties with a `packageType` that allows these roots.

    FileVault's validator refuses `/apps` and `/libs` in a package of type `content`, and all other paths, filter rules
    and index definitions in one of type `application`; `mixed` allows all of it.
    """
    if "packageType" in properties:
        return properties
    is_mixed = any(
        is_within(root, immutable) or is_within(immutable, root) for root in roots for immutable in _IMMUTABLE
    )
    return {**properties, "packageType": "mixed" if is_mixed else "content"}


def package_id(properties: Mapping[str, str]) -> str:
    """`group:name:version`, as FileVault names packages; without a colon for an empty version."""
    known = dict(DEFAULT_PROPERTIES) | dict(properties)
    version = known["version"]
    return f"{known['group']}:{known['name']}" + (f":{version}" if version else "")

"""How a tree lies in a folder: what the folder source reads, and the targets `files:` and `generations:` write.

A plain file is a file and a plain folder is a folder, verbatim. Any other node is a folder with the file `.node.json`,
which has its types, properties and order of children; its binaries lie next to it as `.node.<SHA-256>.bin`. A name
that would collide with these, or that the top folder keeps for itself, is written with the prefix `.node.name.`. The
top folder is the node `/` only where it has a `.node.json`; its `.node.namespaces.json` says what the prefixes in names
stand for. Specified in `docs/formats/folder.md`.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Final

from mailboat.errors import PackageCorruptError, PathRefusedError
from mailboat.model.namespaces import NamespaceTable, table_of
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import MAX_NAME_BYTES, NodePath
from mailboat.wire.node_bodies import OpenBinary, decode_node, encode_node

SIDECAR: Final = ".node.json"
NAMESPACES: Final = ".node.namespaces.json"
"""In the top folder: what the prefixes in names stand for."""

MAX_NAMESPACES_BYTES: Final = 32 * 1024 * 1024
MAX_SIDECAR_BYTES: Final = 64 * 1024 * 1024
STATE_FOLDER: Final = ".mailboat"
STATE_FILE: Final = "state.db"
KEPT_AT_TOP: Final = frozenset({STATE_FOLDER, ".git", "lost+found"})
"""Names in the top folder that are not content: our state, a repository's, and a file system's own entries."""

_RESERVED: Final = ".node."
_ESCAPE: Final = ".node.name."
_BINARY: Final = re.compile(r"\.node\.[0-9a-f]{64}\.bin\Z")


def names_on_disk(path: NodePath) -> list[str]:
    """The names from the top folder down to the node; none for `/`. Raises: PathRefusedError."""
    if path == "/":
        return []
    first, *others = path[1:].split("/")
    return [name_on_disk(first, is_at_top=True), *(name_on_disk(name) for name in others)]


def name_on_disk(name: str, *, is_at_top: bool = False) -> str:
    """A node's name on disk. Raises: PathRefusedError: a reserved name is too long to be escaped."""
    if not name.startswith(_RESERVED) and not (is_at_top and name in KEPT_AT_TOP):
        return name
    if len(name.encode(errors="surrogatepass")) + len(_ESCAPE) > MAX_NAME_BYTES:
        raise PathRefusedError(f"the name {name[:40]!r}… is reserved in folders and too long to be written otherwise")
    return _ESCAPE + name


def name_of_entry(entry: str, *, folder: str = "", is_at_top: bool = False) -> str | None:
    """The node's name for an entry of a folder; None for files of a node or of the top folder.

    Raises:
        PathRefusedError: It has a reserved name that no target writes, so a user's file would be left out in
            silence, or come back under another name. Or it is not valid UTF-8. Rename it.
    """
    if not entry.isprintable() and any("\ud800" <= character <= "\udfff" for character in entry):
        raise not_utf_8(entry, folder)
    if not entry.startswith(_RESERVED):
        return None if is_at_top and entry in KEPT_AT_TOP else entry
    if entry == SIDECAR or is_binary_file(entry) or (is_at_top and entry == NAMESPACES):
        return None
    name = entry.removeprefix(_ESCAPE)
    if name == entry or name_on_disk(name, is_at_top=is_at_top) != entry:
        place = f"{folder}/{entry}" if folder else entry
        raise PathRefusedError(
            f"{place!a} has a reserved name: {_RESERVED}* is for {SIDECAR}, for {_RESERVED}<SHA-256>.bin, "
            f"and for names that need the prefix {_ESCAPE}; rename it",
            path=place,
        )
    return name


def not_utf_8(entry: str, folder: str) -> PathRefusedError:
    """The refusal of an entry whose name is not UTF-8; its bytes are shown in hexadecimal."""
    name = os.fsencode(entry).decode(errors="backslashreplace")
    place = os.fsencode(folder).decode(errors="backslashreplace")
    return PathRefusedError(
        f"the file name {name} is not valid UTF-8" + (f", in {place}" if folder else ""),
        next_step="rename it, or convert the names of the whole folder with convmv",
        path=f"{place}/{name}",
    )


def binary_file(digest: bytes) -> str:
    """The name of the file that holds a binary of the node in whose folder it is."""
    return f".node.{digest.hex()}.bin"


def is_binary_file(entry: str) -> bool:
    """Whether an entry holds a binary."""
    return _BINARY.match(entry) is not None


def write_sidecar(node: Node) -> bytes:
    """The content of `.node.json`: canonical, for equal nodes equal."""
    document: dict[str, Any] = {"primaryType": node.primary_type}
    if node.mixin_types:
        document["mixinTypes"] = sorted(node.mixin_types)
    if node.properties:
        document["properties"] = [_property_entry(prop) for prop in sorted(node.properties, key=lambda one: one.name)]
    if node.child_order is not None:
        document["childOrder"] = list(node.child_order)
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def read_sidecar(path: NodePath, content: bytes, open_binary: OpenBinary) -> Node:
    """The node in a `.node.json`. Raises: PackageCorruptError, naming the path."""
    try:
        document = _object(json.loads(content))
        node = Node(
            path,
            _text(_member(document, "primaryType")),
            tuple(map(_text, _list(document.get("mixinTypes", [])))),
            tuple(_property(entry) for entry in _list(document.get("properties", []))),
            tuple(map(_text, _list(document["childOrder"]))) if "childOrder" in document else None,
        )
        record = encode_node(node)
    except (ValueError, TypeError, RecursionError) as error:
        reason = f"it is not JSON: {error}" if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) else error
        file = f"{path.rstrip('/')}/{SIDECAR}"
        raise PackageCorruptError(
            f"{file} does not describe a node: {reason!s:.200}",
            next_step=f"rename or remove {file}: {SIDECAR} is the file in which targets keep a node's properties",
            path=path,
        ) from error
    return decode_node(path, record.body, open_binary)


def write_namespaces(table: NamespaceTable) -> bytes:
    """The content of `.node.namespaces.json`: canonical, for equal tables equal."""
    document = {prefix: uris[0] if len(uris) == 1 else list(uris) for prefix, uris in sorted(table.items())}
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def read_namespaces(content: bytes, place: str) -> NamespaceTable:
    """What `.node.namespaces.json` says; `place` is for messages. Raises: PackageCorruptError."""
    try:
        found = _object(json.loads(content))
        lists = [(prefix, uris if isinstance(uris, list) else [uris]) for prefix, uris in found.items()]
        pairs = [(prefix, _text(uri)) for prefix, uris in lists for uri in uris]
        return table_of(sorted(set(pairs)))
    except (ValueError, TypeError, RecursionError, PackageCorruptError) as error:
        reason = error.message if isinstance(error, PackageCorruptError) else error
        raise PackageCorruptError(
            f"{place} does not name namespaces: {reason!s:.200}",
            next_step=f'correct {place}: an object of prefixes and URIs, such as {{"acme": "https://acme.example/ns"}}',
            file=place,
        ) from error


def _property_entry(one: Property) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": one.name, "type": one.type.name}
    values = [
        {"sha256": value.digest.hex(), "bytes": value.length_bytes} if isinstance(value, Binary) else value
        for value in one.values
    ]
    return entry | ({"values": values} if one.is_multiple else {"value": values[0]})


def _property(entry: object) -> Property:
    found = _object(entry)
    name, type_name = _text(_member(found, "name")), _text(_member(found, "type"))
    kind = PropertyType.__members__.get(type_name)
    if kind is None:
        known = ", ".join(PropertyType.__members__)
        raise ValueError(f"the property {name!r:.80} has the unknown type {type_name!r:.40}; expected one of {known}")
    is_multiple = "values" in found
    values = _list(found["values"]) if is_multiple else [_member(found, "value")]
    if kind is PropertyType.BINARY:
        return Property(name, tuple(map(_binary, values)), kind, is_multiple)
    return Property(name, tuple(map(_text, values)), kind, is_multiple)


def _binary(value: object) -> Binary:
    found = _object(value)
    digest, length = _text(_member(found, "sha256")), _member(found, "bytes")
    if not isinstance(length, int) or isinstance(length, bool) or length < 0:
        raise TypeError(f"{length!r:.80} is not a number of bytes")
    return Binary(digest=bytes.fromhex(digest), length_bytes=length)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.80} is not an object")
    return value


def _member(entry: dict[str, Any], name: str) -> Any:
    if name not in entry:
        raise ValueError(f"it has no member {name!r}")
    return entry[name]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} is not a list")
    return value

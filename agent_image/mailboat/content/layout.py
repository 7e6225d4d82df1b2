"""How a tree lies in a folder: what the folder source reads, and the targets `files:` and `generations:` write.

A plain file is a file and a plain folder is a folder, verbatim. Any other node is a folder with the file `.node.json`,
which tells its types, properties and order of children; its binaries lie beside it as `.node.<SHA-256>.bin`. A name
that would collide with these, or that the top folder keeps for itself, is written with the prefix `.node.name.`. The
top folder is the node `/` only where it has a `.node.json`. Specified in `docs/formats/folder.md`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from mailboat.errors import PackageCorruptError, PathRefusedError
from mailboat.model.nodes import Binary, Node, Property, PropertyType
from mailboat.model.paths import MAX_NAME_BYTES, NodePath
from mailboat.wire.nodes import OpenBinary, decode_node, encode_node

SIDECAR: Final = ".node.json"
MAX_SIDECAR_BYTES: Final = 64 * 1024 * 1024
STATE_FOLDER: Final = ".mailboat"
STATE_FILE: Final = "state.db"
KEPT_AT_TOP: Final = frozenset({STATE_FOLDER, ".git", "lost+found"})
"""What is no content in the top folder: our own state, a repository's, and what a file system puts on a new volume."""

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
    """How a node's name is written. Raises: PathRefusedError for a reserved name that is too long to be escaped."""
    if not name.startswith(_RESERVED) and not (is_at_top and name in KEPT_AT_TOP):
        return name
    if len(name.encode(errors="surrogatepass")) + len(_ESCAPE) > MAX_NAME_BYTES:
        raise PathRefusedError(f"the name {name[:40]!r}… is reserved in folders and too long to be written otherwise")
    return _ESCAPE + name


def name_of_entry(entry: str, *, folder: str = "", is_at_top: bool = False) -> str | None:
    """The node's name that an entry of a folder stands for; None for what belongs to a node, or to the top folder.

    Raises:
        PathRefusedError: It has a reserved name that no target writes, so somebody's file would be left out in
            silence, or come back under another name. Rename it.
    """
    if not entry.startswith(_RESERVED):
        return None if is_at_top and entry in KEPT_AT_TOP else entry
    if entry == SIDECAR or is_binary_file(entry):
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
        document["properties"] = [_property_entry(one) for one in sorted(node.properties, key=lambda one: one.name)]
    if node.child_order is not None:
        document["childOrder"] = list(node.child_order)
    return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def read_sidecar(path: NodePath, content: bytes, open_binary: OpenBinary) -> Node:
    """The node that a `.node.json` tells. Raises: PackageCorruptError, naming the path."""
    try:
        document = json.loads(content)
        node = Node(
            path,
            _text(document["primaryType"]),
            tuple(map(_text, _list(document.get("mixinTypes", [])))),
            tuple(_property(entry) for entry in _list(document.get("properties", []))),
            tuple(map(_text, _list(document["childOrder"]))) if "childOrder" in document else None,
        )
        record = encode_node(node)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise PackageCorruptError(f"{path}/{SIDECAR} does not tell a node: {error!r:.200}", path=path) from error
    return decode_node(path, record.body, open_binary)


def _property_entry(one: Property) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": one.name, "type": one.type.name}
    values = [_value_entry(value) for value in one.values]
    return entry | ({"values": values} if one.is_multiple else {"value": values[0]})


def _value_entry(value: str | Binary) -> Any:
    if isinstance(value, Binary):
        return {"sha256": value.digest.hex(), "bytes": value.length_bytes}
    return value


def _property(entry: dict[str, Any]) -> Property:
    kind = PropertyType[entry["type"]]
    is_multiple = "values" in entry
    values: Iterable[Any] = _list(entry["values"]) if is_multiple else [entry["value"]]
    if kind is PropertyType.BINARY:
        held = tuple(
            Binary(digest=bytes.fromhex(_text(value["sha256"])), length_bytes=int(value["bytes"])) for value in values
        )
        return Property(_text(entry["name"]), held, kind, is_multiple)
    return Property(_text(entry["name"]), tuple(map(_text, values)), kind, is_multiple)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not a text")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} is not a list")
    return value

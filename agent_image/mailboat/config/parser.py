"""Reads the text of a configuration: YAML, of which JSON is a part, with each key once.

YAML's own reader lets the last of two equal keys win, so a user's settings would be lost without an error.
Called by the home for every document that people write, and imported only then, as YAML takes its time. What the keys
mean, `decoder.py` decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from mailboat.config.decoder import ConfigInvalidError, LineOf

_DEEPEST: Final = 50
"""Levels of a document; the configuration has six. The composer in C recurses without a limit and would crash."""


class Parsed(NamedTuple):
    """A document as plain mappings and lists, and the line of a key in its text."""

    document: object
    line_of: LineOf


def parse_document(text: str, file: Path) -> Parsed:
    """The document in a text; `file` names it in messages.

    Raises:
        ConfigInvalidError: It is not YAML, or a mapping has a key twice.
    """
    try:
        safe_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it is built
        _refuse_depth(yaml.parse(text, safe_loader), file)
        loader = safe_loader(text)
        root = loader.get_single_node()
        for mapping in _mappings_in(root):
            _refuse_repeated(mapping, file)
            _read_words_as_keys(mapping.value)
        document: object = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigInvalidError(f"{file}{_reason_of(error)}", path=file) from error
    except ValueError as error:  # it has the form of a date or an integer, and an invalid value
        raise ConfigInvalidError(f"{file} has a value that is not valid YAML: {error}", path=file) from error
    return Parsed(document, partial(_line_of, root))


def _line_of(root: yaml.Node | None, key: str) -> int | None:
    """The line of a key such as `agents.subscribers[0].name`; of a key that is missing, that of what should have it."""
    node, rest = root, key
    line = None if root is None else root.start_mark.line + 1
    while rest and node is not None:
        name, marked, node = next(
            (found for found in _children_of(node) if re.match(rf"{re.escape(found[0])}(?:[.[]|$)", rest)),
            ("", None, None),
        )
        line = line if marked is None else marked.start_mark.line + 1
        rest = rest[len(name) :].removeprefix(".")
    return line


def _children_of(node: yaml.Node) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """What stands in a mapping or a list: how keys name it, the node that marks its line, its value."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((f"[{number}]", value, value) for number, value in enumerate(node.value))


def _refuse_depth(events: Iterable[yaml.Event], file: Path) -> None:
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ConfigInvalidError(f"{file} has more than {_DEEPEST} levels of mappings and lists", path=file)


def _mappings_in(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Every mapping of a document once, also where anchors make it come again."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _refuse_repeated(mapping: yaml.MappingNode, file: Path) -> None:
    lines: dict[str, int] = {}
    for key, _ in mapping.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            raise ConfigInvalidError(
                f"{file}:{line}: the key {name} is there twice, first in line {lines[name]}",
                next_step="merge the two sections into one",
                key=name,
            )
        lines[name] = line


def _read_words_as_keys(pairs: list[tuple[yaml.Node, yaml.Node]]) -> None:
    """Take the keys `on`, `off`, `yes` and `no` as written: YAML 1.1 makes booleans of them."""
    for number, (key, value) in enumerate(pairs):
        if key.tag == "tag:yaml.org,2002:bool":
            text = yaml.ScalarNode("tag:yaml.org,2002:str", key.value, key.start_mark, key.end_mark)
            pairs[number] = (text, value)


def _reason_of(error: yaml.YAMLError) -> str:
    """Where the text is not YAML, and why."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return f" is not YAML: {' '.join(str(error).split())}"
    return f":{mark.line + 1}:{mark.column + 1}: is not YAML: {problem}"

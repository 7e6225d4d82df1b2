"""Reads the text of a configuration: YAML, of which JSON is a part, with each key once.

YAML's own reader lets the last of two equal keys win, so half of what somebody wrote would be lost without a word.
Called by the home for every document that people write, and imported only then, as YAML takes its time. What the keys
mean, `decoding.py` knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from mailboat.config.decoding import ConfigInvalidError


def parse_document(text: str, file: Path) -> object:
    """The document in a text, as plain mappings and lists; `file` names it in messages.

    Raises:
        ConfigInvalidError: It is not YAML, or a mapping has a key twice.
    """
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)  # a safe loader, in C where it is built
        root = loader.get_single_node()
        for one in _mappings_in(root):
            _refuse_repeated(one, file)
        document: object = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigInvalidError(f"{file} is not YAML: {_reason_of(error)}", path=file) from error
    return document


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
                f"{file} has the key {name} twice, in line {lines[name]} and in line {line}",
                next_step="put what stands below both under one",
                key=name,
            )
        lines[name] = line


def _reason_of(error: yaml.YAMLError) -> str:
    """What is wrong and where, without what the parser was at."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"{problem}, in line {mark.line + 1}, column {mark.column + 1}"

"""The configuration for people: the commented file that `mailboat init` writes, and `docs/configuration.md`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from mailboat.config.decoder import article_of
from mailboat.config.document import Config
from mailboat.config.keys import REQUIRED, Key, keys_of
from mailboat.config.schema import SCHEMA_FILE, SCHEMA_ID

_WIDTH: Final = 100


def commented_yaml(config: Config) -> str:
    """The document as YAML with every key explained: what `mailboat init` writes."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_ID}",
        "# Mailboat's configuration. Every key may be left out; what stands here is what holds without it.",
    ]
    for key in keys_of(Config):
        lines += ["", *_key_lines(key, getattr(config, key.name), "")]
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """`docs/configuration.md`."""
    lines = [
        "# Configuration",
        "",
        "Generated from `mailboat/config/document.py` by `make docs`. A home keeps it in `mailboat.yaml`, which",
        "`mailboat init` writes with every key explained; `mailboat agent run --config FILE` takes any file, YAML or",
        "JSON. An unknown key is refused, with the nearest known one, and so is a key that stands twice.",
        "",
        "`mailboat config check FILE` refuses what `mailboat agent run --config FILE` would refuse, and names the line",
        "of each mistake. Relative paths are relative to the home, except for `agents.publishers[].source`, which is",
        "relative to the configuration's file. Integers are at most 9007199254740991 and other numbers at most 10^9,",
        "unless the type says another maximum.",
        "",
        f"Editors with a YAML language server complete and check keys by [`{SCHEMA_FILE}`]({SCHEMA_FILE}): the first",
        "line of the file that `mailboat init` writes names its address. `mailboat config schema` prints the schema of",
        "the installed version.",
    ]
    for key in keys_of(Config):
        lines += _section_page(key, key.name)
    return "\n".join(lines) + "\n"


def _section_page(section: Key, path: str) -> Iterator[str]:
    keys = list(keys_of(section.kind))
    path += "[]" if section.is_list else ""
    # the table above has the text of an inner section
    yield from ["", f"## {path}", *([] if "." in path else ["", section.setting.text])]
    yield from ["", "| key | type | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        default = "required" if key.default is REQUIRED else f"`{_scalar(key.default)}`"
        if key.is_section:
            default = "" if key.default is REQUIRED else "`null`" if key.default is None else "`[]`" * key.is_list
        yield f"| `{path}.{key.name}` | {_type_text(key)} | {default} | {key.setting.text} |"
    shown = dict[object, str]()
    for key in keys:
        if key.is_section and "file or env" not in _type_text(key):
            inner = f"{path}.{key.name}"
            if key.kind in shown:
                yield from ["", f"`{inner}` has the keys of `{shown[key.kind]}`."]
                continue
            shown[key.kind] = inner
            yield from _section_page(key, inner)


def _type_text(key: Key) -> str:
    text = _kind_text(key)
    if key.is_list:
        return f"list of {text}"
    # a default of null shows that null is a value
    return text + (" or null" if key.is_nullable and key.default is not None else "")


def _kind_text(key: Key) -> str:
    if key.is_section:
        names = [one.name for one in keys_of(key.kind)]
        return "file or env" if names == ["file", "env"] else "object"
    if key.is_choice:
        return ", ".join(f"`{choice}`" for choice in key.kind)
    text, least, most = article_of(key.kind).split(" ", 1)[1], key.setting.minimum, key.setting.maximum
    if least is None:
        return text
    return f"{text}, ≥ {least:.15g}" if most is None else f"{text}, {least:.15g} to {most:.15g}"


def _key_lines(key: Key, value: object, indent: str) -> Iterator[str]:
    yield from _comment(key.setting.text, indent)
    if value is None or value == ():
        yield f"{indent}{_scalar(key.name)}: {'null' if value is None else '[]'}"
    elif key.is_list:
        yield f"{indent}{_scalar(key.name)}:"
        for one in value:  # type: ignore[attr-defined]  # a list's value is a tuple
            yield from _item_lines(key, one, f"{indent}  ")
    elif key.is_section:
        yield f"{indent}{_scalar(key.name)}:"
        for one in keys_of(key.kind):
            yield from _key_lines(one, getattr(value, one.name), f"{indent}  ")
    else:
        yield f"{indent}{_scalar(key.name)}: {_scalar(value)}"


def _item_lines(key: Key, value: object, indent: str) -> Iterator[str]:
    if not key.is_section:
        yield f"{indent}- {_scalar(value)}"
        return
    yield f"{indent}-"
    for one in keys_of(key.kind):
        yield from _key_lines(one, getattr(value, one.name), f"{indent}  ")


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case tuple():
            return json.dumps([str(one) for one in value])
    text = str(value)
    is_plain = text[:1].isalpha() and text.replace("-", "").replace(".", "").replace("_", "").isalnum()
    return text if is_plain and text.lower() not in _WORDS else json.dumps(text)


_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def _comment(text: str, indent: str) -> Iterator[str]:
    for paragraph in text.split("\n\n")[:1]:
        yield from (f"{indent}# {line}" for line in textwrap.wrap(" ".join(paragraph.split()), _WIDTH - len(indent)))

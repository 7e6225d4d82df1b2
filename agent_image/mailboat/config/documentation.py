"""The configuration for people: the commented file that `mailboat init` writes, and `docs/configuration.md`."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from mailboat.config.decoder import article_of
from mailboat.config.document import Config
from mailboat.config.schema import SCHEMA_FILE, SCHEMA_ID
from mailboat.config.section_keys import REQUIRED, Declaration, keys_of

_WIDTH: Final = 100


def commented_yaml(config: Config) -> str:
    """The document as YAML with every key explained: what `mailboat init` writes."""
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_ID}",
        "# Mailboat's configuration. Every key is optional: without it its default applies.",
    ]
    for key in keys_of(Config):
        lines += ["", *_key_lines(key, getattr(config, key.name), "")]
    return "\n".join(lines) + "\n"


def configuration_page() -> str:
    """`docs/configuration.md`."""
    lines = [
        "# Configuration",
        "",
        "Generated from `mailboat/config/document.py` by `make docs`. `mailboat init` writes the file `mailboat.yaml`",
        "of a home with every key explained; `agent run` takes any file, YAML or JSON. Unknown and duplicate keys are",
        "refused. `config check` refuses what `agent run` would refuse, and names the line of each mistake.",
        "",
        "```",
        "mailboat config check agent.yaml",
        "mailboat agent run --config agent.yaml",
        "```",
        "",
        "- A key without a default is null or an empty list (`[]`), unless it is required. A type that is not",
        "  stated is that of the default; without a default it is a string or a section.",
        "- Paths are relative to the home, except for `agents.publishers[].source`, which is relative to the file.",
        "- Integers are at most 9007199254740991, other numbers at most 10^9, unless another maximum is stated.",
        "- `file or env`: a secret, as `{file: PATH}` or `{env: NAME}`.",
        f"- Editors complete and check keys by [`{SCHEMA_FILE}`]({SCHEMA_FILE}), which the file's first line names.",
        "  `mailboat config schema` prints the schema of the installed version.",
    ]
    for key in keys_of(Config):
        lines += ["", f"## {key.name}", "", key.setting.text, "", *_lines_below(key, key.name, {})]
    return "\n".join(lines) + "\n"


def _lines_below(section: Declaration, path: str, shown: dict[object, str]) -> Iterator[str]:
    """A line for each key of a section; those of an inner section follow its own line, unless `shown` has them."""
    for key in keys_of(section.kind):
        inner = f"{path}.{key.name}{'[]' * key.is_list}"
        is_section = key.is_section and "file or env" not in _type_text(key)
        facts = [] if is_section else list(_shown_type(key))
        if key.default is REQUIRED and not key.is_section:
            facts.append("required")
        elif key.default not in (REQUIRED, None, ()) and not key.is_section:
            facts.append(f"default `{_scalar(key.default)}`")
        like = f" Keys: those of `{shown[key.kind]}`." if is_section and key.kind in shown else ""
        known = f" ({', '.join(facts)})" if facts else ""
        yield f"- `{inner}`{known}: {key.setting.text}{like}"
        if is_section and not like:
            shown[key.kind] = inner
            yield from _lines_below(key, inner, shown)


def _shown_type(key: Declaration) -> Iterator[str]:
    """The type, without what the default or the sentence shows; a key without one is a string."""
    if key.is_choice and all(f"{choice}: " in key.setting.text for choice in key.kind):
        return
    text = _type_text(key)
    if key.default not in (REQUIRED, None, ()):
        text = re.sub(r"^(integer|number|boolean|string)(, |(?= or null)|$)", "", text).strip()
    if text and text != "string":
        yield text


def _type_text(key: Declaration) -> str:
    text = _kind_text(key)
    if key.is_list:
        return text
    # without a default null is a value anyway
    return text + (" or null" if key.is_nullable and key.default is not None else "")


def _kind_text(key: Declaration) -> str:
    if key.is_section:
        names = [inner.name for inner in keys_of(key.kind)]
        return "file or env" if names == ["file", "env"] else "object"
    if key.is_choice:
        return ", ".join(f"`{choice}`" for choice in key.kind)
    text, least, most = article_of(key.kind).split(" ", 1)[1], key.setting.minimum, key.setting.maximum
    if least is None:
        return text
    return f"{text}, ≥ {least:.15g}" if most is None else f"{text}, {least:.15g} to {most:.15g}"


def _key_lines(key: Declaration, value: object, indent: str) -> Iterator[str]:
    yield from _comment(key.setting.text, indent)
    if value is None or value == ():
        yield f"{indent}{_scalar(key.name)}: {'null' if value is None else '[]'}"
    elif key.is_list:
        yield f"{indent}{_scalar(key.name)}:"
        for item in value:  # type: ignore[attr-defined]  # a list's value is a tuple
            yield from _item_lines(key, item, f"{indent}  ")
    elif key.is_section:
        yield f"{indent}{_scalar(key.name)}:"
        for inner in keys_of(key.kind):
            yield from _key_lines(inner, getattr(value, inner.name), f"{indent}  ")
    else:
        yield f"{indent}{_scalar(key.name)}: {_scalar(value)}"


def _item_lines(key: Declaration, value: object, indent: str) -> Iterator[str]:
    if not key.is_section:
        yield f"{indent}- {_scalar(value)}"
        return
    yield f"{indent}-"
    for inner in keys_of(key.kind):
        yield from _key_lines(inner, getattr(value, inner.name), f"{indent}  ")


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
            return json.dumps([str(item) for item in value])
    text = str(value)
    is_plain = text[:1].isalpha() and text.replace("-", "").replace(".", "").replace("_", "").isalnum()
    return text if is_plain and text.lower() not in _WORDS else json.dumps(text)


_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def _comment(text: str, indent: str) -> Iterator[str]:
    for paragraph in text.split("\n\n")[:1]:
        yield from (f"{indent}# {line}" for line in textwrap.wrap(" ".join(paragraph.split()), _WIDTH - len(indent)))

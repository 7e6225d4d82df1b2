"""The document that configures Mailboat: `mailboat.yaml` of a home, and what the operator renders for a pod.

One encoder, one decoder. The records below are the only place where a setting, its default, its range and its
explanation are written down: the decoder, the JSON Schema, the commented file that `mailboat init` writes and
`docs/configuration.md` all come from them. A key that nobody knows is refused with the nearest one that somebody does.
Called by `agent` and by the operator; knows nothing of the engine.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin

from mailboat.errors import UsageError

DAY_SECONDS: Final = 24 * 3600.0
KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
GIBIBYTE: Final = 1024 * MEBIBYTE


class ConfigInvalidError(UsageError):
    """The configuration has a key that does not exist, or a value that can't be meant. Nothing was started.

    The message names the key. `docs/configuration.md` lists all keys; `mailboat init --print` shows the defaults.
    """


@dataclass(frozen=True)
class Setting:
    """What is said of one key: a sentence, the smallest value allowed, and a pattern for texts."""

    text: str
    minimum: float | None = None


class JournalKind(enum.StrEnum):
    """The journals that an agent can be given."""

    SQLITE = "sqlite"


class BlobsKind(enum.StrEnum):
    """The blob stores that an agent can be given."""

    DIRECTORY = "directory"


class PackageType(enum.StrEnum):
    """The package formats that a publisher can write."""

    TREE = "tree"
    FILEVAULT = "filevault"


@dataclass(frozen=True)
class JournalConfig:
    """The persisted log."""

    kind: Annotated[JournalKind, Setting("What keeps the log.")] = JournalKind.SQLITE
    path: Annotated[str, Setting("File of the SQLite journal; relative to the home.")] = "journal.db"
    topic_prefix: Annotated[str, Setting("Put before the topic names, where several systems share a log.")] = ""


@dataclass(frozen=True)
class BlobsConfig:
    """Where large binaries and large packages are kept, by content hash."""

    kind: Annotated[BlobsKind, Setting("What keeps the blobs.")] = BlobsKind.DIRECTORY
    path: Annotated[str, Setting("Folder of the blobs; relative to the home.")] = "blobs"


@dataclass(frozen=True)
class RetentionConfig:
    """How long the journal keeps messages. A subscriber that stays away longer stops as JournalTrimmed."""

    package_seconds: Annotated[
        float | None, Setting("Age at which packages may go; null keeps them for ever.", minimum=1)
    ] = 7 * DAY_SECONDS
    status_seconds: Annotated[
        float | None, Setting("Age at which statuses, commands, announcements and events may go.", minimum=1)
    ] = 7 * DAY_SECONDS


@dataclass(frozen=True)
class LimitsConfig:
    """What is taken from others. Input beyond a limit is refused before anything is written."""

    max_entries: Annotated[int, Setting("Nodes or archive entries of one package.", minimum=1)] = 1_000_000
    max_entry_bytes: Annotated[int, Setting("One binary or archive entry, unpacked.", minimum=1)] = 16 * GIBIBYTE
    max_total_bytes: Annotated[int, Setting("All of a package, unpacked.", minimum=1)] = 64 * GIBIBYTE
    max_ratio: Annotated[float, Setting("Unpacked ÷ packed size.", minimum=1)] = 200.0
    max_xml_depth: Annotated[int, Setting("Nested elements of a DocView document.", minimum=1)] = 110
    are_collisions_refused: Annotated[
        bool, Setting("Refuse two names in one folder that differ in case or Unicode form only.")
    ] = True


@dataclass(frozen=True)
class PublisherConfig:
    """Defaults of `publish`, `delete`, `invalidate` and `ping`."""

    name: Annotated[str, Setting("Name of the publisher when `--publisher` is not given.")] = "author"
    package_type: Annotated[PackageType, Setting("Format of the packages.")] = PackageType.TREE
    inline_package_bytes: Annotated[
        int, Setting("Packages up to this size travel in the message, larger ones through the blob store.", minimum=0)
    ] = 800 * KIBIBYTE
    inline_binary_bytes: Annotated[
        int, Setting("Binaries up to this size travel in the package, larger ones through the blob store.", minimum=0)
    ] = 64 * KIBIBYTE
    changed_package_bytes: Annotated[
        int, Setting("Content that one package of `publish --changed` carries at most, about.", minimum=1)
    ] = 4 * MEBIBYTE


@dataclass(frozen=True)
class SubscriberConfig:
    """Defaults of `subscribe`."""

    max_retries: Annotated[
        int | None, Setting("Attempts after the first before a package is given up; null tries for ever.", minimum=0)
    ] = 10
    first_pause_seconds: Annotated[float, Setting("Pause after the first failure; it doubles.", minimum=0)] = 1.0
    longest_pause_seconds: Annotated[float, Setting("The longest pause between attempts.", minimum=0)] = 300.0
    max_batch_records: Annotated[int, Setting("Packages imported in one transaction at most.", minimum=1)] = 100
    max_batch_bytes: Annotated[int, Setting("Bytes of messages read at once at most.", minimum=1)] = 4 * MEBIBYTE
    package_timeout_seconds: Annotated[
        float | None, Setting("Time that importing one package may take; null sets no limit.", minimum=0)
    ] = 3600.0
    shutdown_seconds: Annotated[
        float, Setting("Time for the package at hand when the process is told to stop.", minimum=0)
    ] = 25.0
    announce_seconds: Annotated[float, Setting("Pause between announcements when nothing happens.", minimum=0.1)] = 10.0


@dataclass(frozen=True)
class Config:
    """The whole document."""

    journal: JournalConfig = field(default_factory=JournalConfig)
    blobs: BlobsConfig = field(default_factory=BlobsConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    publisher: PublisherConfig = field(default_factory=PublisherConfig)
    subscriber: SubscriberConfig = field(default_factory=SubscriberConfig)


R = TypeVar("R")


class Key(NamedTuple):
    """One key of a section, as the records declare it."""

    name: str
    kind: Any
    is_nullable: bool
    setting: Setting
    default: Any


# ------------------------------------------------------------------------------------------------ decode and encode


def decode_config(document: object, *, where: str = "the configuration") -> Config:
    """Read a document, as YAML or JSON gave it. An empty one is all defaults.

    Args:
        document: A mapping, or None.
        where: Names the document in messages: its file.

    Raises:
        ConfigInvalidError: Naming the key, with the nearest known one where there is one.
    """
    return _decode_record(Config, {} if document is None else document, where, "")


def encode_config(config: Config) -> dict[str, dict[str, Any]]:
    """The document of a configuration, every key written out: plain mappings, texts, numbers and truth values."""
    return {
        section.name: {key.name: _plain(getattr(getattr(config, section.name), key.name)) for key in keys_of(record)}
        for section, record in _sections()
    }


def _decode_record(kind: type[R], document: object, where: str, prefix: str) -> R:
    if not isinstance(document, Mapping):
        raise ConfigInvalidError(f"{where}: {prefix.rstrip('.') or 'the document'} is not a mapping of keys to values")
    known = {one.name: _section_kind(one) for one in fields(kind)}  # type: ignore[arg-type]  # they are dataclasses
    keys = {} if kind is Config else {key.name: key for key in keys_of(kind)}
    values: dict[str, Any] = {}
    for name, value in document.items():
        if name not in known:
            raise _unknown_key(where, prefix, str(name), list(known))
        section = known[name]
        if section is not None:
            values[name] = _decode_record(section, {} if value is None else value, where, f"{name}.")
        else:
            values[name] = _decode_value(keys[name], value, f"{where}: {prefix}{name}")
    return kind(**values)


def _unknown_key(where: str, prefix: str, name: str, known: list[str]) -> ConfigInvalidError:
    import difflib  # noqa: PLC0415  # for the unlucky only

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"known here: {', '.join(known)}"
    return ConfigInvalidError(f"{where}: there is no key {prefix}{name}", next_step=hint, key=f"{prefix}{name}")


def _decode_value(key: Key, value: object, where: str) -> Any:
    if value is None:
        if key.is_nullable:
            return None
        raise ConfigInvalidError(f"{where} can't be null")
    if issubclass(key.kind, enum.StrEnum):
        return _decode_choice(key.kind, value, where)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key.kind is float and is_number:
        value = float(typing.cast("float", value))
    if type(value) is not key.kind:
        raise ConfigInvalidError(f"{where} is {value!r}, but must be {_article(key.kind)}")
    if key.setting.minimum is not None and not typing.cast("float", value) >= key.setting.minimum:
        raise ConfigInvalidError(f"{where} is {value!r}, the smallest allowed is {key.setting.minimum:g}")
    return value


def _decode_choice(kind: type[enum.StrEnum], value: object, where: str) -> enum.StrEnum:
    try:
        return kind(str(value))
    except ValueError as error:
        raise ConfigInvalidError(f"{where} is {value!r}, but must be one of {', '.join(kind)}") from error


def _plain(value: object) -> object:
    return str(value) if isinstance(value, enum.StrEnum) else value


# ---------------------------------------------------------------------------------------------- what the records say


def keys_of(record: type) -> Iterator[Key]:
    """The keys of a section, in order."""
    hints = typing.get_type_hints(record, include_extras=True)
    for one in fields(record):
        kind, setting = get_args(hints[one.name])[:2]
        options = [option for option in get_args(kind) if option is not types.NoneType]
        is_nullable = get_origin(kind) is types.UnionType
        yield Key(one.name, options[0] if is_nullable else kind, is_nullable, setting, _default(one))


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the document, for editors and for the operator's tests."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Mailboat configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": {section.name: _section_schema(record) for section, record in _sections()},
    }


def commented_yaml(config: Config) -> str:
    """The document as YAML with every key explained: what `mailboat init` writes."""
    lines = ["# Mailboat's configuration. Every key may be left out; what stands here is what holds without it.", ""]
    for section, record in _sections():
        lines += [*_comment(record.__doc__ or "", ""), f"{section.name}:"]
        for key in keys_of(record):
            lines += _comment(key.setting.text, "  ")
            lines.append(f"  {key.name}: {_yaml_scalar(getattr(getattr(config, section.name), key.name))}")
        lines.append("")
    return "\n".join(lines)


def configuration_page() -> str:
    """`docs/configuration.md`."""
    lines = [
        "# Configuration",
        "",
        "Generated from `mailboat/config.py` by `make docs`. A home keeps it in `mailboat.yaml`, which `mailboat init`",
        "writes with every key explained. An unknown key is refused, with the nearest known one.",
    ]
    for section, record in _sections():
        lines += ["", f"## {section.name}", "", record.__doc__ or "", "", "| key | type | default | meaning |"]
        lines.append("|---|---|---|---|")
        lines += [
            f"| `{section.name}.{key.name}` | {_type_text(key)} | `{_yaml_scalar(key.default)}` | {key.setting.text} |"
            for key in keys_of(record)
        ]
    return "\n".join(lines) + "\n"


def _sections() -> Iterator[tuple[Field[Any], type]]:
    for one in fields(Config):
        record = _section_kind(one)
        if record is not None:
            yield one, record


def _section_kind(one: Field[Any]) -> type | None:
    factory: object = one.default_factory
    return factory if isinstance(factory, type) and is_dataclass(factory) else None


def _default(one: Field[Any]) -> Any:
    return None if one.default is MISSING else one.default  # every key has one; sections have factories


def _section_schema(record: type) -> dict[str, Any]:
    return {
        "type": "object",
        "description": record.__doc__,
        "additionalProperties": False,
        "properties": {key.name: _key_schema(key) for key in keys_of(record)},
    }


_JSON_TYPES: Final = types.MappingProxyType({str: "string", int: "integer", float: "number", bool: "boolean"})


def _key_schema(key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": key.setting.text, "default": _plain(key.default)}
    if issubclass(key.kind, enum.StrEnum):
        return {**schema, "type": "string", "enum": list(map(str, key.kind))}
    name = _JSON_TYPES[key.kind]
    schema["type"] = [name, "null"] if key.is_nullable else name
    return schema if key.setting.minimum is None else {**schema, "minimum": key.setting.minimum}


def _type_text(key: Key) -> str:
    if issubclass(key.kind, enum.StrEnum):
        return " or ".join(f"`{choice}`" for choice in key.kind)
    text = _article(key.kind)
    if key.setting.minimum is not None:
        text += f", ≥ {key.setting.minimum:g}"
    return text + (" or null" if key.is_nullable else "")


def _article(kind: type) -> str:
    return {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]


def _yaml_scalar(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
    text = str(value)
    return text if text and text.replace("-", "").replace(".", "").replace("_", "").isalnum() else f'"{text}"'


def _comment(text: str, indent: str) -> list[str]:
    import textwrap  # noqa: PLC0415  # for new homes only

    return [f"{indent}# {line}" for line in textwrap.wrap(text, 100 - len(indent))]

"""The embedded home: one folder with everything that Mailboat needs on a single machine.

    mailboat.yaml         configuration, every key explained
    instance              which instance this is: the Sling id of its agents
    journal.db, blobs/    the log and the large binaries
    publishers/           what publishers remember: receipts of requests, what `--changed` compares with
    subscribers/NAME.yaml which target a subscriber has, so that `status` and `errors` can find it

Made by `mailboat init`, found by every command through `--home` or MAILBOAT_HOME. Nothing here is needed to read a
target: a target knows its own position.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mailboat.config.decoding import ConfigInvalidError, decode_config, encode_config
from mailboat.config.document import Config
from mailboat.errors import MailboatError, StorageFullError, StorageReadOnlyError, UsageError
from mailboat.model.identifiers import SLING_ID_LENGTH, AgentName, SlingId, parse_agent_name

CONFIG_FILE: Final = "mailboat.yaml"
INSTANCE_FILE: Final = "instance"
KEPT_CONFIG_FILE: Final = ".mailboat.json"


class HomeMissingError(UsageError):
    """There is no Mailboat home at the folder that was named. `mailboat init` makes one.

    The home is `.mailboat` in the current folder unless `--home` or MAILBOAT_HOME says otherwise.
    """


class HomeExistsError(UsageError):
    """`mailboat init` was asked to make a home, or a new journal, where there is one already. Nothing was changed.

    Use what is there, or name another place with `--home`. A home whose journal is lost gets a new one by
    `mailboat init --new-journal`.
    """


@dataclass(frozen=True, slots=True)
class KnownSubscriber:
    """A subscriber that was started from this home.

    Attributes:
        name: Its name.
        target: Its target with an absolute path, such as `files:/srv/site`.
        follow: The publishers that it follows; empty follows all.
        max_retries: What was asked for at its last start; None is what the configuration says.
    """

    name: AgentName
    target: str
    follow: tuple[AgentName, ...] = ()
    max_retries: int | None = None


class Home:
    """An existing home. Cheap to make: the configuration is read when first asked for."""

    def __init__(self, path: Path) -> None:
        """Find the home. Raises: HomeMissingError."""
        self.path = path
        if not (path / CONFIG_FILE).is_file():
            raise HomeMissingError(
                f"there is no Mailboat home at {path}", next_step=f"mailboat --home {path} init", home=path.absolute()
            )
        self.config = read_config(path / CONFIG_FILE)

    @property
    def journal_path(self) -> Path:
        """The SQLite journal."""
        return self.path / self.config.journal.path

    @property
    def blobs_path(self) -> Path:
        """The folder of blobs."""
        return self.path / self.config.blobs.path

    @property
    def publishers_path(self) -> Path:
        """What publishers remember."""
        return self.path / "publishers"

    @property
    def sling_id(self) -> SlingId:
        """The instance that this home's agents run in. Raises: ConfigInvalidError when the file was damaged."""
        text = _read_text(self.path / INSTANCE_FILE).strip()
        if len(text) != SLING_ID_LENGTH:
            raise ConfigInvalidError(f"{self.path / INSTANCE_FILE} does not hold an id of {SLING_ID_LENGTH} characters")
        return SlingId(text)

    def remember_subscriber(self, known: KnownSubscriber) -> None:
        """Write down which target a subscriber has, if that is news."""
        if self.known_subscriber(known.name) == known:
            return
        document = {"target": known.target, "follow": list(known.follow), "max_retries": known.max_retries}
        write_text(self._registry_file(known.name), json.dumps(document) + "\n")

    def known_subscriber(self, name: AgentName) -> KnownSubscriber | None:
        """What is known of a subscriber. Raises: ConfigInvalidError when its file can't be understood."""
        file = self._registry_file(name)
        return _decode_known(name, _parse_entry(_read_text(file), file), file) if file.is_file() else None

    def known_subscribers(self) -> Sequence[KnownSubscriber]:
        """All subscribers that were started from this home, by name."""
        names = sorted(parse_agent_name(file.stem) for file in self._registry.glob("*.yaml"))
        return [known for known in map(self.known_subscriber, names) if known is not None]

    @property
    def _registry(self) -> Path:
        return self.path / "subscribers"

    def _registry_file(self, name: AgentName) -> Path:
        return self._registry / f"{name}.yaml"


def create_home(path: Path, config: Config) -> Home:
    """Make a home: folders, configuration, instance id. The configuration comes last: with it the home exists.

    Raises:
        HomeExistsError: There is one already.
        StorageReadOnlyError, StorageFullError.
    """
    import uuid

    from mailboat.config.pages import commented_yaml

    if (path / CONFIG_FILE).exists():
        is_whole = Home(path).journal_path.exists()
        step = None if is_whole else f"mailboat --home {path} init --new-journal"
        raise HomeExistsError(f"{path} is a Mailboat home already", next_step=step, home=path.absolute())
    for folder in (path, path / "publishers", path / "subscribers"):
        _make_folder(folder)
    if not (path / INSTANCE_FILE).exists():
        write_text(path / INSTANCE_FILE, f"{uuid.uuid4()}\n")
    write_text(path / CONFIG_FILE, commented_yaml(config))
    return Home(path)


def home_without_journal(path: Path) -> Home:
    """A home whose journal was lost, to be given a new one.

    Raises:
        HomeMissingError: There is no home at all.
        HomeExistsError: There is a journal, or the log of one that SQLite would replay into a new one.
    """
    home = Home(path)
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = home.journal_path.with_name(home.journal_path.name + suffix)
        if file.exists():
            raise HomeExistsError(f"{file} is there; a new journal would take its place", home=path.absolute())
    return home


def read_config(file: Path) -> Config:
    """Read a configuration file. Raises: ConfigInvalidError.

    What the file says is kept beside it as JSON, under the digest of its text: reading YAML takes longer than all else
    that a quick command does.
    """
    text = _read_text(file)
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = file.with_name(KEPT_CONFIG_FILE)
    document = _read_kept(kept, digest)
    if document is None:
        document = _parse_yaml(text, file)
        config = decode_config(document, where=str(file))
        with suppress(MailboatError):  # a home that can't be written is read all the same
            write_text(kept, json.dumps({"digest": digest, "document": encode_config(config)}))
        return config
    return decode_config(document, where=str(file))


def _read_kept(file: Path, digest: str) -> object:
    try:
        kept = json.loads(file.read_bytes())
        return kept["document"] if kept["digest"] == digest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_text(file: Path, text: str) -> None:
    """Replace a file as a whole, durably. Raises: StorageReadOnlyError, StorageFullError."""
    draft = file.with_name(f".{file.name}.{os.getpid()}.new")
    try:
        with draft.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _storage_error(file, error) from error


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _storage_error(folder, error) from error


def _storage_error(path: Path, error: OSError) -> MailboatError:
    kind = StorageFullError if error.errno in _FULL else StorageReadOnlyError
    return kind(f"{path} can't be written: {error.strerror}", path=path)


_FULL: Final = frozenset({28, 122})  # ENOSPC, EDQUOT


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalidError(f"{file} can't be read: {error}", path=file) from error


def _parse_yaml(text: str, file: Path) -> object:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document: object = yaml.load(text, Loader=loader)  # noqa: S506  # a safe loader, in C where it is built
    except yaml.YAMLError as error:
        raise ConfigInvalidError(f"{file} is not YAML: {' '.join(str(error).split())}", path=file) from error
    return document


def _parse_entry(text: str, file: Path) -> object:
    """A registry entry, which is JSON as this program writes it, and any YAML as people may."""
    try:
        document: object = json.loads(text)
    except ValueError:
        return _parse_yaml(text, file)
    return document


def _decode_known(name: AgentName, document: object, file: Path) -> KnownSubscriber:
    match document:
        case {"target": str(target), "follow": list(follow), "max_retries": int() | None as max_retries}:
            return KnownSubscriber(name, target, tuple(parse_agent_name(str(one)) for one in follow), max_retries)
    raise ConfigInvalidError(f"{file} does not say target, follow and max_retries", path=file)

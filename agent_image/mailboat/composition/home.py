"""The home: one folder with the state of what runs here, and with all that is needed on a single machine.

    mailboat.yaml         configuration, every key explained; `agent run --config FILE` takes another file instead
    configuration         where the configuration is, when it is in another file: `agent run --config FILE` notes it
    instance              which instance this is: the Sling id of its agents
    journal.db, blobs/    the log and the large binaries
    publishers/           what publishers remember: receipts of requests, what `--changed` compares with
    subscribers/NAME.yaml which target a subscriber has, so that `status` and `errors` can find it
    subscribers/NAME.lock held while that subscriber runs

Made by `mailboat init`, or by the first `agent run` with a configuration from elsewhere; found by every command through
`--home` or MAILBOAT_HOME. Relative paths in a configuration are relative to the home, except for the sources of
publishers, which are relative to the configuration's file. Nothing here is needed to read a target: a target stores its
own position.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mailboat.composition.environment import DEFAULT_HOME, expanded_path
from mailboat.composition.places import check_folder_place
from mailboat.config.decoder import (
    ConfigInvalidError,
    decode_config,
    decode_record,
    encode_changes,
    encode_record,
)
from mailboat.config.document import Config, Expose
from mailboat.config.documentation import commented_yaml
from mailboat.content.locations import TARGET_KINDS
from mailboat.durable_file import Draft, replaced_file
from mailboat.errors import MailboatError, StorageFailedError, StorageFullError, StorageReadOnlyError, UsageError
from mailboat.faults import Fault, fault_of
from mailboat.folder_handle import FolderHandle, make_path
from mailboat.frozen import Frozen
from mailboat.model.identifiers import SLING_ID_LENGTH, AgentName, SlingId, natural_key, parse_agent_name

if TYPE_CHECKING:
    from mailboat.config.parser import Parsed

CONFIG_FILE: Final = "mailboat.yaml"
NOTE_FILE: Final = "configuration"
INSTANCE_FILE: Final = "instance"
KEPT_CONFIG_FILE: Final = ".mailboat.json"


class HomeMissingError(UsageError):
    """The folder is not a Mailboat home. `mailboat init` creates one.

    Default: `.mailboat` in the current folder; `--home` or MAILBOAT_HOME names another.
    """


class HomeExistsError(UsageError):
    """`mailboat init` found an existing home or journal. Nothing was changed.

    Use it, or name another place with `--home`. If its journal is lost: `mailboat init --new-journal`.
    """


class RegisteredSubscriber(Frozen):
    """A subscriber that was started from this home.

    Attributes:
        name: Its name.
        target: Its target with an absolute path, such as `files:/srv/site`.
        follow: The publishers that it follows; empty follows all.
        max_retries: What was asked for at its last start; None is what the configuration says.
        expose: When readers see what was imported, if that was asked for; None is what the configuration says.
        pool: The instance of the shared pool that it is; None of a subscriber with a target of its own.
    """

    name: AgentName
    target: str
    follow: tuple[AgentName, ...] = ()
    max_retries: int | None = None
    expose: Expose | None = None
    pool: SlingId | None = None


class Home:
    """A home with its configuration: its own, or one from elsewhere."""

    def __init__(self, path: Path, config: Config | None = None, config_file: Path | None = None) -> None:
        """Read the home's configuration, unless one is given. Raises: HomeMissingError, ConfigInvalidError.

        Args:
            path: Where the state is.
            config: The configuration.
            config_file: Where it was read from; the home's own file when left out.
        """
        self.path = path
        self.config_file = path / CONFIG_FILE if config_file is None else config_file
        if config is not None:
            self.config = config
        elif self.config_file.is_file():
            self.config = read_config(self.config_file)
        else:
            self.config_file = _noted_config_file(path)
            self.config = parse_config(self.config_file)

    @property
    def is_made(self) -> bool:
        """Whether it has an identity: its journal was made, and is never replaced automatically."""
        return (self.path / INSTANCE_FILE).is_file()

    def resolve(self, location: str) -> str:
        """A target of the configuration, such as `files:DIR`, with its place relative to the home."""
        return _resolved(location, self.path)

    def configured_target(self, target: str) -> str:
        """The target of a configured subscriber that a client names as the configuration does, else that text itself.

        Texts are compared, and no path of a client is opened.
        """
        return next((self.resolve(target) for one in self.config.agents.subscribers if one.target == target), target)

    def resolve_source(self, location: str) -> str:
        """A source of the configuration, with its place relative to the configuration's file."""
        return _resolved(location, self.config_file.parent)

    @property
    def journal_path(self) -> Path:
        """The SQLite journal."""
        return self.path / self.config.journal.path

    @property
    def blobs_path(self) -> Path:
        """The folder of blobs."""
        return self.path / self.config.blobs.path

    @property
    def spool(self) -> str | None:
        """Where large packages wait, in files without a name; None where the home can't be written.

        The system's folder for temporary files may be memory, or smaller than a package.
        """
        return str(self.path.absolute()) if os.access(self.path, os.W_OK) else None

    @property
    def publishers_path(self) -> Path:
        """What publishers remember."""
        return self.path / "publishers"

    @property
    def known_files_path(self) -> Path:
        """A cache: what large files of published folders hold."""
        return self.publishers_path / "known-files.cache"

    @property
    def sling_id(self) -> SlingId:
        """The instance that this home's agents run in.

        Raises:
            HomeMissingError: There is a configuration, and nothing else yet.
            ConfigInvalidError: The file was damaged.
        """
        if not self.is_made:
            raise HomeMissingError(
                f"{self.path} has a configuration, but no home was created from it",
                next_step=home_command(self.path, "init"),
                home=self.path.absolute(),
            )
        text = _read_text(self.path / INSTANCE_FILE).strip()
        if len(text) != SLING_ID_LENGTH:
            raise ConfigInvalidError(f"{self.path / INSTANCE_FILE} does not hold an id of {SLING_ID_LENGTH} characters")
        return SlingId(text)

    def remember_subscriber(self, known: RegisteredSubscriber) -> None:
        """Write down which target a subscriber has, if that is news."""
        if self.known_subscriber(known.name) == known:
            return
        document = encode_record(known)
        del document["name"]
        write_text(self._registry_file(known.name), json.dumps(document) + "\n")

    def forget_subscriber(self, name: AgentName) -> bool:
        """Take a subscriber out of the registry, and leave its target alone; whether it was there."""
        file = self._registry_file(name)
        if not file.is_file():
            return False
        with translated_writes(file):
            file.unlink()
        return True

    def known_subscriber(self, name: AgentName) -> RegisteredSubscriber | None:
        """What is known of a subscriber. Raises: ConfigInvalidError when its file can't be understood."""
        file = self._registry_file(name)
        return _decode_entry(name, _parse_entry(_read_text(file), file), file) if file.is_file() else None

    def known_subscribers(self) -> Sequence[RegisteredSubscriber]:
        """All subscribers that were started from this home, by name."""
        names = sorted((parse_agent_name(file.stem) for file in self._registry.glob("*.yaml")), key=natural_key)
        # None: another process removed the entry after the folder was listed
        return [known for known in map(self.known_subscriber, names) if known is not None]

    def lock_file(self, name: AgentName) -> Path:
        """What a subscriber holds while it runs."""
        return self._registry / f"{name}.lock"

    @property
    def _registry(self) -> Path:
        return self.path / "subscribers"

    def _registry_file(self, name: AgentName) -> Path:
        return self._registry / f"{name}.yaml"


def _resolved(location: str, folder: Path) -> str:
    kind, colon, place = location.partition(":")
    if colon and kind in TARGET_KINDS:
        return f"{kind}:{_below(folder, place)}"
    return str(_below(folder, location))


def _below(folder: Path, place: str) -> Path:
    return (folder / expanded_path(place)).absolute()


def create_home(path: Path, config: Config) -> Home:
    """Make a home: folders, configuration, instance id. The configuration comes last: with it the home exists.

    A configuration that was written before stays, and the rest is made for it.

    Raises:
        HomeExistsError: There is one already.
        StorageReadOnlyError, StorageFullError.
    """
    has_own = (path / CONFIG_FILE).exists()
    if has_own and not (path / INSTANCE_FILE).exists():
        home = Home(path)
        make_folders(path)
        make_identity(path)
        return home
    if has_own or (path / NOTE_FILE).exists():
        home = Home(path)
        is_whole = home.config.journal.kafka is not None or home.journal_path.exists()
        step = home_command(path, "status" if is_whole else "init --new-journal")
        raise HomeExistsError(f"{path} is a Mailboat home already", next_step=step, home=path.absolute())
    make_folders(path)
    make_identity(path)
    write_text(path / CONFIG_FILE, commented_yaml(config))
    return Home(path)


def configured_home(config_file: Path, path: Path | None = None) -> Home:
    """A home with a configuration from elsewhere; the state is kept in `path`, else in the configuration's folder.

    Nothing is made: `composition.prepare` does that. Raises: ConfigInvalidError.
    """
    return Home(config_file.parent if path is None else path, parse_config(config_file), config_file)


def note_configuration(home: Home, config_file: Path) -> None:
    """Write down which configuration a home was run with, for `--home` to find it, unless it has its own.

    Of several configurations that share a home the first is noted. A home that can't be written has no note.
    """
    note = home.path / NOTE_FILE
    if (home.path / CONFIG_FILE).exists() or (note.is_file() and _noted_file(note).is_file()):
        return
    with suppress(MailboatError):
        write_text(note, f"{config_file.absolute()}\n")


def _noted_file(note: Path) -> Path:
    return note.parent / _read_text(note).strip()


def _noted_config_file(path: Path) -> Path:
    """The configuration that the home's agents were started with. Raises: HomeMissingError, ConfigInvalidError."""
    note = path / NOTE_FILE
    if note.is_file():
        file = _noted_file(note)
        if file.is_file():
            return file
        message, step = f"{path} was run with the configuration {file}, which is gone", f"put it back, or change {note}"
    elif (path / INSTANCE_FILE).is_file():
        message = f"{path} holds the state of agents whose configuration is elsewhere, and no note of where"
        step = home_command(path, "agent run --config FILE")
    else:
        message, step = f"there is no Mailboat home at {path}", home_command(path, "init")
    raise HomeMissingError(message, next_step=step, home=path.absolute())


def home_command(path: Path, command: str) -> str:
    """A command on a home, to be pasted; the default one needs no option."""
    return " ".join(["mailboat", *([] if path == DEFAULT_HOME else ["--home", shlex.quote(str(path))]), command])


def make_folders(path: Path) -> None:
    """Make the folders of a home. Raises: PlaceUnusableError, StorageReadOnlyError, StorageFullError."""
    check_folder_place(path)
    for folder in (path, path / "publishers", path / "subscribers"):
        with translated_writes(folder):
            make_path(folder)


def make_identity(path: Path) -> None:
    """Give a home the id of its instance, unless it has one: of two at once, one is first.

    Raises: StorageReadOnlyError, StorageFullError.
    """
    if (path / INSTANCE_FILE).exists():
        return
    with (
        translated_writes(path / INSTANCE_FILE),
        FolderHandle.open(os.path.realpath(path)) as folder,
        Draft(folder) as draft,
    ):
        draft.stream.write(f"{uuid.uuid4()}\n".encode())
        # refused where another process was first: then its id counts
        draft.link(folder, INSTANCE_FILE)


def home_without_journal(path: Path) -> Home:
    """A home whose journal was lost, to be given a new one.

    Raises:
        HomeMissingError: There is no home at all.
        HomeExistsError: There is a journal, or the log of one that SQLite would replay into a new one.
    """
    home = Home(path)
    if home.config.journal.kafka is not None:
        raise HomeExistsError(
            f"the journal of {path} is on Kafka, where topics are recreated instead of journals",
            next_step=home_command(path, "journal ensure"),
            home=path.absolute(),
        )
    for suffix in ("", "-wal", "-shm", "-journal"):
        file = home.journal_path.with_name(home.journal_path.name + suffix)
        if file.exists():
            raise HomeExistsError(f"{file} is there; a new journal would take its place", home=path.absolute())
    return home


def parse_config(file: Path) -> Config:
    """Read a configuration file, YAML or JSON. Raises: ConfigInvalidError."""
    parsed = _parse_yaml(_read_text(file), file)
    return decode_config(parsed.document, where=str(file), line_of=parsed.line_of)


def line_of(file: Path, key: str) -> int | None:
    """The line of a key in a configuration file, for messages; None where the file can't be read any more."""
    with suppress(MailboatError):
        return _parse_yaml(_read_text(file), file).line_of(key)
    return None


def read_config(file: Path) -> Config:
    """Read the configuration of a home. Raises: ConfigInvalidError.

    A JSON copy of the file is kept next to it, under the digest of its text: reading YAML takes longer than all else
    that a quick command does.
    """
    text = _read_text(file)
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = file.with_name(KEPT_CONFIG_FILE)
    document = _read_kept(kept, digest)
    if document is None:
        parsed = _parse_yaml(text, file)
        config = decode_config(parsed.document, where=str(file), line_of=parsed.line_of)
        with suppress(MailboatError):  # a home that can't be written is read all the same
            write_text(kept, json.dumps({"digest": digest, "document": encode_changes(config)}))
        return config
    return decode_config(document, where=str(file))


def _read_kept(file: Path, digest: str) -> object:
    try:
        kept = json.loads(file.read_bytes())
        return kept["document"] if kept["digest"] == digest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_text(file: Path, text: str) -> None:
    """Replace a file as a whole, durably. Raises: StorageReadOnlyError, StorageFullError, StorageFailedError."""
    with translated_writes(file), replaced_file(file) as stream:
        stream.write(text.encode())


@contextmanager
def translated_writes(path: Path) -> Iterator[None]:
    """Translate the failures of writing a file. Raises: StorageReadOnlyError, StorageFullError, StorageFailedError."""
    try:
        yield
    except OSError as error:
        kinds = {Fault.FULL: StorageFullError, Fault.READ_ONLY: StorageReadOnlyError}
        kind = kinds.get(fault_of(error), StorageFailedError)
        raise kind(f"{path} can't be written: {error.strerror or error}", path=path) from error


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigInvalidError(f"{file} can't be read: {error.strerror or error}", path=file) from error
    except UnicodeDecodeError as error:
        raise ConfigInvalidError(f"{file} can't be read: {error}", path=file) from error


def _parse_yaml(text: str, file: Path) -> Parsed:
    from mailboat.config.parser import parse_document  # with YAML, which a quick command does without

    return parse_document(text, file)


def _parse_entry(text: str, file: Path) -> object:
    """A registry entry, which is JSON as this program writes it, and any YAML as people may."""
    try:
        document: object = json.loads(text)
    except ValueError:
        return _parse_yaml(text, file).document
    return document


def _decode_entry(name: AgentName, document: object, file: Path) -> RegisteredSubscriber:
    if isinstance(document, dict):
        # without the keys that a later version wrote before it was rolled back
        keys = RegisteredSubscriber.__dataclass_fields__
        document = {**{key: value for key, value in document.items() if key in keys}, "name": name}
    known = decode_record(RegisteredSubscriber, document, where=str(file))
    for publisher in known.follow:
        parse_agent_name(publisher)
    return known

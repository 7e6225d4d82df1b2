"""The embedded home: made once, read by everyone, and clear about what is wrong with it."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mailboat.agent.subscriber_process import Subscription, subscriber_settings
from mailboat.composition.home import (
    Home,
    HomeExistsError,
    HomeMissingError,
    RegisteredSubscriber,
    configured_home,
    create_home,
    make_folders,
    make_identity,
    note_configuration,
    parse_config,
    write_text,
)
from mailboat.composition.publisher_setup import publisher_settings
from mailboat.composition.workspace import Workspace
from mailboat.config.decoder import ConfigInvalidError
from mailboat.config.document import Config
from mailboat.config.storage import TopicRetentionConfig
from mailboat.errors import PlaceUnusableError, StorageFailedError, StorageFullError, StorageReadOnlyError, UsageError
from mailboat.model.identifiers import AgentName

EDGE = RegisteredSubscriber(AgentName("edge-1"), "files:/srv/site", (AgentName("author"),), 3)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return create_home(tmp_path / "boat", Config())


def test_a_new_home_has_a_configuration_and_an_identity(home: Home) -> None:
    assert home.config == Config()
    assert len(home.sling_id) == 36
    assert Home(home.path).sling_id == home.sling_id
    assert home.journal_path == home.path / "journal.db"
    assert home.blobs_path == home.path / "blobs"


def test_a_missing_home_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(HomeMissingError) as caught:
        Home(tmp_path / "none")
    assert caught.value.next_step == f"mailboat --home {tmp_path / 'none'} init"


def test_a_next_step_can_be_pasted_also_with_a_space_in_the_path(tmp_path: Path) -> None:
    with pytest.raises(HomeMissingError) as caught:
        Home(tmp_path / "my boat")
    assert caught.value.next_step == f"mailboat --home '{tmp_path / 'my boat'}' init"


def test_large_packages_wait_on_the_disk_of_the_home(home: Home) -> None:
    with Workspace(home) as workspace:
        settings = subscriber_settings(workspace, Subscription(AgentName("edge"), "files:edge"))
    publishing = publisher_settings(home, AgentName("author"))
    assert settings.spool == publishing.spool == str(home.path)


def test_a_home_is_never_made_over_another(home: Home) -> None:
    identity = home.sling_id
    with pytest.raises(HomeExistsError):
        create_home(home.path, Config())
    assert Home(home.path).sling_id == identity


def test_a_home_whose_making_was_interrupted_can_be_made_again(home: Home) -> None:
    identity = home.sling_id
    (home.path / "mailboat.yaml").unlink()
    assert create_home(home.path, Config()).sling_id == identity


def test_a_home_cannot_be_made_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlaceUnusableError, match="file is a file"):
        create_home(tmp_path / "file" / "boat", Config())


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.EIO, StorageFailedError),
        (errno.ENOSPC, StorageFullError),
        (errno.EROFS, StorageReadOnlyError),
        (errno.EACCES, StorageReadOnlyError),
    ],
)
def test_write_text_names_each_failure_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    def refuse(_: int) -> None:
        raise OSError(number, os.strerror(number))

    write_text(tmp_path / "file", "old")
    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(error):
        write_text(tmp_path / "file", "new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "old"}


def test_write_text_synchronises_the_file_and_then_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised = []
    monkeypatch.setattr("os.fsync", lambda handle: synchronised.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    write_text(tmp_path / "file", "text")
    assert synchronised == [False, True]
    assert (tmp_path / "file").stat().st_mode & 0o077 == 0


def test_write_text_by_several_threads_leaves_one_whole_text(tmp_path: Path) -> None:
    texts = [str(number) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "file", text), texts * 4))
    assert (tmp_path / "file").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_subscriber_is_remembered_with_its_target(home: Home) -> None:
    assert home.known_subscriber(EDGE.name) is None
    home.remember_subscriber(EDGE)
    other = RegisteredSubscriber(AgentName("edge-0"), "sqlite:/srv/edge.db")
    home.remember_subscriber(other)
    assert Home(home.path).known_subscribers() == [other, EDGE]


def test_remembering_the_same_again_writes_nothing(home: Home) -> None:
    home.remember_subscriber(EDGE)
    file = home.path / "subscribers" / "edge-1.yaml"
    before = file.stat().st_ino
    home.remember_subscriber(EDGE)
    assert file.stat().st_ino == before


@pytest.mark.parametrize("text", ["", "target: 3", "{", "- a", "target: files:/x\nfollow: [a b]\nmax_retries: null"])
def test_a_damaged_registry_entry_is_reported_with_its_file(home: Home, text: str) -> None:
    (home.path / "subscribers" / "edge-1.yaml").write_text(text)
    with pytest.raises(UsageError):
        home.known_subscribers()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http: {port: 1}\nevents: {}\nhttp: {port: 2}\n", ":3: the key http is there twice, first in line 1"),
        ('{"http": {"port": 1,\n "port": 2}}', ":2: the key port is there twice, first in line 1"),
        ("agents:\n  publishers:\n  - name: a\n    name: b\n", ":4: the key name is there twice, first in line 3"),
        ("http: {port: 1\n", ":2:1: is not YAML: did not find expected ',' or '}'"),
        ("a: \x07", " is not YAML: "),
    ],
)
def test_a_configuration_that_says_two_things_is_refused_with_the_lines(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    with pytest.raises(ConfigInvalidError) as caught:
        parse_config(file)
    assert caught.value.message.startswith(f"{file}{told}")


def test_a_configuration_may_name_a_part_once_and_use_it_again(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("retention:\n  status: &some {seconds: 5.0}\n  command: *some\n  event: {<<: *some, bytes: 9}\n")
    kept = parse_config(file).retention
    assert (kept.status, kept.command) == (TopicRetentionConfig(5.0), TopicRetentionConfig(5.0))
    assert kept.event == TopicRetentionConfig(5.0, 9)
    file.write_text("")
    assert parse_config(file) == Config()


@pytest.mark.parametrize(
    ("file", "content"), [("instance", b"short"), ("mailboat.yaml", b"\xff\xfe"), ("mailboat.yaml", b"a: [")]
)
def test_a_damaged_file_of_the_home_is_reported_by_name(home: Home, file: str, content: bytes) -> None:
    (home.path / file).write_bytes(content)
    with pytest.raises(ConfigInvalidError, match=file):
        _ = Home(home.path).sling_id


def test_a_forgotten_subscriber_is_in_the_registry_no_more(home: Home) -> None:
    home.remember_subscriber(EDGE)
    assert home.forget_subscriber(EDGE.name)
    assert home.known_subscribers() == []
    assert not home.forget_subscriber(EDGE.name)


def test_an_identity_is_given_once_even_where_links_are_not_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(38, "no links here")

    make_folders(tmp_path)
    monkeypatch.setattr("os.link", refuse)
    make_identity(tmp_path)
    identity = Home(tmp_path, Config()).sling_id
    monkeypatch.undo()
    make_identity(tmp_path)
    assert Home(tmp_path, Config()).sling_id == identity
    assert sorted(path.name for path in tmp_path.iterdir()) == ["instance", "publishers", "subscribers"]


def test_a_home_run_with_a_configuration_from_elsewhere_is_found_by_its_note(tmp_path: Path) -> None:
    file = tmp_path / "pub.yaml"
    file.write_text("publisher: {name: news}\n")
    state = tmp_path / "state"
    make_folders(state)
    make_identity(state)
    with pytest.raises(HomeMissingError, match="configuration is elsewhere") as unnoted:
        Home(state)
    assert unnoted.value.next_step == f"mailboat --home {state} agent run --config FILE"
    note_configuration(configured_home(file, state), file)
    assert Home(state).config.publisher.name == "news"
    with pytest.raises(HomeExistsError):
        create_home(state, Config())
    file.unlink()
    with pytest.raises(HomeMissingError, match="which is gone"):
        Home(state)


def test_the_first_of_several_configurations_is_noted_and_none_where_the_home_has_its_own(
    home: Home, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    make_folders(state)
    for name in ("first", "second"):
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"publisher: {{name: {name}}}\n")
        note_configuration(configured_home(file, state), file)
        note_configuration(home, file)
    assert Home(state).config.publisher.name == "first"
    assert not (home.path / "configuration").exists()


def test_init_keeps_a_configuration_written_by_hand_and_makes_the_rest(tmp_path: Path) -> None:
    (tmp_path / "mailboat.yaml").write_text("publisher: {name: mine}\n")
    with pytest.raises(HomeMissingError, match="no home was created") as caught:
        _ = Home(tmp_path).sling_id
    assert caught.value.next_step == f"mailboat --home {tmp_path} init"
    made = create_home(tmp_path, Config())
    assert made.config.publisher.name == "mine"
    assert len(made.sling_id) == 36

"""What users write for sources and targets."""

from __future__ import annotations

from pathlib import Path

import pytest
from mailboat.content.locations import TargetLocation, open_source, open_target, opened_ledger, parse_target
from mailboat.content.port import Source
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import SourceMissingError, UsageError


@pytest.mark.parametrize(
    ("text", "kind", "path", "database"),
    [
        ("files:/srv/web", "files", "/srv/web", "/srv/web/.mailboat/state.db"),
        ("generations:web", "generations", "web", "web/.mailboat/state.db"),
        ("sqlite:a:b.db", "sqlite", "a:b.db", "a:b.db"),
    ],
)
def test_targets_are_read(text: str, kind: str, path: str, database: str) -> None:
    location = parse_target(text)
    assert location == TargetLocation(kind, Path(path))
    assert str(location) == text
    assert location.database == Path(database)


@pytest.mark.parametrize("text", ["", "web", "file:web", "files:", "sqlite:", "postgres:x", "files:a\0b"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target(text)
    assert "files:" in str(caught.value) or "sqlite:" in str(caught.value) or "FILE" in str(caught.value)


def test_a_bare_folder_is_told_how_to_be_a_target() -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("web")
    assert caught.value.next_step == "for a folder of plain files: files:web"


def test_a_folder_is_a_source(tmp_path: Path) -> None:
    assert isinstance(open_source(str(tmp_path)), FolderSource)


@pytest.mark.parametrize("text", ["", "absent", "sqlite:absent", "files:absent", "generations:absent"])
def test_a_source_that_is_not_there_is_missing(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceMissingError):
        open_source(text)
    assert list(tmp_path.iterdir()) == []


def test_missing_generations_target_is_named_as_it_was_given(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=f"no target generations:{tmp_path}/nope"):
        open_source(f"generations:{tmp_path}/nope")


def test_openers_come_before_the_folder_and_may_pass(tmp_path: Path) -> None:
    (tmp_path / "jcr_root").mkdir()
    asked: list[Path] = []

    def passing(path: Path) -> Source | None:
        asked.append(path)
        return None

    def checkout(path: Path) -> Source | None:
        return FolderSource(path / "jcr_root", uri="checkout") if (path / "jcr_root").is_dir() else None

    assert open_source(str(tmp_path), [passing, checkout]).uri == "checkout"
    assert open_source(str(tmp_path / "jcr_root"), [passing, checkout]).uri == str(tmp_path / "jcr_root")
    assert asked == [tmp_path, tmp_path / "jcr_root"]


def test_a_file_that_no_one_knows_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.rar").touch()
    with pytest.raises(UsageError, match="no known format"):
        open_source(str(tmp_path / "a.rar"))


def test_the_ledger_of_no_target_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError), opened_ledger(f"files:{tmp_path}"):
        pass


def test_targets_are_made_with_the_folders_above_them(tmp_path: Path) -> None:
    for kind in ("sqlite", "files", "generations"):
        open_target(f"{kind}:{tmp_path / 'new' / kind / 'target'}").close()

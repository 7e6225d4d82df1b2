"""The publisher's memory and the log never part: lost tails, other processes, failures half way, races."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import SourceChangedError
from mailboat.model.identifiers import Offset, RequestId
from mailboat.model.messages import Action
from mailboat.model.nodes import Node
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest, add_request
from mailboat.subscriber.subscriber import Until
from support.engines import PACKAGES, Engine, digest_of, page_source


def site_with(folder: Path, **files: str) -> FolderSource:
    """Write the files (a `__` is a slash) into the source's folder."""
    for name, text in files.items():
        file = folder / "site" / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return FolderSource(folder / "site")


def request(path: str, request_id: str | None = None) -> DistributionRequest:
    return add_request([NodePath(path)], request_id=None if request_id is None else RequestId(request_id))


def copy_journal(engine_folder: Path, into: Path) -> None:
    into.mkdir()
    for file in engine_folder.glob("journal.db*"):
        if file.is_file():
            shutil.copy(file, into)


def restore_journal(engine_folder: Path, copy: Path) -> None:
    for file in engine_folder.glob("journal.db*"):
        if file.is_file():
            file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, engine_folder)


def assert_imported_is_source(engine: Engine, folder: Path) -> None:
    target = engine.target("files", "fresh")
    engine.subscriber(target).run(Until.CAUGHT_UP)
    assert digest_of(target.source()) == digest_of(FolderSource(folder / "site"))
    target.close()


@pytest.mark.parametrize("regrown", [0, 4])
def test_after_a_lost_tail_request_ids_publish_again_and_changed_ships_all_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, regrown: int
) -> None:
    home = tmp_path / "home"
    source = site_with(tmp_path, a__x="1", a__y="1", z="1")
    with Engine(home) as engine:
        list(engine.publisher().publish_changed(source))
    copy_journal(home, tmp_path / "copy")
    with Engine(home) as engine:
        publisher = engine.publisher()
        lost = publisher.publish(request("/z", "r1"), site_with(tmp_path, z="2"))
        (tmp_path / "site" / "a" / "y").unlink()
        list(publisher.publish_changed(FolderSource(tmp_path / "site")))
    restore_journal(home, tmp_path / "copy")
    with Engine(home) as engine:
        publisher = engine.publisher()
        for number in range(regrown):
            publisher.publish(request("/z"), page_source("/z"))
            assert engine.records()[-1].offset == lost.offset + number
        again = publisher.publish(request("/z", "r1"), FolderSource(tmp_path / "site"))
        assert not again.is_repeat
        assert again.package_id != lost.package_id
        assert list(publisher.publish_changed(FolderSource(tmp_path / "site")))
        assert "the next --changed" in caplog.text
        assert list(publisher.publish_changed(FolderSource(tmp_path / "site"))) == []
        assert_imported_is_source(engine, tmp_path)


def test_a_receipt_below_the_head_is_no_loss(tmp_path: Path) -> None:
    source = site_with(tmp_path, x="1")
    with Engine(tmp_path / "home") as engine:
        publisher = engine.publisher()
        (first,) = publisher.publish_changed(source)
        publisher.publish(request("/x"), page_source("/x"))
        engine.journal.truncate(PACKAGES, Offset(first.offset + 1))
        assert list(publisher.publish_changed(source)) == []


def test_two_processes_with_one_request_id_remember_what_the_winner_shipped(tmp_path: Path) -> None:
    source = site_with(tmp_path, x="0")
    with Engine(tmp_path / "home") as engine, Engine(tmp_path / "home") as other:
        list(engine.publisher().publish_changed(source))

        def interrupted() -> Iterator[DistributionRequest]:
            yield request("/x", "r")
            raise KeyboardInterrupt

        def slow_requests() -> Iterator[DistributionRequest]:
            yield request("/x", "r")
            site_with(tmp_path, x="longer")
            with pytest.raises(KeyboardInterrupt):
                list(other.publisher().publish_all(interrupted(), source))

        site_with(tmp_path, x="1")
        (winner,) = engine.publisher().publish_all(slow_requests(), source)
        assert not winner.is_repeat
        assert [item.nodes for item in engine.publisher().publish_changed(source)] == [1]
        assert_imported_is_source(engine, tmp_path)


def test_the_loser_of_two_processes_with_one_request_id_leaves_nothing_staged(tmp_path: Path) -> None:
    source = site_with(tmp_path, x="0")
    with Engine(tmp_path / "home") as engine, Engine(tmp_path / "home") as other:
        list(engine.publisher().publish_changed(source))

        def slow_requests() -> Iterator[DistributionRequest]:
            yield request("/x", "r")
            engine.publisher().publish(request("/x", "r"), source)

        (loser,) = other.publisher().publish_all(slow_requests(), source)
        assert loser.is_repeat
        assert engine.state._file.connection.execute("SELECT count(*) FROM staged").fetchone()[0] == 0


def test_what_a_failed_publish_had_staged_does_not_count_for_the_next_one_of_its_id(tmp_path: Path) -> None:
    class Torn(FolderSource):
        def walk(self, root: NodePath, *, is_deep: bool = True) -> Iterator[Node]:
            for number, node in enumerate(super().walk(root, is_deep=is_deep)):
                if number == 1200:
                    raise SourceChangedError("changed while read", path=node.path)
                yield node

    source = site_with(tmp_path, x="1", **{f"big__{number:04}": "a" for number in range(1300)})
    with Engine(tmp_path / "home") as engine:
        publisher = engine.publisher()
        list(publisher.publish_changed(source))
        site_with(tmp_path, **{f"big__{number:04}": "bb" for number in range(1300)})
        with pytest.raises(SourceChangedError):
            publisher.publish(request("/big", "job"), Torn(tmp_path / "site"))
        publisher.publish(request("/x", "job"), source)
        assert sum(item.nodes for item in publisher.publish_changed(source)) >= 1300
        assert_imported_is_source(engine, tmp_path)


@pytest.mark.parametrize("request_id", [None, "r"])
@pytest.mark.parametrize("is_delete", [False, True])
def test_publish_across_the_first_changed_does_not_count_as_the_source(
    tmp_path: Path, request_id: str | None, is_delete: bool
) -> None:
    source = site_with(tmp_path, d__x="v1", d__gone="1", other="1")
    with Engine(tmp_path / "home") as engine, Engine(tmp_path / "home") as other:

        def slow_requests() -> Iterator[DistributionRequest]:
            asked = request("/d", request_id)
            yield replace(asked, action=Action.DELETE, deep_paths=frozenset()) if is_delete else asked
            (tmp_path / "site" / "d" / "gone").unlink()
            list(engine.publisher().publish_changed(site_with(tmp_path, d__x="longer")))

        assert list(other.publisher().publish_all(slow_requests(), None if is_delete else source))
        assert list(engine.publisher().publish_changed(source))
        assert list(engine.publisher().publish_changed(source)) == []
        assert_imported_is_source(engine, tmp_path)


def test_a_new_folder_of_which_a_node_was_published_before_is_shipped_without_removing_it(tmp_path: Path) -> None:
    with Engine(tmp_path / "home") as engine:
        publisher = engine.publisher()
        list(publisher.publish_changed(site_with(tmp_path, a="1")))
        source = site_with(tmp_path, x__y="1", x__z="1")
        publisher.publish(request("/x/y"), source)
        list(publisher.publish_changed(source))
        assert_imported_is_source(engine, tmp_path)

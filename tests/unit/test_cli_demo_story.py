"""The demo's story and how it is told: decisions, lines for pipes, bars for terminals, and odd directories."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.cli.demo.board import Act, Actor, Board, decide_acts
from mailboat.cli.demo.screen import BarScreen, LineScreen, actor_text, screen_for
from mailboat.cli.demo.staging import stage


def board_of(count: int, total: int = 40) -> Board:
    return Board(total, [Actor(f"edge-{number + 1}", "files:x") for number in range(count)])


def play(board: Board, act: Act, actor: Actor) -> None:
    """Do to the board what the stage does."""
    actor.is_started = True
    actor.is_running = act is not Act.KILL
    if act is Act.KILL:
        board.is_killed, board.killed_when_published = True, board.published
    if act is Act.RESTART:
        actor.restarts += 1


@given(st.integers(1, 6), st.integers(1, 50), st.lists(st.integers(0, 6), max_size=400))
def test_every_story_ends_with_one_kill_one_restart_and_everybody_current(
    subscribers: int, total: int, moves: list[int]
) -> None:
    board = board_of(subscribers, total)
    told: list[tuple[Act, str]] = []
    steps = iter([*moves, *[0, 1, 2, 3, 4, 5, 6] * 200])
    while not board.is_done:
        for act, actor in list(decide_acts(board)):
            told.append((act, actor.name))
            play(board, act, actor)
        move = next(steps)
        if move == 0:
            board.published = min(total, board.published + 1)
        elif move <= subscribers and board.actors[move - 1].is_running:
            actor = board.actors[move - 1]
            actor.position = min(board.published, actor.position + 2)
    kills = [name for act, name in told if act is Act.KILL]
    assert kills == ([board.victim.name] if total > 1 else [])
    assert [name for act, name in told if act is Act.RESTART] == kills
    assert sorted(name for act, name in told if act is Act.START) == sorted(one.name for one in board.actors)


def test_the_last_one_joins_late_and_is_not_the_one_killed() -> None:
    board = board_of(3)
    assert [(act, actor.name) for act, actor in decide_acts(board)] == [(Act.START, "edge-1"), (Act.START, "edge-2")]
    assert board.victim.name == "edge-2"
    board.published = 30
    assert (Act.START, board.actors[2]) in list(decide_acts(board))


def test_pipes_get_a_line_when_something_happens() -> None:
    into = io.StringIO()
    screen, board = screen_for(into), board_of(2)
    assert isinstance(screen, LineScreen)
    play(board, Act.START, board.actors[0])
    for published in range(0, 41, 2):
        board.published = board.actors[0].position = published
        screen.update(board)
    board.actors[0].note = "killed (SIGKILL) at 40"
    board.actors[0].is_running = False
    screen.update(board)
    screen.close()
    lines = into.getvalue().splitlines()
    assert [line for line in lines if "author" in line] == [
        f"  author   {count}/40 packages  0 B" for count in (0, 10, 20, 30, 40)
    ]
    assert lines[-1] == "  edge-1   40/40  killed (SIGKILL) at 40"
    assert not any("edge-2" in line for line in lines)


def test_terminals_get_bars() -> None:
    into = io.StringIO()
    screen, board = BarScreen(into), board_of(2)
    play(board, Act.START, board.actors[0])
    board.published = 9
    screen.update(board)
    screen.say("[bold]what stays[/bold]")
    screen.close()
    assert "[bold]what stays[/bold]" in into.getvalue()
    assert "9/40 packages" in into.getvalue()
    assert actor_text(board.actors[0], board) == "0/40  catching up"
    assert actor_text(board.actors[1], board) == "joins later"


def test_a_plain_directory_is_published_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "site" / "empty").mkdir(parents=True)
    (tmp_path / "site" / ".git").mkdir()
    os.mkfifo(tmp_path / "site" / ".git" / "pipe")
    folder, odd = stage(tmp_path / "site", tmp_path / "copy")
    assert (folder, odd.count) == (tmp_path / "site", 0)


def test_what_content_cannot_hold_is_left_out_of_a_copy(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "a b" / "ü").mkdir(parents=True)
    (site / "a b" / "file").write_text("x")
    (site / "a b" / "inside").symlink_to("../a b/file")
    (site / "a b" / "loop").symlink_to("..")
    (site / "dead").symlink_to("/nowhere")
    (site / "new\nline").write_text("x")
    os.mkfifo(site / "pipe")
    Path(os.fsdecode(os.fsencode(site) + b"/bad\xff")).write_text("x")
    folder, odd = stage(site, tmp_path / "copy")
    assert folder == tmp_path / "copy"
    assert odd.count == 5
    assert len(odd.examples) == 3
    assert sorted(str(one.relative_to(folder)) for one in folder.rglob("*")) == [
        "a b",
        "a b/file",
        "a b/inside",
        "a b/ü",
    ]


def test_a_file_that_another_file_system_holds_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "file").write_text("x")
    (tmp_path / "site" / "dead").symlink_to("/nowhere")
    folder, _ = stage(tmp_path / "site", tmp_path / "copy")
    assert (folder / "file").read_text() == "x"

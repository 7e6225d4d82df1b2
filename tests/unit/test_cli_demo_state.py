"""The demo's story and how it is told: decisions, lines for pipes, bars for terminals, and odd directories."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mailboat.cli.demo.demo_command import is_enter_pressed
from mailboat.cli.demo.demo_state import (
    AUTHOR,
    GOLDEN,
    LATE,
    MEMBERS,
    DemoProcess,
    DemoState,
    MistakenDelete,
    NextStep,
    SubscriberProgress,
    decide_steps,
    processes_of,
)
from mailboat.cli.demo.outcome import standing_text
from mailboat.cli.demo.processes import CHECK, DemoSetting, write_configurations
from mailboat.cli.demo.screen import BarScreen, LineScreen, bar_lines, progress_text, screen_for
from mailboat.cli.demo.source_copy import copy_content
from mailboat.config.decoder import decode_config


def board_of(subscribers: int, portions: int = 40) -> DemoState:
    agents = [
        DemoProcess(name, [SubscriberProgress(name, f"files:{name}") for name in names], is_late=name == LATE)
        for name, names in processes_of(subscribers)
    ]
    return DemoState(portions, [DemoProcess(AUTHOR), *agents])


def play(state: DemoState, step: NextStep, agent: DemoProcess) -> None:
    """Do to the board what the stage does, at once."""
    match step:
        case NextStep.START | NextStep.RESTART:
            agent.is_started = agent.is_running = agent.is_ready = True
            agent.restarts += step is NextStep.RESTART
        case NextStep.KILL:
            agent.is_running = agent.is_ready = False
            state.killed_when_published = state.published
        case NextStep.PUBLISH:
            state.published += 1
        case NextStep.ERR:
            state.mistake = MistakenDelete.PUBLISHED
        case NextStep.CLEAR:
            state.mistake = MistakenDelete.CLEARED


def move(state: DemoState, agent: DemoProcess) -> None:
    """One that runs imports a little, as far as golden lets it."""
    golden = state.agents[1]
    mistake_at = state.portions // 2
    for follower in agent.followers:
        limit = state.appended if agent is golden else golden.slowest
        if state.mistake in {MistakenDelete.PUBLISHED, MistakenDelete.BLOCKING}:
            limit = min(limit, mistake_at)
            if agent is golden and follower.position == mistake_at and state.mistake is MistakenDelete.PUBLISHED:
                state.mistake, state.blocked_at_seconds = MistakenDelete.BLOCKING, state.seconds
        if agent.is_running:
            follower.position = max(follower.position, min(limit, follower.position + 2))


@given(st.integers(1, 30), st.integers(1, 60), st.lists(st.integers(0, 12), max_size=300))
def test_every_story_ends_with_everyone_at_the_end(subscribers: int, portions: int, moves: list[int]) -> None:
    state = board_of(subscribers, portions)
    told: list[tuple[NextStep, str]] = []
    steps = iter([*moves, *[0, 1, 2, 3, 4, 5, 6, 7, 8] * 400])
    while not state.is_done:
        state.seconds += 0.5
        for step, agent in list(decide_steps(state)):
            told.append((step, agent.name))
            play(state, step, agent)
        number = next(steps)
        if 0 < number < len(state.agents):
            move(state, state.agents[number])
    kills = [name for step, name in told if step is NextStep.KILL]
    assert kills == ([] if state.victim is None else [state.victim.name])
    assert [name for step, name in told if step is NextStep.RESTART] == kills
    assert (
        [step for step, _ in told].count(NextStep.ERR)
        == [step for step, _ in told].count(NextStep.CLEAR)
        == state.has_story
    )
    assert sorted(name for step, name in told if step is NextStep.START) == sorted(agent.name for agent in state.agents)


def test_twenty_subscribers_are_golden_three_groups_and_one_that_is_late() -> None:
    assert [(name, len(names)) for name, names in processes_of(20)] == [
        (GOLDEN, 1),
        ("group-1", MEMBERS),
        ("group-2", MEMBERS),
        ("group-3", MEMBERS),
        (LATE, 1),
    ]
    assert processes_of(1) == [(GOLDEN, [GOLDEN])]
    assert processes_of(2) == [(GOLDEN, [GOLDEN]), (LATE, ["edge-1"])]


def test_author_starts_first_and_publishes_when_all_early_agents_are_ready() -> None:
    state = board_of(20)
    assert list(decide_steps(state)) == [(NextStep.START, state.agents[0])]
    play(state, NextStep.START, state.agents[0])
    assert [(step, agent.name) for step, agent in decide_steps(state)] == [
        (NextStep.START, name) for name in (GOLDEN, "group-1", "group-2", "group-3")
    ]
    for agent in state.agents[:-1]:
        play(state, NextStep.START, agent)
    state.agents[2].is_ready = False
    assert list(decide_steps(state)) == []
    state.agents[2].is_ready = True
    assert [step for step, _ in decide_steps(state)] == [NextStep.PUBLISH]
    state.published = 30
    assert (NextStep.START, state.agents[-1]) in list(decide_steps(state))


def test_a_block_is_shown_for_a_while_before_it_is_cleared() -> None:
    state = board_of(20)
    for agent in state.agents:
        play(state, NextStep.START, agent)
    state.published, state.mistake, state.seconds, state.blocked_at_seconds = (
        40,
        MistakenDelete.BLOCKING,
        5.0,
        4.0,
    )
    assert NextStep.CLEAR not in [step for step, _ in decide_steps(state)]
    state.seconds = 6.5
    assert NextStep.CLEAR in [step for step, _ in decide_steps(state)]


def half_way() -> DemoState:
    state = board_of(20)
    for agent in state.agents[:-1]:
        play(state, NextStep.START, agent)
        for number, follower in enumerate(agent.followers):
            follower.position = 20 - number % 2
    state.published = 20
    return state


def test_a_line_for_each_process_fits_a_terminal_of_eighty_columns() -> None:
    state = half_way()
    state.mistake = MistakenDelete.BLOCKING
    state.agents[1].followers[0].error = "ProcessorFailed"
    state.agents[3].is_running = False
    lines = list(bar_lines(state))
    assert lines == [
        "  author   █████████████████▉·················  21/41 packages  0 B",
        "  golden   █████████████████··················  20/41  BLOCKED",
        "  group-1  ██▍·· ██▎·· ██▍·· ██▎·· ██▍·· ██▎··  19-20/41  waits for golden",
        "  group-2  ██▍·· ██▎·· ██▍·· ██▎·· ██▍·· ██▎··  19-20/41  killed",
        "  group-3  ██▍·· ██▎·· ██▍·· ██▎·· ██▍·· ██▎··  19-20/41  waits for golden",
        "  late     ···································  joins later",
    ]
    assert max(map(len, lines)) < 80


def test_very_many_subscribers_of_a_process_are_columns() -> None:
    agent = DemoProcess(
        "all", [SubscriberProgress(f"edge-{number}", "x", position=number) for number in range(41)], is_started=True
    )
    (line,) = bar_lines(DemoState(40, [agent]))
    assert line[11:46] == "      ▁▁▁▁▁▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▅▅▅▅▅▆▆▆▆"


def test_pipes_get_a_line_for_each_quarter_of_the_way() -> None:
    into = io.StringIO()
    screen, state = screen_for(into), board_of(2)
    assert isinstance(screen, LineScreen)
    for agent in state.agents[:2]:
        play(state, NextStep.START, agent)
    state.mistake = MistakenDelete.CLEARED
    for published in range(0, 41, 2):
        state.published = published
        state.agents[1].followers[0].position = published + 1
        screen.update(state)
    screen.close()
    lines = into.getvalue().splitlines()
    quarters = (11, 21, 31, 41)
    assert [line for line in lines if AUTHOR in line] == [
        f"         author   {count}/41 packages  0 B" for count in quarters
    ]
    assert [line for line in lines if GOLDEN in line] == [
        f"         golden   {count}/41  current" for count in quarters
    ]
    assert not any(LATE in line for line in lines)


class Terminal(io.StringIO):
    """What a person sees."""

    def isatty(self) -> bool:
        return True


def test_terminals_get_bars_and_what_is_said_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    into = Terminal()
    screen, state = BarScreen(into), half_way()
    screen.update(state)
    screen.say("[bold]what stays[/bold]")
    screen.close()
    screen.close()
    assert "[bold]what stays[/bold]" in into.getvalue()
    assert "20/41 packages" in into.getvalue()
    assert progress_text(state.agents[-1], state) == "joins later"


def test_the_configurations_are_such_that_agents_run(tmp_path: Path) -> None:
    state = board_of(3)
    setting = DemoSetting(tmp_path, Path("site"), 1234, {"journal": {"path": "other.db"}})
    write_configurations(setting, state.agents)
    read = {file.stem: decode_config(yaml.safe_load(file.read_text())) for file in tmp_path.glob("*.yaml")}
    assert set(read) == {AUTHOR, GOLDEN, "group-1", LATE}
    assert {item.journal.path for item in read.values()} == {"other.db"}
    (author,), (golden,), (edge,) = (
        read[AUTHOR].agents.publishers,
        read[GOLDEN].agents.subscribers,
        read["group-1"].agents.subscribers,
    )
    assert (author.source, read[AUTHOR].http.port) == (str(Path("site").absolute()), 1234)
    assert (golden.editable, golden.hooks.before, read[GOLDEN].subscriber.max_retries) == (True, CHECK, None)
    assert edge.staging is not None
    assert edge.staging.golden == GOLDEN


def test_a_plain_directory_is_published_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "site" / "empty").mkdir(parents=True)
    (tmp_path / "site" / ".git").mkdir()
    os.mkfifo(tmp_path / "site" / ".git" / "pipe")
    folder, odd = copy_content(tmp_path / "site", tmp_path / "copy")
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
    folder, odd = copy_content(site, tmp_path / "copy")
    assert folder == tmp_path / "copy"
    assert odd.count == 5
    assert len(odd.examples) == 3
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == [
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
    folder, _ = copy_content(tmp_path / "site", tmp_path / "copy")
    assert (folder / "file").read_text() == "x"


def test_what_the_demo_says_of_the_status_fits_what_still_runs() -> None:
    assert standing_text(is_embedded=True).endswith("on disk: nothing runs any more")
    assert standing_text(is_embedded=False).endswith("on the servers: the agents have ended")


def test_a_demo_that_stays_ends_when_its_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = os.openpty()
    with open(inner) as terminal:  # noqa: PTH123  # a descriptor
        monkeypatch.setattr("sys.stdin", terminal)
        assert not is_enter_pressed()
        os.close(outer)
        assert is_enter_pressed()

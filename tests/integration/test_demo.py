"""The demo, as a user runs it: real processes, a real kill, and targets that equal the source."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mailboat.agent.composition import Workspace
from mailboat.agent.home import Home
from mailboat.cli.demo import stage
from mailboat.cli.demo.board import Actor
from mailboat.cli.demo.portions import Portion
from mailboat.cli.demo.screen import LineScreen
from mailboat.content.sources.folder import FolderSource
from mailboat.errors import DemoFailedError, MailboatError

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "mailboat.cli"]


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *map(str, words)], cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


def test_the_demo_of_the_example_ends_well_and_what_it_names_next_works(tmp_path: Path) -> None:
    done = run("demo", ROOT / "examples/site", "--seconds", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == f"Publishing {ROOT}/examples/site (100 files, 1.6 MB) to 3 subscribers through .mailboat/demo"
    assert any("killed (SIGKILL) at " in line and "restarted" in line for line in lines)
    assert any("joined late, at " in line for line in lines)
    assert "\x1b" not in done.stdout
    rows = [line.split() for line in lines if line.startswith("edge-")]
    assert [row[:3] for row in rows] == [[f"edge-{number}", "current", "40"] for number in (1, 2, 3)]
    assert [row[6] for row in rows] == ["0", "1", "0"]
    assert all(line.endswith("equals the source") for line in lines if line.startswith("edge-"))
    at = next(number for number, line in enumerate(lines) if line.startswith("Nothing lost, nothing twice: "))
    for line in lines[at + 1 :]:
        words = shlex.split(line.strip().split("   ")[0])[1:]
        after = run(*words, folder=tmp_path)
        assert after.returncode == 0, after.stderr
    assert "edge-1       stopped         41     0" in after.stdout


def test_what_the_demo_names_next_works_when_pasted_into_a_shell_that_has_no_mailboat(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only.txt").write_text("x")
    makes_path = {**os.environ, "PATH": f"{tmp_path}/.venv/bin:{os.environ['PATH']}"}
    called = [".venv/bin/mailboat", "demo", "site", "--subscribers", "1", "--seconds", "0", "-o", "json"]
    done = subprocess.run(called, cwd=tmp_path, env=makes_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["next"]
    plain = {**os.environ, "PATH": os.defpath}
    pasted = subprocess.run(
        ["/bin/sh", "-e"], input="\n".join(lines), cwd=tmp_path, env=plain, capture_output=True, text=True, check=False
    )
    assert pasted.returncode == 0, pasted.stderr
    assert all(line.startswith(".venv/bin/mailboat ") for line in lines)


def test_the_demo_runs_again_in_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "only.txt").write_text("x")
    for _ in range(2):
        done = run(
            "demo", "site", "--home", "boat", "--subscribers", "1", "--seconds", "0", "-o", "json", folder=tmp_path
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["packages"], found["is_equal"], found["subscribers"][0]["restarts"]) == (1, True, 0)


def test_a_directory_with_odd_entries_is_published_without_them(tmp_path: Path) -> None:
    site = tmp_path / "odd site"
    (site / "empty" / "deep").mkdir(parents=True)
    (site / "ünï [bold]").mkdir()
    (site / "ünï [bold]" / "it's $HOME").write_text("x")
    (site / "zero").write_text("")
    (site / "ZERO").write_text("differs in case only")
    (site / "large.bin").write_bytes(bytes(3_000_000))
    (site / "dead").symlink_to("/nowhere")
    os.mkfifo(site / "pipe")
    done = run("demo", site, "--subscribers", "2", "--seconds", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "  2 entries left out that content can't hold, such as:\n" in done.stdout
    assert done.stdout.count("equals the source") == 2


@pytest.mark.parametrize(
    ("words", "name"),
    [(("/does/not/exist",), "SourceMissing"), (("empty",), "Usage"), (("full", "--home", "full"), "Usage")],
)
def test_the_demo_refuses_what_it_cannot_play(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_boat: Any, words: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("not a demo's")
    ran = new_boat.run("demo", *words)
    assert (ran.code, ran.err.split(":")[1].strip()) == (2, name)
    assert (tmp_path / "full" / "mine.txt").read_text() == "not a demo's"
    assert ("make demo SOURCE=DIRECTORY" in ran.err) == (name == "SourceMissing")


def script_of(home: Any, source: Path, portions: list[Portion], target: str) -> stage.Script:
    return stage.Script(home, FolderSource(source), portions, [Actor("edge-1", target)])


@pytest.fixture
def workspace(boat: Any) -> Any:
    with Workspace(Home(boat.home)) as opened:
        yield opened


def test_a_subscriber_that_ends_by_itself_fails_the_demo_with_its_last_words(workspace: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    script = script_of(workspace, tmp_path, [Portion(deep=("/file",))] * 4, f"files:{tmp_path}/file")  # type: ignore[arg-type]
    with pytest.raises(DemoFailedError, match="edge-1 ended with exit code") as caught:
        stage.Stage(script, LineScreen(sys.stderr)).play()
    assert "error: " in str(caught.value.where["said"])


def test_a_publisher_that_fails_fails_the_demo(workspace: Any, tmp_path: Path) -> None:
    script = script_of(workspace, tmp_path, [Portion(deep=("/none",))], f"files:{tmp_path}/target")  # type: ignore[arg-type]
    with pytest.raises(MailboatError, match="/none"):
        stage.Stage(script, LineScreen(sys.stderr)).play()


def test_a_demo_in_which_nothing_moves_is_given_up(
    workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "STANDSTILL_SECONDS", 0.5)
    monkeypatch.setattr(stage, "decide_acts", lambda _: [])
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "a").write_text("x")
    script = script_of(workspace, tmp_path / "site", [Portion(deep=("/a",))], f"files:{tmp_path}/target")  # type: ignore[arg-type]
    with pytest.raises(DemoFailedError, match="nothing moved"):
        stage.Stage(script, LineScreen(sys.stderr)).play()

"""Command lines of any command with any options: each ends with a documented exit code, and none as a defect."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from mailboat.cli.error_report import EXIT_CODES
from mailboat.cli.main import main
from mailboat.cli.program import build_app

CODES = {code for code, _ in EXIT_CODES}
ENDLESS = {"demo", "agent run", "bulk build", "bulk verify", "journal bench"}
"""Commands that run for long, or start other programs. What `agent run` refuses, `config check` does."""

ENDLESS_OPTIONS = {"--watch", "--wait", "--every", "--master"}

GOOD = re.findall(
    r"\S+",
    """site /en /index.html author web 0 1 files:web sqlite:db generations:new files:n p.zip new.zip s.snapshot home
    home/mailboat.yaml agent.yaml package status JournalTrimmed bash 4MiB name=value json http://127.0.0.1:1""",
)
FITTING = {
    "source": ["site", "files:web", "p.zip"],
    "words": ["site", "/en"],
    "paths": ["/", "/en", "/index.html", "//", "/.."],
    "path": ["/", "/en", "/index.html", "//", "/.."],
    "into": ["files:web", "files:n", "sqlite:db", "generations:g", "new.zip", "home"],
    "target": ["files:web", "sqlite:db"],
    "location": ["site", "files:web", "p.zip"],
    "left": ["site", "files:web", "p.zip"],
    "right": ["site", "files:web", "p.zip"],
    "place": ["s.snapshot", "new.snapshot", "blob:name"],
    "file": ["p.zip", "agent.yaml"],
    "name": ["web", "n", "JournalTrimmed"],
    "queue": ["web"],
    "package": ["0", "1"],
    "output": ["table", "json", "yaml", "name"],
    "publisher": ["author"],
    "home": ["home"],
    "config": ["agent.yaml"],
}
# no "/" among these: as a source it would be read
HOSTILE = [
    *re.findall(
        r"\S+",
        """-1 99999999999999999999 0x10 1e400 nan -inf \u0661\u0662 - -- = : a:b . .. ~nosuch/x files:~nosuch/x ~
        /proc/version /proc/self/x bad.yaml/x files: files:bad.zip sqlite:bad.zip sqlite:site generations:p.zip
        sqlite:home/journal.db blob:../x blob: http://[ http:// ftp://x http://127.0.0.1:99999 %s {0} [bold] [/]
        \x1b[2J \udcff files:\udcff /\udcff caf\u00e9 \u202e * /a/../b /a//b
        bad.yaml bad.zip bad.snapshot empty bad-home no/such/place""",
    ),
    *("", " ", "a\nb", "n" * 300, "x/" * 3000, "files:" + "n" * 300, "/" + "n" * 3000),
]


def commands(inner: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, one in inner.commands.items():
        here = f"{path} {name}".strip()
        if hasattr(one, "commands"):
            yield from commands(one, here)
        elif here not in ENDLESS:
            yield here, one


PIPES = shutil.ignore_patterns("*.wake")
COMMANDS = dict(commands(typer.main.get_command(build_app())))
WORDS = st.sampled_from(GOOD) | st.sampled_from(HOSTILE) | st.sampled_from(HOSTILE) | st.text(max_size=8)


def words_for(name: str) -> st.SearchStrategy[str]:
    """Values of a parameter: half of them such as it takes, half any."""
    return st.sampled_from(FITTING[name]) | WORDS if name in FITTING else WORDS


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with its arguments and some of its options, good and hostile."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    line: list[str] = []
    for param in COMMANDS[name].params:
        if param.param_type_name == "argument":
            count = (
                draw(st.integers(0, 3)) if param.nargs == -1 else draw(st.integers(0 if not param.required else 1, 1))
            )
            line += [draw(words_for(param.name)) for _ in range(count)]
        elif (
            param.opts[0] not in ENDLESS_OPTIONS
            and (name, param.opts[0]) != ("events", "--follow")
            and (param.required or draw(st.integers(0, 5)) == 0)
        ):
            line += [param.opts[0]] if param.is_flag else [param.opts[0], draw(words_for(param.name))]
    if draw(st.integers(0, 9)) == 0:
        line.insert(draw(st.integers(0, len(line))), draw(WORDS))
    line += ["--until", "caught-up"] if name == "subscribe" else []
    line = [word.replace("\0", "") for word in line]  # the system gives no program such an argument
    return [*name.split(), *line]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose copy has a home, content, packages, a target, and damaged ones of each."""
    folder = tmp_path_factory.mktemp("command-lines") / "a" / "b"  # room for ..
    (folder / "site" / "en").mkdir(parents=True)
    (folder / "site" / "index.html").write_text("<h1>Home</h1>")
    (folder / "site" / "en" / "a.txt").write_text("a")
    (folder / "agent.yaml").write_text("agents: {publishers: [{name: author, source: site}]}\n")
    (folder / "bad.yaml").write_text("agents: [1, {name: -x}]\nhttp: {port: 99999}\n? [a]\n: 2026-99-99\n")
    (folder / "empty").write_bytes(b"")
    with working_in(folder, {"MAILBOAT_HOME": "home"}):
        for line in (
            "init", "publish site /", "publish site /en --request-id first", "delete /old", "ping",
            "subscribe web --into files:web --until caught-up", "packages build site /en --into p.zip",
            "content snapshot files:web s.snapshot",
        ):  # fmt: skip
            assert main(line.split()) == 0
    for name in ("p.zip", "s.snapshot"):
        data = (folder / name).read_bytes()
        (folder / f"bad{Path(name).suffix}").write_bytes(data[: len(data) // 2] + b"\0" * 40)
    shutil.copytree(folder / "home", folder / "bad-home", ignore=PIPES)
    (folder / "bad-home" / "journal.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 4096)
    shutil.copytree(folder, folder.parents[1] / "template", ignore=PIPES)
    return folder


@contextlib.contextmanager
def working_in(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MAILBOAT_")]:
            patch.delenv(name)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdin", io.StringIO())
        yield


@pytest.mark.fuzz
@given(line=command_lines())
def test_no_command_line_ends_as_a_defect(place: Path, line: list[str]) -> None:
    shutil.rmtree(place.parent)
    shutil.copytree(place.parents[1] / "template", place)
    out, errors = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with (
        working_in(place, {"MAILBOAT_HOME": "home"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        code = main(line)
    assert code in CODES - {70}, f"{line} ended with {code}: {errors.getvalue()}"
    assert "Traceback" not in errors.getvalue() or "--verbose" in line

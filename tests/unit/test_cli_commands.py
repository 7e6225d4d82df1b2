"""Every command and option is explained, documented and completed; and the ways in and out of the program."""

from __future__ import annotations

import errno
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from mailboat import __version__
from mailboat.api.problems import import_all_modules
from mailboat.cli.error_report import EXIT_CODES
from mailboat.cli.explain import explanations, nearest_name
from mailboat.cli.help_page import COMMANDS, EXAMPLES, TOPICS, summary_of_command
from mailboat.cli.main import main, open_closed_streams
from mailboat.cli.program import build_app
from mailboat.errors import JournalUnavailableError

ROOT = Path(__file__).resolve().parents[2]
APPLICATION: Any = typer.main.get_command(build_app())


def commands(inner: Any = APPLICATION, path: str = "mailboat") -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its full name."""
    for name, one in inner.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, f"{path} {name}")
        else:
            yield f"{path} {name}", one


ALL = dict(commands())


@pytest.fixture(scope="module", autouse=True)
def _all_errors() -> None:
    """Import every module that has errors, on no test's account."""
    import_all_modules(but=("mailboat.testing",))


def test_every_name_leads_to_a_command_and_back() -> None:
    assert set(APPLICATION.commands) == set(COMMANDS)


@pytest.mark.parametrize("path", ALL)
def test_a_command_and_its_options_are_explained(path: str) -> None:
    assert ALL[path].help.strip().endswith((".", "."))
    for param in ALL[path].params:
        assert (getattr(param, "help", "") or "").strip().endswith("."), param.name


@pytest.mark.parametrize("path", ALL)
def test_a_command_and_its_options_are_documented(path: str) -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert re.search(rf"^#+ `{path}(?: .*)?`$", page, re.MULTILINE)
    for param in ALL[path].params:
        if param.param_type_name == "option":
            assert param.opts[0] in page


@pytest.mark.parametrize("path", [path for path in ALL if path != "mailboat completion"])
def test_a_command_takes_the_options_that_all_take(path: str) -> None:
    assert {"home", "output", "verbose"} <= {param.name for param in ALL[path].params}


@pytest.mark.parametrize("path", ALL)
def test_help_page_names_values_in_one_style(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path.split()[1:], "--help"]) == 0
    page = capsys.readouterr().out
    assert "<" not in page.replace("<(", "")
    assert page.startswith(f"Usage: {path} ")
    for param in ALL[path].params:
        if param.param_type_name == "option" and not param.is_flag:
            assert re.search(rf"{param.opts[0]} ([A-Z][A-Z:,…|=\[\]-]*|[a-z0-9|-]+\|[a-z0-9|-]+)(\s|$)", page), (
                param.name
            )
        elif param.param_type_name == "argument":
            assert re.search(r"^  [A-Z]+ ", page, re.MULTILINE), param.name


@pytest.mark.parametrize("path", ["mailboat", *ALL])
def test_help_page_has_examples_that_parse(path: str) -> None:
    lines = EXAMPLES.get(path.partition(" ")[2])
    assert lines, f"add an example of `{path}` to EXAMPLES in cli/help_page.py"
    for line in lines:
        words = shlex.split(line.removeprefix("source <(").removesuffix(")"))
        assert words[0] == "mailboat"
        context = APPLICATION.make_context("mailboat", words[1:])
        while hasattr(context.command, "commands"):
            rest = [*context._protected_args, *context.args]
            name, command, rest = context.command.resolve_command(context, rest)
            context = command.make_context(name, rest, parent=context)
        if path != "mailboat":
            assert context.command_path == path


def test_no_example_is_left_over() -> None:
    left_over = set(EXAMPLES) - {path.partition(" ")[2] for path in ["mailboat", *ALL]}
    assert not left_over, "remove them from EXAMPLES in cli/help_page.py"


def test_every_command_is_listed_under_one_topic() -> None:
    assert [name for entries in TOPICS.values() for name in entries] == list(COMMANDS)


def test_program_help_shows_the_summary_of_each_command() -> None:
    assert {name: summary_of_command(APPLICATION.commands[name]) for name in COMMANDS} == {
        name: entry.summary for name, entry in COMMANDS.items()
    }


@pytest.mark.parametrize(("old", "new"), [("queue", "queues"), ("distribution", "distributions"), ("errors", "errors")])
def test_alias_runs_the_command(old: str, new: str, boat: Any) -> None:
    assert boat.run(old, "list", "-o", "json") == boat.run(new, "ls", "-o", "json")


@pytest.mark.parametrize(
    ("group", "alias", "verb"), [("distributions", "show", "get"), ("errors", "get", "show"), ("jobs", "get", "show")]
)
def test_show_and_get_are_one_verb(group: str, alias: str, verb: str, boat: Any) -> None:
    aliased, named = (boat.run(group, name, "--help") for name in (alias, verb))
    assert (aliased.code, aliased.out.splitlines()[2]) == (0, named.out.splitlines()[2])


def test_group_without_a_command_names_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues"]) == 2
    said = capsys.readouterr().err
    assert "missing command; choose one of: ls, show, clear, remove, command" in said
    assert "next  mailboat queues --help" in said


def test_help_has_no_control_characters_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    assert "\x1b" not in capsys.readouterr().out


def test_every_exit_code_is_in_the_help_and_in_the_documents(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    page = (ROOT / "docs" / "cli.md").read_text()
    for code, meaning in EXIT_CODES:
        assert f"- {code}: {meaning}\n" in page
        assert meaning.split(" ")[0] in shown


@pytest.mark.parametrize("words", [["--help"], ["publish", "--help"], ["journal", "-h"], []])
def test_help_is_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    shown = capsys.readouterr()
    assert "Usage: mailboat" in shown.out + shown.err
    assert code == (0 if words else 2)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mailboat {__version__}\n"


def test_a_misspelt_command_is_told_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["statsu"]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: Usage: No such command 'statsu'. Did you mean 'status'?")
    assert "next  mailboat --help" in shown


def test_a_word_that_an_option_does_not_know_is_named_with_those_that_it_knows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["status", "--output", "table\u00e9"]) == 2
    shown = capsys.readouterr().err
    assert "'--output' / '-o': 'table\u00e9' is not one of 'table', 'json', 'yaml', 'name'" in shown


@pytest.mark.parametrize("words", [("explain",), ("explain", "--verbose")])
def test_a_defect_is_one_sentence_and_a_trace_only_when_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("made by the test")

    monkeypatch.setattr("mailboat.cli.explain.explanations", fail)
    assert main(words) == 70
    shown = capsys.readouterr().err
    told = "error: InternalDefect: the command failed unexpectedly: ZeroDivisionError: made by the test\n"
    assert told in shown
    assert "  where  mailboat.cli.explain:" in shown
    assert ("Traceback" in shown) is ("--verbose" in words)
    assert shown.startswith(told) is ("--verbose" not in words)


def test_output_that_can_not_be_written_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mailboat.cli.explain.explanations", fail)
    monkeypatch.setattr("mailboat.cli.main.leave_broken_pipe", lambda: None)
    assert main(["explain"]) == 1
    assert "error: OutputFailed: standard output can't be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [
        (errno.ENAMETOOLONG, 2, "PlaceUnusable"),
        (errno.EACCES, 77, "PermissionMissing"),
        (errno.EIO, 70, "InternalDefect"),
    ],
)
def test_a_failure_of_the_system_about_a_place_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, number: int, code: int, name: str
) -> None:
    def fail() -> None:
        raise OSError(number, "said by the system", "/a/place")

    monkeypatch.setattr("mailboat.cli.explain.explanations", fail)
    assert main(["explain"]) == code
    shown = capsys.readouterr().err
    assert (f"error: {name}: " in shown, "/a/place" in shown) == (True, True)


def test_streams_that_the_caller_closed_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):  # `mailboat … <&- >&- 2>&-`
        monkeypatch.setattr(sys, name, None)
    open_closed_streams()
    opened = [sys.stdin, sys.stdout, sys.stderr]
    monkeypatch.undo()
    assert (opened[0].read(), opened[0].isatty(), opened[1].write("x"), opened[2].write("x")) == ("", False, 1, 1)
    for stream in opened:
        stream.close()


def test_argument_that_is_no_text_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--url", "http://127.0.0.1:1", "distributions", "get", "\udcff", "--publisher", "author"]
    assert main(words) == 2
    assert "the argument '\\udcff' is not text in UTF-8" in capsys.readouterr().err


def test_brokers_that_do_not_answer_an_init_leave_a_way_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise JournalUnavailableError("no broker answers", next_step="check that the brokers run")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mailboat.cli.init.initialise", fail)
    assert main(["init", "--kafka", "typo:9092"]) == 75
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "  next  check that the brokers run",
        "        to go on, also with other brokers in .mailboat/mailboat.yaml:",
        "        mailboat journal ensure",
    ]


def test_a_locale_that_reads_names_of_files_wrongly_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    assert main(["explain", "Usage"]) == 2
    shown = capsys.readouterr().err
    assert "error: Usage: the locale has names of files in iso8859-1, and content has them in UTF-8\n" in shown
    assert "  next  set LC_ALL=C.UTF-8 or PYTHONUTF8=1\n" in shown


@pytest.mark.parametrize("name", ["JournalTrimmed", "journaltrimmed", "JournalTrimmedError"])
def test_a_name_is_explained_however_it_is_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("JournalTrimmed   needs-operator, exit code 6\n\nRetention removed packages")
    assert "--accept-gap" in shown


def test_explain_takes_several_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "JournalTrimmed", "BlobMissing"]) == 0
    titles = [line.split()[0] for line in capsys.readouterr().out.splitlines() if ", exit code" in line]
    assert titles == ["JournalTrimmed", "BlobMissing"]
    assert main(["explain", "JournalTrimmed", "BlobMissing", "-o", "json"]) == 0
    assert [document["name"] for document in json.loads(capsys.readouterr().out)] == titles
    assert main(["explain", "JournalTrimmed", "Nothing"]) == 2
    assert capsys.readouterr().out == "", "a wrong name is refused before anything is printed"


def test_explain_of_a_misspelt_name_suggests_the_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "JurnalTrimed"]) == 2
    assert "next  mailboat explain JournalTrimmed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("Trimmed", "JournalTrimmed"),
        ("import", "importing"),
        ("StorageFul", "StorageFull"),
        ("Journal", None),
        ("Nope", None),
        ("Nothing", None),
        ("x", None),
    ],
)
def test_explain_suggests_only_similar_names(word: str, suggested: str | None) -> None:
    names = {name.lower(): name for name in explanations()}
    near = nearest_name(word.lower(), list(names))
    assert (None if near is None else names[near]) == suggested


def test_explain_of_another_word_names_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "Nothing"]) == 2
    assert "next  mailboat explain   (lists all names)" in capsys.readouterr().err


ADVICE = re.compile(
    r"`mailboat |\b(?:retr(?:y|ies)|again|continues|check|correct|create|use|renew|restore|remove|publish|upgrade|start"
    r"|stop|set|change|choose|restart|run|report|install|find|name|mount|search|wait|write|raise|repair|redirect|add"
    r"|make|open|let|pass|give|try|lower|request|apply)\b",
    re.IGNORECASE,
)
"""Verbs of a next step."""

WITHOUT_ADVICE = {
    "JobCompleted": "nothing is to be done",
    "Usage": "the message of each such error has its own",
}


def test_each_error_is_explained_with_a_next_step() -> None:
    errors = {name: explanation.text for name, explanation in explanations().items() if explanation.kind != "state"}
    without = {name for name, text in errors.items() if not ADVICE.search(" ".join(re.split(r"[.:;]\s", text)[1:]))}
    assert without == set(WITHOUT_ADVICE)


def test_the_families_of_errors_are_not_listed() -> None:
    assert not {"Mailboat", "Permanent", "Stop", "UntrustedInput"} & set(explanations())


def test_every_error_is_explained_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "-o", "name"]) == 0
    names = capsys.readouterr().out.split()
    assert names == list(explanations())
    assert {"ConfigInvalid", "TargetBusy", "ValueRefused", "UnknownMessage", "retrying"} <= set(names)
    page = (ROOT / "docs" / "errors.md").read_text()
    assert [name for name in names if f"\n## {name}\n" not in page] == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_taught_to_complete(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_MAILBOAT_COMPLETE" in capsys.readouterr().out

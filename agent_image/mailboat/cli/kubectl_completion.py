"""`kubectl_complete-mailboat`: what kubectl's shell completion offers for `kubectl mailboat …`.

kubectl (1.26 and newer) runs this program with the words typed so far, of which the last one may be empty. It expects
one candidate per line, `VALUE<tab>DESCRIPTION`, and at last `:` with a number that says what the shell may add.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from mailboat.cli.kubectl import PUBLISHERS, REMOTE_COMMANDS, Kubectl, forwarded_agent, kubectl_with, option_parser
from mailboat.composition.environment import TOKEN_VARIABLE, child_environment
from mailboat.errors import MailboatError

_FILES: Final = 0
_NO_FILES: Final = 4
"""Directives of cobra, the library of kubectl's completion."""

_OPTIONS: Final[Mapping[str, str]] = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--context": "context",
    "--kubeconfig": "kubeconfig",
    "--publisher": "publisher",
}
_SECONDS: Final = 10.0


class Typed(NamedTuple):
    """The words typed so far, by what they are.

    Attributes:
        options: Complete words before the command.
        command: The command and its complete words; empty while it is not complete.
        value_of: The option before the command whose value is typed, without dashes.
        start: The word that is typed, as far as it is.
    """

    options: Sequence[str]
    command: Sequence[str]
    value_of: str | None
    start: str


def run() -> None:
    """The entry point of the installed program `kubectl_complete-mailboat`."""
    try:
        found, directive = candidates(sys.argv[1:])
    except (MailboatError, subprocess.TimeoutExpired):  # no cluster, no rights: the shell has no place for a reason
        found, directive = [], _NO_FILES
    sys.stdout.write("".join(f"{line}\n" for line in (*found, f":{directive}")))


def decide_typed(words: Sequence[str]) -> Typed:
    """Split words into options of `kubectl mailboat` and the command; the last is being typed."""
    *complete, start = words or [""]
    place = 0
    while place < len(complete) and complete[place].startswith("-"):
        place += 2 if complete[place] in _OPTIONS else 1
    if place > len(complete):
        return Typed(complete[:-1], (), _OPTIONS[complete[-1]], start)
    name, is_value, rest = start.partition("=")
    if place == len(complete) and is_value and name in _OPTIONS:
        return Typed(complete, (), _OPTIONS[name], rest)
    return Typed(complete[:place], complete[place:], None, start)


def candidates(words: Sequence[str]) -> tuple[Sequence[str], int]:
    """What to offer for these words, and the directive. Raises: KubectlFailedError; UsageError."""
    typed = decide_typed(words)
    if typed.value_of == "kubeconfig":
        return [], _FILES
    given = option_parser().parse_args(typed.options)
    if typed.value_of is not None:
        return _values(kubectl_with(given), typed), _NO_FILES
    if typed.command:
        return _of_command(given, typed), _NO_FILES
    meanings = {"--namespace": "", "--context": "", "--kubeconfig": "", "--publisher": "", "--help": ""}
    offered = meanings if typed.start.startswith("-") else REMOTE_COMMANDS
    return [f"{name}\t{text}".strip() for name, text in offered.items() if name.startswith(typed.start)], _NO_FILES


def _values(kubectl: Kubectl, typed: Typed) -> Sequence[str]:
    asked = {
        "namespace": ("get", "namespaces", "--output=name"),
        "context": ("config", "get-contexts", "--output=name"),
        "publisher": ("get", PUBLISHERS, "--output=name"),
    }
    return [name for name in kubectl.names(*asked[str(typed.value_of)]) if name.startswith(typed.start)]


def _of_command(given: argparse.Namespace, typed: Typed) -> Sequence[str]:
    """What `mailboat` itself offers; its agent is asked only where that is nothing, since this takes a second."""
    words = [*typed.command, typed.start]
    known = _offered(words)
    if known or typed.start.startswith("-"):
        return known
    with forwarded_agent(kubectl_with(given), given.publisher) as (url, token):
        return _offered(["--url", url, *words], token)


def _offered(words: Sequence[str], token: bytes = b"") -> Sequence[str]:
    """Ask `mailboat` in a process of its own, by the protocol of its script for fish: values with descriptions."""
    with tempfile.TemporaryDirectory(
        prefix="kubectl-mailboat-"
    ) as nowhere:  # names of a local home are not the agent's
        line = f"mailboat {shlex.join(words[:-1])} {shlex.quote(words[-1]) if words[-1] else ''}"
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # krew's launcher adds the libraries at run time
            "_MAILBOAT_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_ARGS": line,
            TOKEN_VARIABLE: token.decode(errors="replace").strip(),
        }
        done = subprocess.run(
            [sys.executable, "-m", "mailboat.cli"],
            env={**child_environment(Path(nowhere)), **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    return [found for found in done.stdout.splitlines() if found]

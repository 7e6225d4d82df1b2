"""Commit subjects: imperative, at most 72 characters, without a full stop. The reason goes into the body."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

SINCE = "b3343199baa3c2a23bf3118eea1d27bbea606ecc"
"""The last commit that is not checked. In a shallow clone without it, only the newest commit is."""
SUBJECT_LENGTH = 72
NOT_IMPERATIVE = re.compile(r"(?:ed|ing|[^s]s)$")
IMPERATIVES = {"Alias", "Bring", "Canvas", "Embed", "Feed", "Focus", "Need", "Ping", "Seed", "Shed", "Speed", "String"}
"""Verbs that end like a past tense, a participle or a third person."""


def git(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in the repository."""
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)


def mistakes(subject: str) -> list[str]:
    """The rules that a subject breaks."""
    first = subject.split(" ", 1)[0]
    found = []
    if len(subject) > SUBJECT_LENGTH:
        found.append(f"{len(subject)} characters")
    if subject.endswith("."):
        found.append("a full stop")
    if not first[:1].isupper() or (NOT_IMPERATIVE.search(first) and first not in IMPERATIVES):
        found.append("no imperative at the start")
    return found


def test_subjects_since_the_check_began_are_short_and_imperative(root: Path) -> None:
    is_known = git(root, "merge-base", "--is-ancestor", SINCE, "HEAD").returncode == 0
    chosen = f"{SINCE}..HEAD" if is_known else "-1"
    lines = git(root, "log", "--no-merges", "--format=%H %s", chosen).stdout.splitlines()
    subjects = [line.split(" ", 1) for line in lines]
    wrong = [f"{subject}: {mistakes(subject)}" for _, subject in subjects]
    assert [line for line in wrong if not line.endswith(": []")] == []


@pytest.mark.parametrize(
    ("subject", "count"),
    [
        ("Keep progress of a job across restarts", 0),
        ("Embed the page", 0),
        ("Process records in order", 0),
        ("Added a page", 1),
        ("Fixes the page", 1),
        ("fix the page.", 2),
        ("Take no time under coverage, and let tests look once where they counted twice", 1),
    ],
)
def test_rules_of_subjects(subject: str, count: int) -> None:
    assert len(mistakes(subject)) == count

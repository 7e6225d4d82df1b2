"""What several integration tests share: a real Jackrabbit FileVault, and files from Maven Central, kept in a cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[1] / "jackrabbit"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mailboat"
MAVEN = ("mvn", "--quiet", "--batch-mode", "--strict-checksums")
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
CORE_COMPONENTS = "com.adobe.cq:core.wcm.components.content:2.23.4:zip"


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made once, even when several processes want it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    place = CACHE / name
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            draft = CACHE / f"{name}.draft"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            make(draft)
            draft.rename(place)
    return place


def run_maven(*words: str, folder: Path) -> None:
    done = subprocess.run([*MAVEN, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mvn {words}: {done.stdout[-3000:]}{done.stderr[-1000:]}"


def compile_project(into: Path) -> None:
    shutil.copytree(PROJECT, into, dirs_exist_ok=True)
    libraries = ("dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=target/libs")
    run_maven("compile", *libraries, folder=into)


class JackrabbitError(Exception):
    """What FileVault said."""


class Jackrabbit:
    """Jackrabbit FileVault over an in-memory Oak repository, in a process of its own."""

    def __init__(self, built: Path) -> None:
        classes = f"{built}/target/classes:{built}/target/libs/*"
        self.types = built / "types.cnd"
        self.process = subprocess.Popen(
            [*JAVA, "-cp", classes, "dev.mailboat.jackrabbit.Exchange"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )

    def ask(self, *words: str | Path) -> Any:
        """One command. Raises: JackrabbitError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        state, _, answer = self.process.stdout.readline().partition("\t")
        if state != "ok":
            raise JackrabbitError(json.loads(answer) if answer else "the process ended")
        return json.loads(answer)

    def reset(self) -> None:
        """Begin with an empty repository."""
        self.ask("reset", self.types)

    def close(self) -> None:
        self.process.communicate(timeout=20)


@pytest.fixture(scope="session")
def jackrabbit_process() -> Iterator[Jackrabbit]:
    parts = sorted(path for path in PROJECT.rglob("*") if path.is_file())
    key = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in parts)).hexdigest()[:16]
    process = Jackrabbit(cached(f"jackrabbit-{key}", compile_project))
    yield process
    process.close()


@pytest.fixture
def jackrabbit(jackrabbit_process: Jackrabbit) -> Jackrabbit:
    """An empty repository."""
    jackrabbit_process.reset()
    return jackrabbit_process


@pytest.fixture(scope="session")
def core_components() -> Path:
    """A content package of AEM that Adobe publishes."""
    name = CORE_COMPONENTS.replace(":", "-")

    def fetch(into: Path) -> None:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.7.1:copy"
        run_maven(copy, f"-Dartifact={CORE_COMPONENTS}", "-DoutputDirectory=.", folder=into)

    (found,) = cached(name, fetch).glob("*.zip")
    return found

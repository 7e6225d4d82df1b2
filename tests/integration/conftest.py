"""What several integration tests share: real Java programs of others, and files from Maven Central, kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from mailboat.config.document import PublisherConfig, ThrottleConfig
from mailboat.control.service import ControlService
from mailboat.testing.wait import PATIENCE_SECONDS
from support.control_harbour import Harbour
from support.machine_cache import filled_once

TESTS = Path(__file__).parents[1]
MAVEN = ("mvn", "--quiet", "--batch-mode", "--strict-checksums")
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
CORE_COMPONENTS = "com.adobe.cq:core.wcm.components.content:2.23.4:zip"


def run_maven(*words: str, folder: Path) -> None:
    done = subprocess.run([*MAVEN, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"mvn {words}: {done.stdout[-3000:]}{done.stderr[-1000:]}"


def built(project: Path) -> Path:
    """A Maven project with its classes and libraries, built once for each content that it has."""
    parts = sorted(path for path in project.rglob("*") if path.is_file())
    key = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in parts)).hexdigest()[:16]
    libraries = ("dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=target/libs")

    def build(into: Path) -> None:
        shutil.copytree(project, into, dirs_exist_ok=True)
        run_maven("compile", *libraries, folder=into)

    return filled_once(f"{project.name}-{key}", build)


class JavaProgramError(Exception):
    """What the program said."""


class JavaProgram:
    """A program of `tests/` in a process of its own, which answers each line with one line."""

    def __init__(self, project: Path, main: str, log: Path | None = None, java: Sequence[str] = JAVA) -> None:
        self.folder, self.log = built(project), Path(os.devnull) if log is None else log
        classes = f"{self.folder}/target/classes:{self.folder}/target/libs/*"
        self.command = [*java, "-cp", classes, main]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with self.log.open("ab") as errors:
            return subprocess.Popen(self.command, stderr=errors, encoding="utf-8", **pipes)

    def ensure_running(self) -> None:
        """Start it again, with nothing in it, after a question that was broken off."""
        if self.process.poll() is not None:
            self.process = self._started()

    def ask(self, *words: str | Path) -> Any:
        """One command. Raises: JavaProgramError."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write("\t".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            state, _, answer = self.process.stdout.readline().partition("\t")
        except BaseException:  # a test's limit: the next question would be given the answer to this one
            self.process.kill()
            self.process.communicate()
            raise
        if state != "ok":
            raise JavaProgramError(json.loads(answer) if answer else "the process ended")
        return json.loads(answer)

    def close(self) -> None:
        self.process.communicate(timeout=PATIENCE_SECONDS)


class Jackrabbit(JavaProgram):
    """Jackrabbit FileVault over an in-memory Oak repository."""

    def reset(self) -> None:
        """Begin with an empty repository."""
        self.ask("reset", self.folder / "types.cnd")

    def keep(self, name: str) -> None:
        """Remember the repository under a name."""
        self.ask("keep", name)

    def restore(self, name: str) -> None:
        """Go on from what was remembered."""
        self.ask("restore", name)

    def forget(self) -> None:
        """Remember nothing: it takes memory."""
        self.ask("forget")

    def errors(self, package: Path) -> list[str]:
        """What FileVault's validator refuses of a package: validator, place and message."""
        found: list[str] = self.ask("validate", package, self.folder / "types.cnd")
        return found


@pytest.fixture(scope="session")
def jackrabbit_process() -> Iterator[Jackrabbit]:
    process = Jackrabbit(TESTS / "jackrabbit", "dev.mailboat.jackrabbit.Exchange")
    yield process
    process.close()


@pytest.fixture
def jackrabbit(jackrabbit_process: Jackrabbit) -> Jackrabbit:
    """An empty repository."""
    jackrabbit_process.forget()
    jackrabbit_process.reset()
    return jackrabbit_process


def maven_artifact(coordinates: str) -> Path:
    """A zip from Maven Central, by `group:artifact:version:type`, fetched once."""

    def fetch(into: Path) -> None:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"  # newer ones insist on the parent's POM
        run_maven(copy, f"-Dartifact={coordinates}", "-DoutputDirectory=.", folder=into)

    (found,) = filled_once(coordinates.replace(":", "-"), fetch).glob("*.zip")
    return found


@pytest.fixture(scope="session")
def public_package() -> Callable[[str], Path]:
    """Fetches a package by its coordinates: `group:artifact:version:type`."""
    return maven_artifact


@pytest.fixture(scope="session")
def core_components() -> Path:
    """A content package of AEM that Adobe publishes."""
    return maven_artifact(CORE_COMPONENTS)


@pytest.fixture(scope="session")
def spark_connectors() -> list[Path]:
    """The jars that `tests/spark/pom.xml` names, with what they need."""
    pom = TESTS / "spark" / "pom.xml"
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]

    def fetch(into: Path) -> None:
        shutil.copy(pom, into)
        run_maven("dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=libs", folder=into)

    return sorted((filled_once(f"spark-connectors-{key}", fetch) / "libs").glob("*.jar"))


@pytest.fixture(scope="session")
def sling_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaProgram]:
    """Agents of Apache Sling Distribution Journal 0.1.6; no one has joined any topics yet."""
    log = tmp_path_factory.mktemp("sling") / "sling.log"
    process = JavaProgram(TESTS / "sling", "dev.mailboat.sling.Member", log)
    yield process
    process.close()


@pytest.fixture
def optimised_sling_process(tmp_path: Path) -> Iterator[JavaProgram]:
    """The same with the compilers that a server has: slow to start, fast when it is warm."""
    java = ("java", "-XX:+UseSerialGC", "-Xmx512m")
    process = JavaProgram(TESTS / "sling", "dev.mailboat.sling.Member", tmp_path / "sling.log", java)
    yield process
    process.close()


@pytest.fixture
def throttle() -> ThrottleConfig:
    """How the harbour's publishers slow down; a test class may say otherwise."""
    return ThrottleConfig()


@pytest.fixture
def harbour(tmp_path: Path, throttle: ThrottleConfig) -> Iterator[Harbour]:
    """A home with played subscribers."""
    made = Harbour(tmp_path, PublisherConfig(throttle=throttle))
    yield made
    made.close()


@pytest.fixture
def service(harbour: Harbour) -> ControlService:
    """Its control service."""
    return harbour.service()

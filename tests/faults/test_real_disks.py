"""A target on a small file system of its own: really full, then larger; really read-only, then writable.

The file system is in memory, mounted in a namespace that a shell keeps for as long as a test needs it, so nothing of it
is left behind, and no rights on the machine are needed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mailboat.cli.demo.sample_site import write_site
from mailboat.cli.main import main
from mailboat.testing.wait import PATIENCE_SECONDS

END = "== end of the command: "


class Namespace:
    """A shell with mounts of its own. Commands are run one after the other; one may be left running."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "shell.log"
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        with self._log.open("wb") as log:
            self._shell = subprocess.Popen(
                ["unshare", "--user", "--map-root-user", "--mount", "bash"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=folder,
                text=True,
            )

    def run(self, *command: object) -> tuple[int, str]:
        """Exit code and output of a command."""
        return self._line(shlex.join(map(str, command)) + " 2>&1")

    def do(self, *command: object) -> str:
        """The same, for commands that must succeed."""
        code, out = self.run(*command)
        assert code == 0, f"{shlex.join(map(str, command))}: {code}\n{out}"
        return out

    def begin(self, *command: object) -> None:
        """Leave a command running."""
        self._line(f"{shlex.join(map(str, command))} > begun.log 2>&1 & begun=$!")

    def end_of_begun(self) -> int:
        """Wait for it; its exit code."""
        return self._line("wait $begun")[0]

    def close(self) -> None:
        self._line("test -z $begun || kill $begun 2>/dev/null; wait")
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        assert self._shell.wait(PATIENCE_SECONDS) == 0
        assert self._shell.stdout is not None
        self._shell.stdout.close()

    def _line(self, text: str) -> tuple[int, str]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{text}\ncode=$?; echo; echo '{END}'$code\n")
        self._shell.stdin.flush()
        said: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(said).rstrip("\n")
            said.append(line)
        pytest.fail(f"the shell ended: {self._log.read_text()}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_site(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Path:
    """A home with the site published."""
    home = tmp_path_factory.mktemp("published") / "home"
    assert main(["--home", str(home), "init"]) == 0
    assert main(["--home", str(home), "publish", str(site), "/"]) == 0
    return home


@pytest.fixture
def namespace(tmp_path: Path, published: Path) -> Iterator[Namespace]:
    """A namespace, and a home with the site published."""
    (tmp_path / "disk").mkdir()
    shutil.copytree(published, tmp_path / "home")
    namespace = Namespace(tmp_path)
    try:
        yield namespace
    finally:
        namespace.close()


def subscribe(kind: str) -> list[str]:
    words = ["mailboat", "--home", "home", "subscribe", "web", "--into", f"{kind}:disk/target"]
    return [*words, "--until", "caught-up"]


KINDS = pytest.mark.parametrize("kind", ["files", "generations", "sqlite"])


@KINDS
def test_a_full_disk_is_waited_for_and_the_package_is_imported_whole_once_there_is_room(
    namespace: Namespace, kind: str, site: Path
) -> None:
    namespace.do("mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", "disk")
    namespace.begin(*subscribe(kind))
    told = "until mailboat --home home status > told && grep -q StorageFull told; do sleep 0.05; done; cat told"
    assert "waiting" in namespace.do("timeout", PATIENCE_SECONDS, "bash", "-c", told)
    namespace.do("mount", "-o", "remount,size=40m", "disk")
    assert namespace.end_of_begun() == 0
    assert namespace.do("mailboat", "content", "diff", site, f"{kind}:disk/target") == "no difference"


@KINDS
def test_a_read_only_disk_is_named_and_nothing_of_the_package_is_lost(namespace: Namespace, kind: str) -> None:
    namespace.do("mount", "-t", "tmpfs", "tmpfs", "disk")
    namespace.do(*subscribe(kind))
    namespace.do("mailboat", "--home", "home", "delete", "/de")
    namespace.do("mount", "-o", "remount,ro", "disk")
    code, said = namespace.run(*subscribe(kind))
    assert code == os.EX_NOPERM
    assert "StorageReadOnly" in said
    namespace.do("mount", "-o", "remount,rw", "disk")
    namespace.do(*subscribe(kind))
    assert "/de" not in namespace.do("mailboat", "content", "ls", f"{kind}:disk/target").split()


def test_a_full_disk_under_the_publishers_state_is_named_and_costs_nothing(namespace: Namespace, site: Path) -> None:
    namespace.do("mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", "disk")
    namespace.do("mailboat", "--home", "disk/home", "init")
    told = namespace.do(
        "bash", "-c", f"while mailboat --home disk/home publish {site} /; do :; done > out 2>&1; cat out | tail -5"
    )
    assert "StorageFull" in told
    namespace.do("mount", "-o", "remount,size=40m", "disk")
    namespace.do("mailboat", "--home", "disk/home", "publish", str(site), "/")

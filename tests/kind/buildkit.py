"""A BuildKit of this machine, and what a build of the project's images takes from a registry where none is reachable.

The daemon has mounts and processes of its own: all of them end with it. What it built stays in the cache, keyed by
content, so that a second build of the same sources takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from builds import BUILDKITD, BUILDX, SBOM_SCANNER, build, cache_folder, locked, say
from engine import RUNC, install_packages
from images import COMPILER, OFFLINE, OPERATOR, SPARK, debian_key, make_debian, wheelhouse

_PACKAGES = (*COMPILER, *SPARK.packages)
_START_SECONDS = 60.0
_KEPT_BYTES = 6_000_000_000
_BUILDER = "local"
_BASE = "FROM scratch\nADD root.tar /\nENV PATH=/usr/local/bin:/usr/bin:/bin\nLABEL use={use}\n"
_SCANNER = 'FROM scratch\nCOPY sbom-scanner /bin/\nENTRYPOINT ["/bin/sbom-scanner"]\n'


@dataclass(frozen=True)
class BuildKit:
    """A running daemon.

    Attributes:
        folder: Its socket, its log, and the configuration of its client.
        client: The program buildx.
    """

    folder: Path
    client: Path

    @property
    def environment(self) -> dict[str, str]:
        """What the client needs."""
        return {"BUILDX_CONFIG": str(self.folder / "buildx"), "BUILDX_BUILDER": _BUILDER}

    def run(self, *arguments: str | Path) -> str:
        """What a command of the client prints. Raises: CalledProcessError, after the client's own words."""
        environment = {**os.environ, **self.environment}
        command = [self.client, *arguments]
        return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def publish(self, image: str, dockerfile: str, context: Path) -> str:
        """Build an image and push it; its name with its digest."""
        with tempfile.TemporaryDirectory(dir=self.folder) as draft:
            recipe, result = Path(draft, "Dockerfile"), Path(draft, "result.json")
            recipe.write_text(dockerfile)
            options = [
                "--push",
                "--provenance=false",
                f"--tag={image}",
                f"--file={recipe}",
                f"--metadata-file={result}",
            ]
            self.run("build", "--progress=plain", *options, context)
            return f"{image}@{json.loads(result.read_text())['containerimage.digest']}"


@contextmanager
def buildkit(folder: Path) -> Iterator[BuildKit]:
    """A BuildKit that runs until the end of the block; one at a time. Raises: RuntimeError with the end of its log."""
    install_packages()
    daemon, started = build(BUILDKITD), BuildKit(folder, build(BUILDX))
    state = cache_folder() / "buildkit"
    socket, log = folder / "socket", folder / "log"
    configuration = folder / "buildkitd.toml"
    configuration.write_text(f"[worker.oci]\nbinary = '{RUNC}'\nnetworkMode = 'host'\nmaxUsedSpace = {_KEPT_BYTES}\n")
    inside = [daemon, f"--config={configuration}", f"--root={state}", f"--addr=unix://{socket}"]
    kept = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
    with locked(state), log.open("wb") as output, subprocess.Popen([*kept, *inside], stderr=output) as process:
        try:
            end = time.monotonic() + _START_SECONDS
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"BuildKit did not start:\n{log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            started.run("create", f"--name={_BUILDER}", "--driver=remote", f"unix://{socket}")
            yield started
        finally:
            process.kill()


def write_override(running: BuildKit, registry: str, checkout: Path) -> dict[str, str]:
    """Make a checkout buildable without other registries; the base images by the argument that names them.

    The base images and the SBOM generator are pushed to the registry, and the wheels of the locks go into the build
    context. docker-bake.override.json, which bake reads after docker-bake.hcl, names them.
    """
    for lock in {*SPARK.locks, *OPERATOR.locks}:
        shutil.copytree(wheelhouse(lock), checkout / "requirements/wheels" / lock)
    bases = {
        argument: running.publish(f"{registry}/base/{argument.lower()}", _BASE.format(use=argument), _base_folder())
        for argument in ("BASE", "BUILDER")
    }
    generator = running.publish(f"{registry}/sbom-scanner", _SCANNER, build(SBOM_SCANNER).parent)
    machine = {
        "platforms": ["linux/amd64"],
        "args": {**bases, "PIP_OPTIONS": OFFLINE},
        "attest": [f"type=sbom,generator={generator}"],
    }
    (checkout / "docker-bake.override.json").write_text(json.dumps({"target": {"image": machine}}))
    return bases


def _base_folder() -> Path:
    """A folder with the archive of a Debian that has all that the Dockerfiles expect of their base images."""
    folder = cache_folder() / "bases" / debian_key(_PACKAGES)
    with locked(folder):
        if not folder.exists():
            say("making a Debian with Python, a compiler and Java")
            with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
                root, packed = Path(draft, "root"), Path(draft, "packed")
                make_debian(root, _PACKAGES)
                packed.mkdir()
                subprocess.run(["tar", "-C", root, "-cf", packed / "root.tar", "--exclude=./dev/*", "."], check=True)
                packed.rename(folder)
    return folder

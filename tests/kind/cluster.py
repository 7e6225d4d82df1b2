"""The test cluster: kind, with real pods, on this machine. `make cluster` and `make cluster-down` call it.

    cluster.py up       make it, or find it running; prints what a shell needs to use it
    cluster.py env      print that only
    cluster.py load FILE…   give it image archives
    cluster.py down     remove it, and the engine with it

Where a container engine runs already and can pull, kind's published node image is used; elsewhere engine and node image
are made of Go modules and Debian packages (`engine.py`, `node.py`), once, into the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from builds import HELM, KIND, KUBEBOX, build, cache_folder, say
from engine import Engine
from node import node_image

NAME = "mailboat"
READY = "120s"
_HERE = Path(__file__).resolve().parent


def programs() -> Path:
    """A folder with kind, kubectl and helm."""
    folder = cache_folder() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name, program in (("kind", KIND), ("kubectl", KUBEBOX), ("helm", HELM)):
        link, target = folder / name, build(program)
        if not link.is_symlink() or link.readlink() != target:
            draft = folder / f".{name}.{os.getpid()}"
            draft.symlink_to(target)
            draft.replace(link)
    return folder


def environment(engine: Engine) -> dict[str, str]:
    """What a client of the cluster needs."""
    return {
        **engine.environment,
        "KUBECONFIG": str(cache_folder() / "kubeconfig"),
        "PATH": f"{programs()}:{os.environ['PATH']}",
    }


def up() -> dict[str, str]:
    """Make the cluster unless it runs; what its clients need."""
    engine = Engine()
    engine.up()
    needed = environment(engine)
    if NAME not in _kind(needed, "get", "clusters").split() or not _answers(needed):
        _kind(needed, "delete", "cluster", "--name", NAME)
        image = node_image(engine)
        say("making the cluster")
        config = str(_HERE / "cluster.yaml")
        _kind(needed, "create", "cluster", "--name", NAME, "--image", image, "--config", config, "--wait", READY)
    return needed


def load(archives: list[str]) -> None:
    """Give the cluster image archives."""
    needed = environment(Engine())
    for archive in archives:
        _kind(needed, "load", "image-archive", archive, "--name", NAME)


def down() -> None:
    """Remove the cluster and its engine."""
    engine = Engine()
    if engine.is_ready():
        _kind(environment(engine), "delete", "cluster", "--name", NAME)
    engine.down()


def _kind(needed: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        ["kind", *arguments], env={**os.environ, **needed}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"kind {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _answers(needed: dict[str, str]) -> bool:
    command = ["kubectl", "get", "--raw", "/readyz", "--request-timeout=5s"]
    return subprocess.run(command, env={**os.environ, **needed}, capture_output=True, check=False).returncode == 0


def _print(needed: dict[str, str]) -> None:
    for name, value in needed.items():
        sys.stdout.write(f"export {name}='{value}'\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["up"]:
            _print(up())
        case ["env"]:
            _print(environment(Engine()))
        case ["load", *archives]:
            load(archives)
        case ["down"]:
            down()
        case _:
            sys.exit(__doc__)

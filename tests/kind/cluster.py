"""The test cluster: kind, with real pods, on this machine. `make cluster` and `make cluster-down` call it.

    cluster.py up        make it, or find it running; prints what a shell needs to use it
    cluster.py env       print that only
    cluster.py images    build the project's images and load them; prints their names and sizes
    cluster.py load IMAGE…   give it images of the engine
    cluster.py keda      build KEDA of its module and install it
    cluster.py metrics   build the metrics server of its module and install it
    cluster.py spark     the image of bulk builds and kubeflow's Spark operator: prints image, program, definitions
    cluster.py down      remove it, and the engine with it

Where a container engine runs already and can pull, kind's published node image is used; elsewhere engine and node image
are made of Go modules and Debian packages (`engine.py`, `node.py`), once, into the cache.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import keda
import metrics_server
from builds import (
    HELM,
    KIND,
    KUBEBOX,
    SPARK_OPERATOR,
    SPARK_OPERATOR_MODULE,
    build,
    cache_folder,
    locked,
    module_folder,
    say,
)
from engine import Engine, find_engine
from images import AGENT, OPERATOR, SPARK, image
from node import node_image

NAME = "mailboat"
READY = "180s"
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


def published_node_image() -> str:
    """The node image that kind would pull."""
    source = module_folder(KIND, "sigs.k8s.io/kind") / "pkg/apis/config/defaults/image.go"
    found = re.search(r'const Image = "(\S+)"', source.read_text())
    if found is None:
        raise ValueError(f"{source} names no node image")
    return found[1]


def environment(engine: Engine) -> dict[str, str]:
    """What a client of the cluster needs; PATH is what goes before the rest of it."""
    return {
        **engine.environment,
        "KUBECONFIG": str(cache_folder() / "kubeconfig"),
        "MAILBOAT_HOST_ADDRESS": engine.host_address,
        "PATH": str(programs()),
    }


def up() -> Engine:
    """Make the cluster unless it runs; the engine that it runs in."""
    with locked(cache_folder() / "cluster"):
        engine = find_engine(published_node_image())
        engine.up()
        if NAME not in _kind(engine, "get", "clusters").split() or not _answers(engine):
            _kind(engine, "delete", "cluster", "--name", NAME)
            options = ["--name", NAME, "--wait", READY]
            if engine.can_pull:
                options += ["--image", published_node_image()]
            else:
                options += ["--image", node_image(engine), "--config", str(_HERE / "cluster.yaml")]
            say("making the cluster")
            _kind(engine, "create", "cluster", *options)
    return engine


def load(engine: Engine, names: list[str]) -> None:
    """Give the cluster images of the engine; one that it has already costs nothing."""
    _kind(engine, "load", "docker-image", *names, "--name", NAME)


def load_own(engine: Engine) -> None:
    """Build the project's images, load them, and print their names and sizes."""
    names = [image(engine, recipe) for recipe in (AGENT, OPERATOR)]
    load(engine, names)
    for name in names:
        sys.stdout.write(f"{name} {engine.image_bytes(name)}\n")


def load_spark(engine: Engine) -> None:
    """Build the image of bulk builds and load it, build kubeflow's Spark operator, and print where all is."""
    name = image(engine, SPARK)
    load(engine, [name])
    definitions = module_folder(SPARK_OPERATOR, SPARK_OPERATOR_MODULE) / "config" / "crd" / "bases"
    sys.stdout.write(f"{name}\n{build(SPARK_OPERATOR)}\n{definitions}\n")


def down() -> None:
    """Remove the cluster, and its engine if it was started for it; what can't be removed is told, and fails."""
    with locked(cache_folder() / "cluster"):
        engine = find_engine(published_node_image())
        if engine.is_ready():
            _kind(engine, "delete", "cluster", "--name", NAME)
        engine.down()
        left = engine.leftovers()
    if left:
        sys.exit(f"still there: {', '.join(left)}")


def _client_environment(engine: Engine) -> dict[str, str]:
    needed = environment(engine)
    return {**os.environ, **needed, "PATH": f"{needed['PATH']}:{os.environ['PATH']}"}


def _kind(engine: Engine, *arguments: str) -> str:
    done = subprocess.run(
        ["kind", *arguments], env=_client_environment(engine), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"kind {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _answers(engine: Engine) -> bool:
    command = ["kubectl", "get", "--raw", "/readyz", "--request-timeout=5s"]
    return subprocess.run(command, env=_client_environment(engine), capture_output=True, check=False).returncode == 0


def _print(needed: dict[str, str]) -> None:
    for name, value in needed.items():
        rest = ':"$PATH"' if name == "PATH" else ""
        sys.stdout.write(f"export {name}='{value}'{rest}\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["up"]:
            _print(environment(up()))
        case ["env"]:
            _print(environment(find_engine(published_node_image())))
        case ["images"]:
            load_own(up())
        case ["load", *names]:
            load(up(), names)
        case ["keda"]:
            keda.install(_client_environment(up()), NAME)
        case ["metrics"]:
            metrics_server.install(_client_environment(up()), NAME)
        case ["spark"]:
            load_spark(up())
        case ["down"]:
            down()
        case _:
            sys.exit(__doc__)

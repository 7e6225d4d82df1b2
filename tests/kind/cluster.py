"""The test cluster: kind, with real pods, on this machine. `make cluster` and `make cluster-down` call it.

    cluster.py plan      say what `make e2e` will build, and how long that took last time; builds nothing
    cluster.py up        make it, or find it running; prints what a shell needs to use it
    cluster.py env       print that only
    cluster.py build     build programs and images without a cluster; an engine that is started for that ends with it
    cluster.py prepare   make the cluster while the images are built, and load them
    cluster.py images    build the project's images and load them; prints their names and sizes
    cluster.py load IMAGE…   give it images of the engine
    cluster.py keda      build KEDA of its module and install it
    cluster.py metrics   build the metrics server of its module and install it
    cluster.py spark     the image of bulk builds and kubeflow's Spark operator: prints image, program, definitions
    cluster.py down      remove it, and the engine with it

Where a container engine runs already and can pull, kind's published node image is used; elsewhere engine and node image
are made of Go modules and Debian packages (`engine.py`, `node.py`), once, into the cache. `up` builds what the cluster
needs and nothing else. Runs on the machine's own Python with the standard library alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import keda
import metrics_server
from builds import (
    COREDNS,
    HELM,
    KEDA,
    KEDA_METRICS,
    KIND,
    KUBEBOX,
    KUBECTL,
    METRICS_SERVER,
    PAUSE,
    PROGRAMS,
    SPARK_OPERATOR,
    SPARK_OPERATOR_MODULE,
    STORAGE,
    Program,
    binary_of,
    build,
    cache_folder,
    durations,
    locked,
    module_folder,
    say,
    timed,
)
from engine import Engine, OwnEngine, Way, find_way
from images import AGENT, OPERATOR, SPARK, image, name_of
from node import node_image

NAME = "mailboat"
READY = "180s"
IMAGES = (AGENT, OPERATOR, SPARK)
ADDED = (KEDA, KEDA_METRICS, METRICS_SERVER, SPARK_OPERATOR)
"""What the tests install into it."""
_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Step:
    """Something to make.

    Attributes:
        name: As its duration is recorded.
        made: Whether it is there already.
    """

    name: str
    made: bool


def programs_of(*, can_pull: bool) -> dict[str, Program]:
    """Command → the program that it is: what the cluster needs on this machine, and no more."""
    return {"kind": KIND, "kubectl": KUBECTL if can_pull else KUBEBOX}


def announced(steps: Sequence[Step], known: Mapping[str, float]) -> str:
    """What is to be made, with the seconds that it took last time, in one line a step.

    Args:
        steps: All, in order.
        known: Step → seconds.
    """
    wanted = [step for step in steps if not step.made]
    if not wanted:
        return "everything is built and the cluster runs"
    lines = [f"  {item.name}: {_seconds(known.get(item.name))}" for item in wanted]
    timed_ones = [known[item.name] for item in wanted if item.name in known]
    rest = "" if len(timed_ones) == len(wanted) else ", and what was not timed yet"
    total = [f"  together: {sum(timed_ones):.0f} s last time{rest}"] if timed_ones else []
    return "\n".join(["to make:", *lines, *total])


def _seconds(seconds: float | None) -> str:
    return "not timed on this machine yet" if seconds is None else f"{seconds:.0f} s last time"


def cluster_steps(engine: Engine) -> list[Step]:
    """What `up` makes."""
    needed = list(programs_of(can_pull=engine.can_pull).values())
    if not engine.can_pull:
        needed += [COREDNS, STORAGE, PAUSE]
    return [*map(_program_step, needed), Step("cluster", made=_runs(engine))]


def e2e_steps(engine: Engine) -> list[Step]:
    """What `make e2e` makes."""
    added = map(_program_step, (HELM, *ADDED))
    is_ready = engine.is_ready()
    images = [Step(f"image {item.name}", is_ready and engine.has_image(name_of(item))) for item in IMAGES]
    return [*cluster_steps(engine), *added, *images]


def _program_step(program: Program) -> Step:
    return Step(f"program {program.name}", binary_of(program).exists())


def programs(engine: Engine) -> Path:
    """A folder with kind and kubectl, and with helm if that was built."""
    folder = cache_folder() / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: build(program) for name, program in programs_of(can_pull=engine.can_pull).items()}
    if binary_of(HELM).exists():
        found["helm"] = binary_of(HELM)
    for name, target in found.items():
        link = folder / name
        if not link.is_symlink() or link.readlink() != target:
            draft = folder / f".{name}.{os.getpid()}"
            draft.symlink_to(target)
            draft.replace(link)
    return folder


def way() -> Way:
    """The engine of the cluster, and why it is that one."""
    return find_way(published_node_image(), Engine(), OwnEngine())


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
        "PATH": str(programs(engine)),
    }


def up() -> Engine:
    """Make the cluster unless it runs; the engine that it runs in."""
    with locked(cache_folder() / "cluster"):
        engine, reason = way()
        if not engine.is_ready() or not _runs(engine):
            say(reason)
            say(announced(cluster_steps(engine), durations()))
        engine.up()
        if not _runs(engine):
            _kind(engine, "delete", "cluster", "--name", NAME)
            with timed("cluster"):
                _make(engine)
    return engine


def _make(engine: Engine) -> None:
    options = ["--name", NAME, "--wait", READY]
    if engine.can_pull:
        say(f"pulling {published_node_image()}")
        if not engine.pull(published_node_image()):
            sys.exit(f"{published_node_image()} can't be pulled; stop this container engine to build one instead")
        options += ["--image", published_node_image()]
    else:
        options += ["--image", node_image(engine), "--config", str(_HERE / "cluster.yaml")]
    say("making the cluster")
    _kind(engine, "create", "cluster", *options)
    # a tenth of a core for each, and two cores are for the pods of the tests
    scale = ["kubectl", "--namespace=kube-system", "scale", "deployment/coredns", "--replicas=1"]
    subprocess.run(scale, env=_client_environment(engine), check=True, stdout=subprocess.DEVNULL)


def _runs(engine: Engine) -> bool:
    """Whether the cluster is there and answers; what is not built yet is not built for that."""
    needed = programs_of(can_pull=engine.can_pull).values()
    if not all(binary_of(item).exists() for item in needed) or not engine.is_ready():
        return False
    return NAME in _kind(engine, "get", "clusters").split() and _answers(engine)


def build_images(engine: Engine) -> list[str]:
    """The names of the project's images in the engine, each built unless it is there."""
    return [image(engine, recipe) for recipe in IMAGES]


def build_alone() -> None:
    """Build programs and images, and end the engine unless it ran before: it keeps their layers on disk."""
    for program in PROGRAMS:
        build(program)
    with locked(cache_folder() / "cluster"):
        engine = way().engine
        is_running = engine.is_ready()
        engine.up()
        try:
            build_images(engine)
        finally:
            if not is_running:
                engine.down()


def prepare() -> None:
    """Make the cluster, most of which is waiting, while the images are built; then load these."""
    engine = way().engine
    engine.up()
    with ThreadPoolExecutor(max_workers=1) as pool:
        names = pool.submit(build_images, engine)
        load(up(), names.result())


def load(engine: Engine, names: list[str]) -> None:
    """Give the cluster images of the engine; one that it has already costs nothing."""
    listing = ["docker", "exec", f"{NAME}-control-plane", "ctr", "-n", "k8s.io", "images", "ls", "-q"]
    listed = subprocess.run(listing, env=_client_environment(engine), capture_output=True, text=True, check=True)
    missing = [name for name in names if f"docker.io/library/{name}" not in listed.stdout.split()]
    if missing:
        _kind(engine, "load", "docker-image", *missing, "--name", NAME)


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
        engine = way().engine
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
        case ["plan"]:
            chosen = way()
            say(f"{chosen.reason}\n{announced(e2e_steps(chosen.engine), durations())}")
        case ["up"]:
            _print(environment(up()))
        case ["env"]:
            _print(environment(way().engine))
        case ["build"]:
            build_alone()
        case ["prepare"]:
            prepare()
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

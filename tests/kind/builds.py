"""Programs of a Kubernetes cluster, built from Go modules into a cache that is keyed by what they are built from.

A machine without a container engine can pull nothing, so the parts of a real cluster are compiled: `kubebox` is etcd,
the control plane, the node agents and kubectl in one binary (its packages share most of their code: one link instead of
eight). A program whose module file and source did not change is never built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "v1.36.3"
MODULES = Path(__file__).resolve().parent / "modules"


@dataclass(frozen=True)
class Program:
    """A program to build.

    Attributes:
        name: Of the binary.
        package: The Go package with its main function.
        settings: Link-time variables, as `package.variable=value`.
        module: Its folder among the modules, where that is not called as the binary.
        tags: Build constraints that leave parts out.
    """

    name: str
    package: str = "."
    settings: tuple[str, ...] = ()
    module: str = ""
    tags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where its module file is."""
        return MODULES / (self.module or self.name)


_VERSION = "k8s.io/component-base/version"
KUBEBOX = Program(
    "kubebox",
    settings=(
        f"{_VERSION}.gitVersion={KUBERNETES}",
        f"{_VERSION}.gitMajor=1",
        f"{_VERSION}.gitMinor=36",
        f"{_VERSION}.gitTreeState=clean",
        f"k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}",
    ),
)
KIND = Program("kind", "sigs.k8s.io/kind")
KUBECTL = Program("kubectl", "k8s.io/kubernetes/cmd/kubectl", KUBEBOX.settings, "kubebox")
"""Alone, for a cluster of published images; kubebox has it too, and takes ten times as long."""
HELM = Program("helm", "helm.sh/helm/v4/cmd/helm")
COREDNS = Program("coredns")
STORAGE = Program("local-path-provisioner", "github.com/rancher/local-path-provisioner")
PAUSE = Program("pause")
KEDA = Program("keda-operator", "github.com/kedacore/keda/v2/cmd/operator", module="keda")
KEDA_METRICS = Program("keda-adapter", "github.com/kedacore/keda/v2/cmd/adapter", module="keda")
METRICS_SERVER = Program("metrics-server", "sigs.k8s.io/metrics-server/cmd/metrics-server")
SPARK_OPERATOR = Program("spark-operator", "github.com/kubeflow/spark-operator/v2/cmd/operator")
SPARK_OPERATOR_MODULE = "github.com/kubeflow/spark-operator/v2"

ARGOCD_LUA = Program("argocd-lua")
_WITHOUT_DISCOVERY = ("remove_all_sd",)  # of clouds: half of the packages
PROMETHEUS = Program(
    "prometheus", "github.com/prometheus/prometheus/cmd/prometheus", module="prometheus", tags=_WITHOUT_DISCOVERY
)
PROMTOOL = Program(
    "promtool", "github.com/prometheus/prometheus/cmd/promtool", module="prometheus", tags=_WITHOUT_DISCOVERY
)
ACTIONLINT = Program("actionlint", "github.com/rhysd/actionlint/cmd/actionlint", module="release")
KREW = Program("krew", "sigs.k8s.io/krew/cmd/krew", module="release")
CRANE = Program("crane", "github.com/google/go-containerregistry/cmd/crane", module="release")
BUILDKITD = Program("buildkitd", "github.com/moby/buildkit/cmd/buildkitd", module="buildkit")
BUILDX = Program("buildx", "github.com/docker/buildx/cmd/buildx", module="buildkit")
SBOM_SCANNER = Program("sbom-scanner")
RELEASE = (ACTIONLINT, CRANE, KREW, BUILDKITD, BUILDX, SBOM_SCANNER)
"""What the release workflow is checked with."""

PROGRAMS = (
    *(KUBEBOX, KIND, HELM, COREDNS, STORAGE, PAUSE),
    *(KEDA, KEDA_METRICS, METRICS_SERVER, SPARK_OPERATOR, PROMETHEUS, PROMTOOL, ARGOCD_LUA),
)
"""What the tests need where nothing can be pulled."""


def cache_folder() -> Path:
    """Where everything of the test cluster is kept between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mailboat" / "kind"


def digest_of(*paths: Path) -> str:
    """The first 16 digits of a digest over the names and contents of files and of the files in folders."""
    total = hashlib.sha256()
    for path in paths:
        for file in [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file()):
            total.update(str(file.relative_to(path.parent)).encode() + b"\0" + file.read_bytes())
    return total.hexdigest()[:16]


def binary_of(program: Program) -> Path:
    """Where the program is, or will be, once it is built."""
    key = hashlib.sha256("\n".join((program.package, *program.settings, *program.tags)).encode()).hexdigest()[:8]
    return cache_folder() / "programs" / f"{program.name}-{digest_of(program.folder)}-{key}" / program.name


# A compiler process lives for seconds: without collections below 2 GiB the builds take a sixth less CPU time.
_COMPILING = {"GOGC": "off", "GOMEMLIMIT": "2GiB"}


def build(program: Program) -> Path:
    """The program, built unless it was built before. Raises: CalledProcessError, after Go's own words."""
    binary = binary_of(program)
    folder = binary.parent
    with locked(folder):
        if not binary.exists():
            say(f"building {program.name} (once; minutes from nothing)")
            folder.mkdir(parents=True, exist_ok=True)
            draft = folder / "draft"
            flags = "-s -w " + " ".join(f"-X {setting}" for setting in program.settings)
            tags = [f"-tags={','.join(program.tags)}"] if program.tags else []
            # -w drops the debugging information at the end: not making it saves a tenth of the CPU time
            command = ["go", "build", "-trimpath", "-gcflags=all=-dwarf=false", *tags, "-ldflags", flags]
            command += ["-o", str(draft), program.package]
            with timed(f"program {program.name}"):
                subprocess.run(command, cwd=program.folder, env=_COMPILING | _go_environment(), check=True)
            draft.rename(binary)
    return binary


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Record how long a step took, if it succeeds: the next announcement says so."""
    started = time.monotonic()
    yield
    file = cache_folder() / "durations.json"
    with locked(file):
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_text(json.dumps({**durations(), step: round(time.monotonic() - started, 1)}, indent=1))
        draft.replace(file)


def durations() -> dict[str, float]:
    """Step → seconds that it took last time on this machine."""
    try:
        found: dict[str, float] = json.loads((cache_folder() / "durations.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def module_folder(program: Program, module: str) -> Path:
    """Where Go keeps the source of a module that a program is built from; it is downloaded where it is not there."""
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(
        command, cwd=program.folder, env=_go_environment(), check=True, capture_output=True, text=True
    )
    return Path(json.loads(done.stdout)["Dir"])


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the lock stands beside the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _go_environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}


if __name__ == "__main__":
    known = {item.name: item for item in (*PROGRAMS, KUBECTL, *RELEASE)}
    for name in sys.argv[1:] or [program.name for program in PROGRAMS]:
        sys.stdout.write(f"{build(known[name])}\n")

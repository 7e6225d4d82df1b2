"""KEDA in the test cluster: its operator and its metrics adapter, of its Go module, with its own manifests.

Two images of one static program each are written without an engine; the manifests are those that the module has for an
installation without webhooks. Nothing is pulled.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from builds import KEDA, KEDA_METRICS, build, module_folder
from oci import Image

_MODULE = "github.com/kedacore/keda/v2"
_PLACES = {"keda": ("/keda", KEDA), "keda-metrics-apiserver": ("/keda-adapter", KEDA_METRICS)}
_READY = "180s"
_WAITED = (
    "--namespace=keda",
    "deployment/keda-operator",
    "deployment/keda-metrics-apiserver",
    "apiservice/v1beta1.external.metrics.k8s.io",
)


def install(environment: Mapping[str, str], cluster: str) -> None:
    """Load and apply KEDA, and wait until it serves external metrics; what is there already costs seconds.

    Args:
        environment: With which kind and kubectl reach the cluster.
        cluster: The name that kind knows it by.
    """
    manifests = _run(environment, "kubectl", "kustomize", str(module_folder(KEDA, _MODULE) / "config/minimal"))
    for name, (place, program) in _PLACES.items():
        binary = build(program)
        image = f"docker.io/mailboat/{name}:{binary.parent.name}"
        manifests = re.sub(rf"image: ghcr\.io/kedacore/{name}:\S+", f"image: {image}", manifests)
        _load(environment, cluster, Image(image, {place: binary}, (place,), is_static=True))
    manifests = manifests.replace("imagePullPolicy: Always", "imagePullPolicy: Never")
    manifests = re.sub(r"initialDelaySeconds: \d+", "initialDelaySeconds: 2", manifests)
    _run(environment, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-", given=manifests)
    _run(environment, "kubectl", "wait", "--for=condition=Available", f"--timeout={_READY}", *_WAITED)


def _load(environment: Mapping[str, str], cluster: str, image: Image) -> None:
    listed = _run(
        environment, "docker", "exec", f"{cluster}-control-plane", "ctr", "-n", "k8s.io", "images", "ls", "-q"
    )
    if image.name in listed.split():
        return
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        image.write(archive)
        _run(environment, "kind", "load", "image-archive", str(archive), "--name", cluster)


def _run(environment: Mapping[str, str], *command: str, given: str = "") -> str:
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout

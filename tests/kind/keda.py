"""KEDA in the test cluster: its operator and its metrics adapter, of its Go module, with its own manifests.

The manifests are those that the module has for an installation without webhooks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from additions import apply, load_program, run
from builds import KEDA, KEDA_METRICS, module_folder

_MODULE = "github.com/kedacore/keda/v2"
_PLACES = {"keda": ("/keda", KEDA), "keda-metrics-apiserver": ("/keda-adapter", KEDA_METRICS)}
_WAITED = (
    "--namespace=keda",
    "deployment/keda-operator",
    "deployment/keda-metrics-apiserver",
    "apiservice/v1beta1.external.metrics.k8s.io",
)


def install(environment: Mapping[str, str], cluster: str) -> None:
    """Load and apply KEDA, and wait until it serves external metrics.

    Args:
        environment: With which kind and kubectl reach the cluster.
        cluster: The name that kind knows it by.
    """
    manifests = run(environment, "kubectl", "kustomize", str(module_folder(KEDA, _MODULE) / "config/minimal"))
    for name, (place, program) in _PLACES.items():
        image = load_program(environment, cluster, name, place, program)
        manifests = re.sub(rf"image: ghcr\.io/kedacore/{name}:\S+", f"image: {image}", manifests)
    manifests = manifests.replace("imagePullPolicy: Always", "imagePullPolicy: Never")
    manifests = re.sub(r"initialDelaySeconds: \d+", "initialDelaySeconds: 2", manifests)
    manifests = manifests.replace("cpu: 100m", "cpu: 5m")  # two cores are for the pods of the tests
    apply(environment, manifests, *_WAITED)

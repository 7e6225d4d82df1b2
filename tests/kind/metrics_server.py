"""The metrics server in the test cluster, of its Go module: what pods use, for autoscalers on cpu.

The manifests are those that the module has for its own tests, where kubelets sign their certificates themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from additions import apply, load_program, run
from builds import METRICS_SERVER, module_folder

_MODULE = "sigs.k8s.io/metrics-server"
_WAITED = ("--namespace=kube-system", "deployment/metrics-server", "apiservice/v1beta1.metrics.k8s.io")


def install(environment: Mapping[str, str], cluster: str) -> None:
    """Load and apply it, and wait until it serves metrics.

    Args:
        environment: With which kind and kubectl reach the cluster.
        cluster: The name that kind knows it by.
    """
    folder = module_folder(METRICS_SERVER, _MODULE) / "manifests/overlays/test"
    manifests = run(environment, "kubectl", "kustomize", str(folder))
    image = load_program(environment, cluster, "metrics-server", "/metrics-server", METRICS_SERVER)
    manifests = re.sub(r"image: \S*/metrics-server:\S+", f"image: {image}", manifests)
    manifests = re.sub(r"initialDelaySeconds: \d+", "initialDelaySeconds: 2", manifests)
    manifests = manifests.replace("cpu: 100m", "cpu: 5m")  # two cores are for the pods of the tests
    apply(environment, manifests, *_WAITED)

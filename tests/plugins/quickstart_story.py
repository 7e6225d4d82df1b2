"""The quickstart in a namespace of a real cluster: its manifests with the tests' servers, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from cluster_client import name_of

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples" / "kubernetes"
CONTENT: Final = "/var/lib/mailboat/content/current"
WEB_SERVER: Final = """
import runpy, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
sys.argv[1:] = ["8000", "--directory", "/content/current"]
runpy.run_module("http.server", run_name="__main__")
"""
"""Ends when it is asked to; process 1 of a container ignores what it does not handle, and each pod would wait 30 s."""


def quickstart(kafka: str, s3: str, prefix: str = "quickstart", replicas: int = 3) -> str:
    """The example with these servers, and with the pool of the example that has a web server.

    Args:
        kafka: The broker's address.
        s3: The bucket's endpoint.
        prefix: Of topics and blobs.
        replicas: Of the pool.
    """
    journal, publisher, _ = yaml.safe_load_all((EXAMPLES / "quickstart" / "mailboat.yaml").read_text())
    journal["spec"]["kafka"]["bootstrapServers"] = [kafka]
    journal["spec"]["topics"] = {"prefix": f"{prefix}-"}
    journal["spec"]["blobs"]["s3"] |= {"endpointUrl": s3, "prefix": f"{prefix}/"}
    _, pool = yaml.safe_load_all((EXAMPLES / "web-server.yaml").read_text())
    pool["spec"]["resources"] = {"requests": {"cpu": "20m"}}  # of which an autoscaler takes its percents
    pool["spec"]["replicas"] = replicas
    [web] = pool["spec"]["template"]["spec"]["containers"]
    web["image"] = "mailboat:latest"  # the one image that is there serves files, too
    del web["securityContext"], web["volumeMounts"], pool["spec"]["template"]["spec"]["volumes"]  # of its own server
    web["command"] = ["python3", "-c", WEB_SERVER]
    return yaml.safe_dump_all([journal, publisher, pool])


@dataclass
class Story:
    """What the tests share.

    Attributes:
        namespace: Where the custom resources are.
        published: Path → content of what was published by now.
        operator_left_at: When it was stopped, of the monotonic clock.
    """

    namespace: Any
    published: dict[str, bytes]
    operator_left_at: float = 0.0

    def fill(self, files: Mapping[str, bytes], below: str = "") -> None:
        """Write files into the publisher's source."""
        self.namespace.write_files("filler", f"/site/{below}", files)
        self.published |= {f"{below}/{name}" if below else name: content for name, content in files.items()}

    def distribute(self, name: str, path: str) -> None:
        """Ask for a distribution by its object; not awaited."""
        spec = {"publisherRef": {"name": "author"}, "action": "Add", "paths": [{"path": path, "deep": True}]}
        kind = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Distribution"}
        self.namespace.apply({**kind, "metadata": {"name": name}, "spec": spec})

    def publish_page(self, name: str) -> None:
        """Distribute a page of its own; not awaited."""
        self.fill({f"{name}.html": name.encode()})
        self.distribute(name, f"/{name}.html")

    def change_pool(self, **changes: object) -> None:
        """Merge into the pool's specification."""
        self.namespace.patch("SubscriberPool", "edge", {"spec": changes})

    def autoscale(self, **wanted: object) -> None:
        """Have the pool scaled so; by hand where nothing is said."""
        for said in (None, wanted) if wanted else (None,):  # the two would be merged
            self.change_pool(autoscaling=said)

    def mailboat(self, *arguments: str) -> bytes:
        """What `kubectl mailboat` prints."""
        printed: bytes = self.namespace.cluster.run("kubectl", "mailboat", "-n", self.namespace.name, *arguments)
        return printed

    def members(self) -> dict[str, str]:
        """Name → id of the pool's pods that are not about to end."""
        pods = self.namespace.list("Pod", "app.kubernetes.io/instance=edge")
        return {name_of(pod): pod["metadata"]["uid"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def wait_for_members(self, *members: str) -> None:
        """Wait until the pods are ready."""
        self.namespace.wait_for("Ready", *(f"Pod/{member}" for member in members))

    def assert_content(self, *members: str) -> None:
        """Each of the members holds all that was published, byte by byte, and nothing else."""
        for member in members:
            assert self.namespace.read_files(member, CONTENT) == self.published, member

    def served_members(self) -> set[str]:
        """Pods that the pool's Service leads to now."""
        slices = self.namespace.list("EndpointSlice", "kubernetes.io/service-name=edge")
        endpoints = [item for part in slices for item in part.get("endpoints") or ()]
        return {endpoint["targetRef"]["name"] for endpoint in endpoints if endpoint["conditions"]["ready"]}

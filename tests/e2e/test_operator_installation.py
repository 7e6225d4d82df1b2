"""The operator, installed by Helm, runs the quickstart: brokers and bucket beside the cluster, pods inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mailboat.testing.s3_server import ADMIN

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "examples" / "site"
QUICKSTART = ROOT / "examples" / "kubernetes" / "quickstart" / "mailboat.yaml"
SYSTEM = "mailboat-system"
MEMBER_CONTENT = "/var/lib/mailboat/content/current"
MAILBOAT = ("mailboat", "--url", "http://127.0.0.1:8080", "--token-file", "/run/mailboat/http/token")
pytestmark = pytest.mark.timeout(900)

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: site}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: filler}
spec:
  terminationGracePeriodSeconds: 0
  securityContext:
    {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: filler
      image: mailboat:latest
      command: [sleep, infinity]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      volumeMounts: [{name: site, mountPath: /site}]
  volumes: [{name: site, persistentVolumeClaim: {claimName: site}}]
"""


@pytest.fixture(scope="session")
def operator(cluster: Any) -> Iterator[None]:
    """The chart's release with the image that was built; its uninstallation leaves the definitions."""
    images = {name: image.rpartition(":")[2] for name, image in cluster.images.items()}
    settings = ("--set", f"image.tag={images['mailboat-operator']},agentImage.tag={images['mailboat']}")
    options = ("--namespace", SYSTEM, "--create-namespace", "--wait", "--timeout=120s")
    cluster.run("helm", "upgrade", "--install", "mailboat", str(ROOT / "helm" / "mailboat"), *options, *settings)
    yield
    cluster.run("helm", "uninstall", "mailboat", "--namespace", SYSTEM, "--wait")
    left = cluster.run("kubectl", "get", "customresourcedefinitions", "-o", "name").decode()
    assert "subscriberpools.mailboat.dev" in left


def quickstart(kafka: str, s3: str) -> str:
    """The example with the servers of this test."""
    documents = list(yaml.safe_load_all(QUICKSTART.read_text()))
    journal = documents[0]["spec"]
    journal["kafka"]["bootstrapServers"] = [kafka]
    journal["topics"] = {"prefix": "quickstart-"}
    journal["blobs"]["s3"] |= {"endpointUrl": s3, "prefix": "quickstart/"}
    return yaml.safe_dump_all(documents)


def test_the_quickstart_brings_a_tree_to_every_member_and_to_those_that_come_later(
    operator: None, namespace: Any, site: dict[str, bytes], kafka: str, s3: str
) -> None:
    namespace.apply(CLAIM)
    namespace.kubectl("wait", "pod/filler", "--for=condition=Ready", "--timeout=120s")
    namespace.fill("filler", "/site", SITE)
    keys = (
        f"--from-literal=accessKeyId={ADMIN.access_key_id}",
        f"--from-literal=secretAccessKey={ADMIN.secret_access_key}",
    )
    namespace.kubectl("create", "secret", "generic", "mailboat-s3", *keys)

    namespace.apply(quickstart(kafka, s3))
    for one in ("publisher/author", "subscriberpool/edge"):
        namespace.kubectl("wait", one, "--for=condition=Ready", "--timeout=180s")
    namespace.kubectl("exec", "author-0", "--", *MAILBOAT, "publish", "/", "--wait", "90")
    for member in ("edge-0", "edge-1", "edge-2"):
        assert namespace.content(member, MEMBER_CONTENT) == site

    namespace.kubectl("scale", "subscriberpool/edge", "--replicas=4")
    namespace.kubectl("wait", "pod/edge-3", "--for=create", "--timeout=60s")
    namespace.kubectl("wait", "pod/edge-3", "--for=condition=Ready", "--timeout=120s")
    assert namespace.content("edge-3", MEMBER_CONTENT) == site

    namespace.kubectl("delete", "subscriberpool/edge", "publisher/author", "journal/main", "--timeout=120s")
    namespace.kubectl("wait", "pod/edge-0", "--for=delete", "--timeout=120s")
    claims = namespace.kubectl("get", "persistentvolumeclaims", "-o", "name").decode().split()
    assert len(claims) == 6  # the site, the publisher's state, and four members' content: volumes are kept

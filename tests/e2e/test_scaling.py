"""The quickstart is scaled by others: by CPU, by a demand, by the jobs that wait, and by the lag of a shared pool.

Each test goes on where the one before it ended, with an operator of this namespace alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from cluster_client import eventually, has_replicas, has_started
from quickstart_story import EXAMPLES, Story, quickstart
from support.s3_server import ADMIN

NODE = "mailboat-control-plane"
WAIT = 'import json,sys,time; time.sleep(json.load(sys.stdin)["data"])'
WORKER_TOKEN = {"name": "workers", "secretRef": {"name": "workers"}, "verbs": ["view", "work"]}
JOBS = """
from pathlib import Path
from mailboat.api.client import HttpControl
client = HttpControl("http://127.0.0.1:8080", Path("/run/mailboat/http/token").read_text().strip())
"""
ADD = """
from mailboat.model.jobs import NewJob
jobs = [NewJob("wait.here", data, keep=True) for data in [b"45"] * 4 + [b"0.1"] * 996]
for start in range(0, 1000, 200):
    client.jobs.add(jobs[start : start + 200])
"""
"""A thousand jobs; four of them still run when no other is left, and workers are removed."""
COUNT = """
import collections, json
from mailboat.api.job_control import JobFilter
pages, counts = [None], collections.Counter()
while pages:
    found = client.jobs.list_jobs(JobFilter(), pages.pop(), 1000)
    counts.update((one.state, one.tries) for one in found.items)
    pages = [found.next_page] if found.next_page else []
print(json.dumps([[*key, count] for key, count in counts.items()]))
"""
SHARED_FOLDER = "/var/local/mailboat-shared"
SHARED_PLACE = "/var/lib/mailboat/shared"
SHARED_PAGES = 20
SHARED_VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: shared}}
spec:
  accessModes: [ReadWriteMany]
  capacity: {{storage: 100Mi}}
  claimRef: {{namespace: {namespace}, name: shared}}
  hostPath: {{path: {folder}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: shared}}
spec:
  accessModes: [ReadWriteMany]
  resources: {{requests: {{storage: 100Mi}}}}
  storageClassName: ""
  volumeName: shared
"""
SHARED_POOL = """
apiVersion: mailboat.dev/v1alpha1
kind: SubscriberPool
metadata: {name: shared}
spec:
  journalRef: {name: main}
  delivery: shared
  target: {files: {claim: {name: shared, folder: web}}}
  editable: true
  drain: 1s
  finish: 30s
  autoscaling: {minReplicas: 1, maxReplicas: 2, lagPerMember: 10, scaleDownAfter: 30s}
"""
IMPORTS = """
import urllib.request
from pathlib import Path
token = Path("/run/mailboat/http/token").read_text().strip()
request = urllib.request.Request("http://127.0.0.1:8080/metrics", headers={"Authorization": f"Bearer {token}"})
lines = urllib.request.urlopen(request).read().decode().splitlines()
counts = [line for line in lines if line.startswith("mailboat_subscriber_imported_packages_total")]
print(int(sum(float(line.split()[-1]) for line in counts)))
"""
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def story(
    cluster: Any, shared_namespace: Any, site: dict[str, bytes], kafka: str, s3: str, metrics_server_begun: object
) -> Iterator[Story]:
    """The quickstart with one member, which has a site."""
    journal, publisher, pool = yaml.safe_load_all(quickstart(kafka, s3, "scaling", replicas=1))
    publisher["spec"]["http"] = {"tokens": [WORKER_TOKEN]}
    pool["spec"]["drain"] = "1s"
    shared_namespace.make_secret("workers", {"token": "a-token-of-these-workers"})
    shared_namespace.make_secret(
        "mailboat-s3", {"accessKeyId": ADMIN.access_key_id, "secretAccessKey": ADMIN.secret_access_key}
    )
    shared_namespace.make_source()
    with shared_namespace.operator():
        shared_namespace.apply_text(yaml.safe_dump_all([journal, publisher, pool]))
        made = Story(shared_namespace, {})
        made.fill(site)
        shared_namespace.wait_for("Ready", "Publisher/author", "SubscriberPool/edge", seconds=240)
        made.mailboat("publish", "/", "--wait", "120")
        yield made


def test_an_autoscaler_on_cpu_gets_its_metric_and_scales_the_pool(story: Story, metrics_server: None) -> None:
    """KEDA comes later, so it is the operator's own autoscaler; with KEDA of an earlier run in the cluster, KEDA's."""
    limits = {"minReplicas": 1, "maxReplicas": 2, "scaleDownAfter": "0s"}
    story.autoscale(**limits, cpuPercent=1)  # a member that idles uses more
    story.namespace.wait("SubscriberPool", "edge", has_replicas(2))
    story.wait_for_members("edge-1")
    [found] = story.namespace.list("HorizontalPodAutoscaler")
    [metric] = found["status"]["currentMetrics"]
    assert metric["resource"]["current"]["averageUtilization"] > 1

    story.autoscale(**limits, cpuPercent=1000)
    story.namespace.wait("SubscriberPool", "edge", has_replicas(1))
    story.namespace.wait_gone("Pod/edge-1")
    story.autoscale()
    eventually(lambda: not story.namespace.list("HorizontalPodAutoscaler"), "an autoscaler is left")


def test_keda_scales_the_pool_by_demand_and_new_members_begin_with_everything(
    story: Story, keda: None, demand: Any
) -> None:
    demand.value = 20
    trigger = {"type": "metrics-api", "metadata": {"url": demand.url, "valueLocation": "demand", "targetValue": "10"}}
    story.autoscale(minReplicas=1, maxReplicas=2, scaleDownAfter="0s", trigger=trigger)
    story.namespace.wait("ScaledObject", "edge", bool)
    story.namespace.wait("SubscriberPool", "edge", has_replicas(2))
    story.wait_for_members("edge-1")
    story.assert_content("edge-1")

    demand.value = 10
    story.namespace.wait("SubscriberPool", "edge", has_replicas(1))
    story.namespace.wait_gone("Pod/edge-1")
    assert "edge-1" not in story.served_members()
    story.autoscale()
    story.namespace.wait_gone("ScaledObject/edge")


@pytest.mark.timeout(1200)
def test_j32_workers_scale_with_the_backlog_and_finish_running_jobs(story: Story, keda: None) -> None:
    queue, _ = yaml.safe_load_all((EXAMPLES / "jobs.yaml").read_text())
    del queue["spec"]["maxParallel"], queue["spec"]["rate"]
    queue["spec"]["topics"] = ["wait.*"]
    queue["spec"]["workers"] |= {
        "handlers": [{"topics": "wait.*", "command": f"python3 -IS -c '{WAIT}'"}],
        "max": 3,
        "finish": "5m",
        "scaleDownAfter": "0s",
    }
    story.namespace.apply(queue)
    story.namespace.wait("Deployment", "cdn-workers", bool)
    story.namespace.wait("Deployment", "cdn-workers", has_replicas(0))

    story.namespace.run("author-0", "python3", "-c", f"{JOBS}\n{ADD}")
    story.namespace.wait("Deployment", "cdn-workers", has_replicas(3))
    listed = story.namespace.kubectl("get", "mbq").splitlines()[0].split()
    assert listed[3:8] == ["QUEUED", "ACTIVE", "OLDEST", "WORKERS", "GIVEN-UP"]
    story.namespace.wait("Deployment", "cdn-workers", has_replicas(0), seconds=400)
    eventually(lambda: not story.namespace.list("Pod", "app.kubernetes.io/instance=cdn"), "workers are left", 320)

    counted = json.loads(story.namespace.run("author-0", "python3", "-c", f"{JOBS}\n{COUNT}"))
    assert counted == [["succeeded", 1, 1000]]  # one attempt each: none was stopped, and none lost its lease
    story.namespace.delete("JobQueue", "cdn")
    story.namespace.wait_gone("JobQueue/cdn", "Deployment/cdn-workers", "ScaledObject/cdn-workers")


@pytest.fixture
def shared_pool(story: Story, cluster: Any) -> Iterator[None]:
    """The pool `shared`, whose members mount one folder of the node."""
    cluster.run("docker", "exec", NODE, "rm", "-rf", SHARED_FOLDER)  # of an earlier run, of another journal
    cluster.run("docker", "exec", NODE, "mkdir", "--parents", "--mode=0777", SHARED_FOLDER)
    for manifest in yaml.safe_load_all(SHARED_VOLUME.format(namespace=story.namespace.name, folder=SHARED_FOLDER)):
        (story.namespace if manifest["kind"] == "PersistentVolumeClaim" else cluster.objects).apply(manifest)
    story.namespace.apply_text(SHARED_POOL)
    yield
    story.namespace.delete("SubscriberPool", "shared")
    story.namespace.wait_gone("SubscriberPool/shared", "StatefulSet/shared", "Pod/shared-0", "ScaledObject/shared")
    story.namespace.delete("PersistentVolumeClaim", "shared")
    story.namespace.wait_gone("PersistentVolumeClaim/shared")
    cluster.objects.delete("PersistentVolume", "shared")


def test_a_shared_pool_scales_by_its_one_lag_and_its_members_import_each_package_once(
    story: Story, keda: None, shared_pool: None
) -> None:
    story.namespace.wait_for("Ready", "SubscriberPool/shared")
    story.namespace.wait("SubscriberPool", "shared", lambda pool: pool["status"].get("maxLag") == 0)
    story.mailboat("subscribers", "suspend", "shared", "--wait", "120")
    before = imports_of(story, "shared-0")  # while nothing is imported

    pages = [f"shared-{number}" for number in range(SHARED_PAGES)]
    for page in pages:
        story.publish_page(page)
    story.namespace.wait("SubscriberPool", "shared", lambda pool: pool["status"].get("maxLag") == SHARED_PAGES)
    told = json.loads(story.mailboat("status", "-o", "json"))["subscribers"]
    assert [item["lag"] for item in told if item["name"] == "shared"] == [SHARED_PAGES]
    story.namespace.wait("SubscriberPool", "shared", has_replicas(2))  # KEDA asked a member for the lag
    story.namespace.wait("Pod", "shared-1", has_started)
    story.mailboat("subscribers", "resume", "shared", "--wait", "120")
    story.namespace.wait_for("Distributed", *(f"Distribution/{page}" for page in pages))

    def imports() -> list[int]:  # of both, while the second is still there: scaling down waits for 30 s
        return [imports_of(story, "shared-0") - before, imports_of(story, "shared-1")]

    eventually(lambda: sum(imports()) >= SHARED_PAGES, "the members count too few packages")
    assert sum(imports()) == SHARED_PAGES

    while len(pages) < 2 * SHARED_PAGES and story.namespace.get("Pod", "shared-1"):
        pages.append(f"shared-{len(pages)}")
        story.publish_page(pages[-1])
        story.namespace.wait_for("Distributed", f"Distribution/{pages[-1]}")
    story.namespace.wait("SubscriberPool", "shared", has_replicas(1))
    story.namespace.wait_gone("Pod/shared-1")
    found = story.namespace.read_files("shared-0", f"{SHARED_PLACE}/web")
    assert {name: found.get(name) for name in story.published} == story.published


def imports_of(story: Story, member: str) -> int:
    """How many packages a member's process has imported, by its own metric."""
    return int(story.namespace.run(member, "python3", "-c", IMPORTS))

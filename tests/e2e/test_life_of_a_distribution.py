"""The whole life of the quickstart, told in order: installed by Helm, published, scaled, killed, upgraded, uninstalled.

Brokers and bucket are beside the cluster, as most users have them. Each test goes on where the one before it ended.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from mailboat.testing.s3_server import ADMIN

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
PREVIOUS_CHART = ROOT / "tests" / "operator" / "charts" / "mailboat-0.0.9.tgz"
EXAMPLES = ROOT / "examples" / "kubernetes"
DOCUMENTATION = ROOT / "docs"
SYSTEM = "mailboat-system"
CONTENT = "/var/lib/mailboat/content/current"
OPERATOR_POD = "app.kubernetes.io/name=mailboat-operator"
pytestmark = pytest.mark.timeout(600)


@dataclass
class Story:
    """What the tests share.

    Attributes:
        namespace: Where the custom resources are.
        published: Path → content of what was published by now.
    """

    namespace: Any
    published: dict[str, bytes]

    def fill(self, folder: Path, below: str = "") -> None:
        """Copy what is in a folder into the publisher's source."""
        self.namespace.kubectl("exec", "filler", "--", "mkdir", "-p", f"/site/{below}")
        self.namespace.fill("filler", f"/site/{below}", folder)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        self.published |= {f"{below}/{name}" if below else name: content for name, content in files.items()}

    def wait(self, what: str, condition: str, seconds: int = 180) -> None:
        self.namespace.kubectl("wait", *what.split(), f"--for={condition}", f"--timeout={seconds}s")

    def autoscale(self, **wanted: object) -> None:
        """Have the pool scaled so; by hand where nothing is said."""
        for said in (None, wanted) if wanted else (None,):  # the two would be merged
            patch = json.dumps({"spec": {"autoscaling": said}})
            self.namespace.kubectl("patch", "subscriberpool/edge", "--type=merge", "-p", patch)

    def mailboat(self, *arguments: str) -> bytes:
        """What `kubectl mailboat` prints."""
        return self.namespace.cluster.run("kubectl", "mailboat", "-n", self.namespace.name, *arguments)  # type: ignore[no-any-return]

    def assert_content(self, *members: str) -> None:
        """Each of the members holds all that was published, byte by byte, and nothing else."""
        for member in members:
            assert self.namespace.content(member, CONTENT) == self.published, member

    def served_members(self) -> set[str]:
        """Pods that the pool's Service leads to now."""
        options = ("-l", "kubernetes.io/service-name=edge", "-o", "json")
        slices = json.loads(self.namespace.kubectl("get", "endpointslices", *options))["items"]
        endpoints = [one for part in slices for one in part.get("endpoints") or ()]
        return {one["targetRef"]["name"] for one in endpoints if one["conditions"]["ready"]}


@pytest.fixture(scope="module")
def story(operator: None, shared_namespace: Any) -> Story:
    """The quickstart is not applied yet."""
    return Story(shared_namespace, {})


@pytest.fixture(scope="module")
def operator(cluster: Any) -> Iterator[None]:
    """A release of the previous chart. The last test uninstalls it, or else the end of the module does."""
    release(cluster, PREVIOUS_CHART)
    yield
    uninstall(cluster, "--ignore-not-found")


def release(cluster: Any, chart: Path, *options: str) -> None:
    images = {name: image.rpartition(":")[2] for name, image in cluster.images.items()}
    tags = f"image.tag={images['mailboat-operator']},agentImage.tag={images['mailboat']}"
    place = ("--namespace", SYSTEM, "--create-namespace", "--timeout=120s")
    kubectls = "--force-conflicts"  # definitions that another test applied
    cluster.run("helm", "upgrade", "--install", "mailboat", str(chart), kubectls, *place, "--set", tags, *options)


def uninstall(cluster: Any, *options: str) -> None:
    place = ("--namespace", SYSTEM, "--timeout=120s")
    cluster.run("helm", "uninstall", "mailboat", *place, "--cascade=foreground", *options)
    cluster.run("kubectl", "wait", "deployment/mailboat", "--for=delete", *place)


def quickstart(kafka: str, s3: str) -> str:
    """The example with the servers of this test, and with the pool of the example that has a web server."""
    journal, publisher, _ = yaml.safe_load_all((EXAMPLES / "quickstart" / "mailboat.yaml").read_text())
    journal["spec"]["kafka"]["bootstrapServers"] = [kafka]
    journal["spec"]["topics"] = {"prefix": "quickstart-"}
    journal["spec"]["blobs"]["s3"] |= {"endpointUrl": s3, "prefix": "quickstart/"}
    _, pool = yaml.safe_load_all((EXAMPLES / "web-server.yaml").read_text())
    pool["spec"]["resources"] = {"requests": {"cpu": "20m"}}  # of which an autoscaler takes its percents
    [web] = pool["spec"]["template"]["spec"]["containers"]
    web["image"] = "mailboat:latest"  # the one image that is there serves files, too
    del web["securityContext"], web["volumeMounts"], pool["spec"]["template"]["spec"]["volumes"]  # of its own server
    web["command"] = ["python3", "-m", "http.server", "8000", "--directory", "/content/current"]
    return yaml.safe_dump_all([journal, publisher, pool])


def test_the_quickstart_made_under_the_previous_chart_lives_on_under_this_one(
    story: Story, cluster: Any, kafka: str, s3: str
) -> None:
    keys = {"accessKeyId": ADMIN.access_key_id, "secretAccessKey": ADMIN.secret_access_key}
    literals = [f"--from-literal={key}={value}" for key, value in keys.items()]
    story.namespace.kubectl("create", "secret", "generic", "mailboat-s3", *literals)
    story.namespace.make_source()
    story.namespace.apply(quickstart(kafka, s3))

    release(cluster, CHART, "--wait")

    cluster.run("helm", "test", "mailboat", "--namespace", SYSTEM, "--timeout=120s")
    story.wait("journal/main publisher/author subscriberpool/edge", "condition=Ready")


def test_a_distribution_brings_the_tree_to_every_member_byte_by_byte(story: Story, site_folder: Path) -> None:
    story.fill(site_folder)
    story.namespace.kubectl("apply", "-f", str(EXAMPLES / "quickstart" / "distribution.yaml"))
    story.wait("distribution/everything", "condition=Distributed")
    story.assert_content("edge-0", "edge-1", "edge-2")


def test_the_users_own_server_gives_out_the_content_and_can_not_change_it(story: Story) -> None:
    path = f"/api/v1/namespaces/{story.namespace.name}/services/edge:content/proxy"
    plain = [name for name in story.published if not name.endswith(".html")]  # in which the proxy changes the links
    for name in plain[:5]:
        assert story.namespace.kubectl("get", "--raw", f"{path}/{quote(name)}") == story.published[name]
    script = "from pathlib import Path; Path('/content/mine').write_text('')"
    words = ("kubectl", "-n", story.namespace.name, "exec", "edge-0", "-c", "web", "--", "python3", "-c", script)
    done = subprocess.run(words, env=story.namespace.cluster.environment, capture_output=True, text=True, check=False)
    assert "Read-only file system" in done.stderr


def test_all_kinds_are_listed_with_figures_that_say_how_it_goes(story: Story) -> None:
    listed = story.namespace.kubectl("get", "mailboat").decode()
    for name in ("journal", "topic", "publisher", "subscriberpool", "distribution"):
        assert f"{name}.mailboat.dev/" in listed
    for line in listed.splitlines():
        assert "<unset>" not in line
    [pool] = [line.split() for line in listed.splitlines() if line.startswith("subscriberpool.mailboat.dev/edge")]
    assert pool[1:4] == ["True", "AsAskedFor", "3"]


def test_a_new_member_is_served_no_traffic_before_it_has_caught_up(story: Story, broker: Any) -> None:
    with broker.paused():
        story.namespace.kubectl("scale", "subscriberpool/edge", "--replicas=4")
        story.wait("pod/edge-3", "create")
        story.wait("pod/edge-3", "jsonpath={.status.phase}=Running")
        assert story.served_members() == {"edge-0", "edge-1", "edge-2"}
    story.wait("pod/edge-3", "condition=Ready")
    story.assert_content("edge-3")
    story.wait("subscriberpool/edge", "condition=Ready")
    assert story.served_members() == {"edge-0", "edge-1", "edge-2", "edge-3"}


def test_pods_and_the_operator_may_die_and_members_may_come_while_a_tree_is_published(story: Story) -> None:
    story.fill(DOCUMENTATION, "docs")
    words = ("kubectl", "mailboat", "-n", story.namespace.name, "publish", "/docs", "--wait", "150")
    with subprocess.Popen(words, env=story.namespace.cluster.environment, stdout=subprocess.PIPE) as publishing:
        story.namespace.kubectl("scale", "subscriberpool/edge", "--replicas=5")
        story.namespace.kubectl("delete", "pod", "edge-1", "--grace-period=0", "--force")
        force = ("--grace-period=0", "--force", "--namespace", SYSTEM)
        story.namespace.cluster.run("kubectl", "delete", "pod", "-l", OPERATOR_POD, *force)
        output, _ = publishing.communicate(timeout=170)
    assert publishing.returncode == 0, output.decode()
    story.wait("pod/edge-4", "create")
    story.wait("pod/edge-1 pod/edge-4", "condition=Ready")
    story.assert_content("edge-0", "edge-1", "edge-2", "edge-3", "edge-4")


def test_a_killed_broker_holds_content_up_and_loses_none(story: Story, broker: Any, tmp_path: Path) -> None:
    (tmp_path / "late.html").write_bytes(b"after the broker")
    story.fill(tmp_path)
    broker.process.kill()
    broker.process.start()
    story.mailboat("publish", "/late.html", "--wait", "120")
    story.assert_content("edge-0", "edge-1", "edge-2", "edge-3", "edge-4")


def test_kubectl_mailboat_tells_how_far_the_members_are(story: Story) -> None:
    told = json.loads(story.mailboat("status", "-o", "json"))
    assert {f"edge-{number}" for number in range(5)} <= {one["name"] for one in told["subscribers"]}
    words = ("kubectl", "mailboat", "-n", "default", "status")
    done = subprocess.run(words, env=story.namespace.cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no Publisher in the namespace" in done.stderr


def test_an_autoscaler_on_cpu_gets_its_metric_and_scales_the_pool(story: Story, metrics_server: None) -> None:
    """With KEDA of an earlier run in the cluster it is KEDA's autoscaler; without, the operator's own."""
    story.autoscale(minReplicas=5, maxReplicas=6, scaleDownAfter="0s", cpuPercent=1)  # a member that idles uses more
    story.wait("subscriberpool/edge", "jsonpath={.spec.replicas}=6")
    story.wait("pod/edge-5", "create")
    story.wait("pod/edge-5", "condition=Ready")
    [found] = json.loads(story.namespace.kubectl("get", "horizontalpodautoscalers", "-o", "json"))["items"]
    [metric] = found["status"]["currentMetrics"]
    assert metric["resource"]["current"]["averageUtilization"] > 1

    story.autoscale(minReplicas=5, maxReplicas=6, scaleDownAfter="0s", cpuPercent=1000)
    story.wait("subscriberpool/edge", "jsonpath={.spec.replicas}=5")
    story.wait("pod/edge-5", "delete")
    story.autoscale()
    story.wait("horizontalpodautoscalers --all", "delete")


def test_keda_scales_the_pool_by_demand_and_new_members_begin_with_everything(
    story: Story, keda: None, demand: Any
) -> None:
    demand.value = 60
    trigger = {"type": "metrics-api", "metadata": {"url": demand.url, "valueLocation": "demand", "targetValue": "10"}}
    story.autoscale(minReplicas=5, maxReplicas=6, scaleDownAfter="0s", trigger=trigger)
    story.wait("scaledobject/edge", "create")
    story.wait("subscriberpool/edge", "jsonpath={.spec.replicas}=6")
    story.wait("pod/edge-5", "create")
    story.wait("pod/edge-5", "condition=Ready")
    story.assert_content("edge-5")

    demand.value = 20
    story.wait("subscriberpool/edge", "jsonpath={.spec.replicas}=5")
    story.wait("pod/edge-5", "delete")
    assert "edge-5" not in story.served_members()
    story.autoscale()
    story.wait("scaledobject/edge", "delete")


def test_what_is_deleted_leaves_its_volumes_and_its_topics_and_an_uninstalled_operator_its_definitions(
    story: Story, cluster: Any, kafka: str
) -> None:
    everything = ("distribution/everything", "subscriberpool/edge", "publisher/author", "journal/main")
    story.namespace.kubectl("delete", *everything, "--cascade=foreground", "--timeout=150s")
    story.namespace.kubectl("delete", "pod/filler")
    left = story.namespace.kubectl("get", "mailboat,all,configmaps,secrets,pdb,hpa", "-o", "name").decode().split()
    assert set(left) == {"configmap/kube-root-ca.crt", "secret/mailboat-s3"}

    uninstall(cluster)

    cluster.run("kubectl", "wait", "lease/mailboat", "-n", SYSTEM, "--for=delete", "--timeout=60s")
    kinds = "all,configmaps,secrets,roles,rolebindings,serviceaccounts,leases"
    left = cluster.run("kubectl", "get", kinds, "-n", SYSTEM, "-o", "name").decode().split()
    assert set(left) <= {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    kept = cluster.run("kubectl", "get", "customresourcedefinitions", "-o", "name").decode()
    assert "subscriberpools.mailboat.dev" in kept
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
    assert len([name for name in topics if name.startswith("quickstart-")]) == 5
    claims = story.namespace.kubectl("get", "persistentvolumeclaims", "-o", "name").decode().split()
    assert len(claims) == 8  # the site, the publisher's state, and six members' content

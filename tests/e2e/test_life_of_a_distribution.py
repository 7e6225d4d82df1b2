"""The whole life of the quickstart, told in order: upgraded, published, rolled back, scaled, drained, uninstalled.

Brokers and bucket are beside the cluster, as most users have them. Each test goes on where the one before it ended.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cluster_client import Manifest, NamespaceClient, eventually, files_of, has_condition, has_started, name_of
from confluent_kafka.admin import AdminClient
from quickstart_story import CONTENT, EXAMPLES, Story, quickstart
from support.browser import chromium, page_in
from support.s3_server import ADMIN

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "mailboat"
PREVIOUS_CHART = ROOT / "tests" / "operator" / "charts" / "mailboat-0.0.9.tgz"
DOCUMENTATION = ROOT / "docs"
SYSTEM = "mailboat-system"
NODE = "mailboat-control-plane"
OF_ALL = f"ClusterRole/{SYSTEM}-mailboat"
OPERATOR_PODS = "app.kubernetes.io/name=mailboat-operator"
FEW = 4
MANY = 20
LEASE_SECONDS = 15
ABSENCE_SECONDS = 2 * LEASE_SECONDS
"""How long content flows without an operator: beyond its lease."""
DASHBOARD_TOKEN = "dashboard-token-0123456789"
DASHBOARD_SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "dashboard"}}
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def story(operator: NamespaceClient, shared_namespace: Any) -> Story:
    """The quickstart is not applied yet."""
    return Story(shared_namespace, {})


@pytest.fixture(scope="session", autouse=True)
def previous_chart(cluster: Any) -> Iterator[ExitStack]:
    """The previous chart with its definitions, held until the stack is closed: the first test replaces both.

    It comes before slower fixtures, so that the stories which need the present definitions come second.
    """
    with ExitStack() as held:
        held.enter_context(cluster.definitions())
        release(cluster, PREVIOUS_CHART)
        yield held


@pytest.fixture(scope="module")
def operator(cluster: Any) -> Iterator[NamespaceClient]:
    """The operator's namespace. The last test uninstalls the chart, or the end of the module does."""
    yield cluster.client.namespace(SYSTEM)
    uninstall(cluster, "--ignore-not-found")


def release(cluster: Any, chart: Path, *options: str) -> None:
    images = {name: image.rpartition(":")[2] for name, image in cluster.images.items()}
    tags = f"image.tag={images['mailboat-operator']},agentImage.tag={images['mailboat']}"
    place = ("--namespace", SYSTEM, "--create-namespace", "--timeout=120s")
    kubectls = "--force-conflicts"  # definitions that another test applied
    cluster.run("helm", "upgrade", "--install", "mailboat", str(chart), kubectls, *place, "--set", tags, *options)


def settings_of(story: Story) -> list[str]:
    """Two replicas for the namespace of these tests; other stories have operators of their own at the same time."""
    return ["--set=replicas=2", f"--set=namespaces={{{story.namespace.name}}}"]


def uninstall(cluster: Any, *options: str) -> None:
    place = ("--namespace", SYSTEM, "--timeout=120s")
    cluster.run("helm", "uninstall", "mailboat", *place, "--cascade=foreground", *options)
    cluster.client.namespace(SYSTEM).wait_gone("Deployment/mailboat")


def test_the_quickstart_made_under_the_previous_chart_lives_on_under_this_one(
    story: Story, cluster: Any, operator: NamespaceClient, kafka: str, s3: str, previous_chart: ExitStack
) -> None:
    keys = {"accessKeyId": ADMIN.access_key_id, "secretAccessKey": ADMIN.secret_access_key}
    story.namespace.make_secret("mailboat-s3", keys)
    story.namespace.make_source()
    present = quickstart(kafka, s3)
    assert "pathStyle" in present
    with previous_chart:
        story.namespace.apply_text(present.replace("pathStyle", "isPathStyle"))  # as the previous chart calls it
        operator.apply({**DASHBOARD_SECRET, "stringData": {"token": DASHBOARD_TOKEN}})
        dashboard = "--set=dashboard.enabled=true,dashboard.tokenSecret=dashboard"
        release(cluster, CHART, "--wait", *settings_of(story), dashboard)
    story.namespace.apply_text(present)
    # a field of this chart; thirty members go one after the other in these tests, two minutes longer by default
    # Twenty members of 20m each would ask for more than two cores together with the pods of two other stories, and wait
    # for each other as Pending.
    story.change_pool(drain="1s", resources={"requests": {"cpu": "5m"}})

    cluster.run("helm", "test", "mailboat", "--namespace", SYSTEM, "--timeout=120s")
    story.namespace.wait_for("Ready", "Journal/main", "Publisher/author", "SubscriberPool/edge")


def test_a_distribution_brings_the_tree_to_every_member_byte_by_byte(story: Story, site: dict[str, bytes]) -> None:
    story.fill(site)
    story.namespace.kubectl("apply", "-f", str(EXAMPLES / "quickstart" / "distribution.yaml"))
    story.namespace.wait_for("Distributed", "Distribution/everything")
    story.assert_content("edge-0", "edge-1", "edge-2")


def test_the_users_own_server_gives_out_the_content_and_can_not_change_it(story: Story) -> None:
    plain = [name for name in story.published if not name.endswith(".html")]  # in which the proxy changes the links
    for name in plain[:5]:
        assert story.namespace.read_url("Service/edge:content", name) == story.published[name]
    script = "from pathlib import Path; Path('/content/mine').write_text('')"
    code, _, errors = story.namespace.try_to_run("edge-0", "python3", "-c", script, container="web")
    assert code != 0
    assert b"Read-only file system" in errors


def test_all_kinds_are_listed_with_figures_that_say_how_it_goes(story: Story) -> None:
    listed = story.namespace.kubectl("get", "mailboat")
    for name in ("journal", "topic", "publisher", "subscriberpool", "distribution"):
        assert f"{name}.mailboat.dev/" in listed
    for line in listed.splitlines():
        assert "<unset>" not in line
    [pool] = [line.split() for line in listed.splitlines() if line.startswith("subscriberpool.mailboat.dev/edge")]
    assert pool[1:4] == ["True", "AsSpecified", "3"]


def test_the_dashboard_of_the_operator_shows_the_members(story: Story, cluster: Any) -> None:
    with forwarded(cluster, "service/mailboat", 8081) as url, chromium() as browser, page_in(browser) as page:
        page.goto(url)
        page.get_by_label("Token").fill(DASHBOARD_TOKEN)
        page.get_by_label("Token").press("Enter")
        for number in range(3):
            row = page.get_by_role("row", name=f"current {story.namespace.name}/edge-{number} ")
            row.wait_for()
        page.get_by_text(f"{story.namespace.name}/author").first.wait_for()
        page.goto("about:blank")


def test_an_upgrade_that_fails_is_rolled_back_and_neither_restarts_a_member(
    story: Story, cluster: Any, operator: NamespaceClient
) -> None:
    members = story.members()

    release(cluster, CHART, *settings_of(story), "--set=image.tag=missing")
    eventually(lambda: any(map(lacks_image, operator.list("Pod", OPERATOR_PODS))), "the new operator has an image")
    story.publish_page("upgrading")
    story.namespace.wait_for("Distributed", "Distribution/upgrading")
    cluster.run("helm", "rollback", "mailboat", "--namespace", SYSTEM, "--wait", "--timeout=120s")
    story.publish_page("rolled-back")
    story.namespace.wait_for("Distributed", "Distribution/rolled-back")

    assert story.members() == members
    story.assert_content(*members)


def test_a_new_member_is_served_no_traffic_before_it_has_caught_up(story: Story, broker: Any) -> None:
    with broker.paused():
        story.namespace.kubectl("scale", "subscriberpool/edge", "--replicas=4")
        waiting = story.namespace.wait("Pod", "edge-3", has_started)  # its probes are answered while it waits
        assert not has_condition(waiting, "Ready")
        assert story.served_members() == {"edge-0", "edge-1", "edge-2"}
    story.wait_for_members("edge-3")
    assert restarts_of(story.namespace.get("Pod", "edge-3")) == 0
    story.assert_content("edge-3")
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    assert story.served_members() == {"edge-0", "edge-1", "edge-2", "edge-3"}


def test_each_of_twenty_members_holds_the_content_before_traffic_while_a_tree_is_published(story: Story) -> None:
    before = set(story.published)
    assert len(story.members()) == FEW
    served = story.served_members()
    story.fill(files_of(DOCUMENTATION), "docs")
    story.distribute("docs", "/docs")
    story.namespace.scale("SubscriberPool", "edge", MANY)

    def are_served() -> bool:
        for member in story.served_members() - served:
            assert before <= set(story.namespace.read_files(member, CONTENT)), member
            served.add(member)
        return len(served) == MANY

    eventually(are_served, "members are not ready", seconds=500)
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    story.namespace.wait_for("Distributed", "Distribution/docs")
    story.assert_content(*sorted(served))


def test_twenty_members_scale_down_to_two_while_pods_and_operator_die(story: Story, operator: NamespaceClient) -> None:
    assert len(story.members()) == MANY
    story.fill(files_of(EXAMPLES), "examples")
    words = ("kubectl", "mailboat", "-n", story.namespace.name, "publish", "/examples", "--wait", "150")
    with subprocess.Popen(words, env=story.namespace.cluster.environment, stdout=subprocess.PIPE) as publishing:
        story.namespace.scale("SubscriberPool", "edge", 2)
        story.namespace.delete("Pod", "edge-1", grace_seconds=0)
        operator.delete("Pod", *map(name_of, operator.list("Pod", OPERATOR_PODS)), grace_seconds=0)
        output, _ = publishing.communicate(timeout=170)
    assert publishing.returncode == 0, output.decode()

    pages: list[str] = []

    def are_gone() -> bool:
        members = story.members()
        assert story.served_members(), "no member is served traffic"
        assert {f"edge-{number}" for number in range(2, len(members))} <= members.keys(), (
            "the highest number goes first"
        )
        if len(pages) < MANY - len(members):
            pages.append(f"going-{len(members)}")
            story.publish_page(pages[-1])
        return len(members) <= 2

    eventually(are_gone, "members do not go", seconds=400)  # one after the other
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    assert set(story.members()) == {"edge-0", "edge-1"}
    assert len(pages) > (MANY - 2) // 2, "members go one at a time"
    story.namespace.wait_for("Distributed", *(f"Distribution/{page}" for page in pages))
    story.assert_content("edge-0", "edge-1")
    assert story.served_members() == {"edge-0", "edge-1"}


def test_a_node_is_drained_of_one_member_at_a_time_and_none_loses_content(story: Story, cluster: Any) -> None:
    with cordoned(cluster):
        assert story.namespace.evict("edge-0")
        assert not story.namespace.evict("edge-1")
        story.publish_page("drained")
        story.namespace.wait("Pod", "edge-0", is_pending)  # no other node takes it
        assert not story.namespace.evict("edge-1")
        eventually(lambda: story.served_members() == {"edge-1"}, "an evicted member is served traffic")
        # The Distribution waits for edge-0. The page is there once edge-1 has imported it.
        eventually(
            lambda: story.namespace.read_files("edge-1", CONTENT) == story.published, "edge-1 does not import the page"
        )
        assert story.namespace.read_url("Service/edge:content", "drained.html") == b"drained"
    story.wait_for_members("edge-0")
    eventually(lambda: story.namespace.evict("edge-1"), "the second member can never be evicted")
    assert story.namespace.evict("author-0")
    story.publish_page("evicted")
    story.namespace.wait_for("Distributed", "Distribution/evicted")
    story.wait_for_members("edge-1")
    story.assert_content("edge-0", "edge-1")


@pytest.mark.parametrize("field", ["image", "env", "resources"])
def test_a_change_of_the_pod_restarts_one_member_after_the_other_and_none_loses_a_package(
    story: Story, field: str
) -> None:
    [web] = story.namespace.get("SubscriberPool", "edge")["spec"]["template"]["spec"]["containers"]
    change: Mapping[str, object] = {
        "image": {
            "image": f"docker.io/library/{story.namespace.cluster.images['mailboat']}"
        },  # the same by another name
        "env": {"template": {"spec": {"containers": [{**web, "env": [{"name": "SEASON", "value": "spring"}]}]}}},
        "resources": {"resources": {"requests": {"cpu": "25m"}}},
    }[field]
    before = story.members()

    story.change_pool(**change)
    story.publish_page(f"during-{field}")

    def is_rolled() -> bool:
        assert story.served_members(), "no member is served traffic"
        now = story.members()
        return now.keys() == before.keys() and not before.items() & now.items()

    eventually(is_rolled, f"a change of {field} does not restart all members")
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    story.namespace.wait_for("Distributed", f"Distribution/during-{field}")
    story.assert_content(*before)


def test_when_the_leader_is_killed_another_operator_acts_when_the_lease_is_over(
    story: Story, cluster: Any, operator: NamespaceClient
) -> None:
    members = story.members()
    before = operator.get("Lease", "mailboat")["spec"]
    kill_container(cluster, operator.get("Pod", before["holderIdentity"].partition("_")[0]))

    story.change_pool(volumeRetention={"whenScaled": "Delete"})
    changed = story.namespace.wait(
        "StatefulSet",
        "edge",
        lambda found: found["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete",
    )
    after = operator.get("Lease", "mailboat")["spec"]
    assert after["holderIdentity"] != before["holderIdentity"]
    waited = datetime.fromisoformat(after["acquireTime"]) - datetime.fromisoformat(before["renewTime"])
    assert waited.total_seconds() < LEASE_SECONDS + 30  # it is looked at every two seconds, and a machine may be busy
    assert changed["spec"]["replicas"] == 2
    assert story.members() == members  # the policy of volumes is none of the pods' business

    story.change_pool(volumeRetention={"whenScaled": "Retain"})


def test_without_an_operator_content_flows(story: Story, operator: NamespaceClient) -> None:
    operator.scale("Deployment", "mailboat", 0)
    eventually(lambda: not operator.list("Pod", OPERATOR_PODS), "the operator does not stop")
    story.operator_left_at = time.monotonic()

    story.fill({"alone.html": b"without an operator"})
    story.mailboat("publish", "/alone.html", "--wait", "120")
    story.assert_content("edge-0", "edge-1")
    story.change_pool(replicas=3)
    story.distribute("waiting", "/alone.html")


def test_a_killed_broker_holds_content_up_and_loses_none(story: Story, broker: Any) -> None:
    story.fill({"late.html": b"after the broker"})
    broker.process.kill()
    broker.process.start()
    story.mailboat("publish", "/late.html", "--wait", "120")
    story.assert_content("edge-0", "edge-1")


def test_kubectl_mailboat_tells_how_far_the_members_are(story: Story) -> None:
    told = json.loads(story.mailboat("status", "-o", "json"))
    assert {"edge-0", "edge-1"} <= {subscriber["name"] for subscriber in told["subscribers"]}
    words = ("kubectl", "mailboat", "-n", "default", "status")
    done = subprocess.run(words, env=story.namespace.cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no Publisher in the namespace" in done.stderr


def test_what_changed_while_no_operator_ran_is_done_when_it_is_back(story: Story, operator: NamespaceClient) -> None:
    members = story.members()
    assert members.keys() == {"edge-0", "edge-1"}
    for number in itertools.count():
        story.fill({f"absence-{number}.html": b"still without an operator"})
        story.mailboat("publish", f"/absence-{number}.html", "--wait", "120")
        if time.monotonic() - story.operator_left_at > ABSENCE_SECONDS:
            break
    story.assert_content(*members)
    assert not has_condition(story.namespace.get("SubscriberPool", "edge"), "Ready")  # of the specification before
    assert story.members() == members

    operator.scale("Deployment", "mailboat", 2)
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    story.namespace.wait_for("Distributed", "Distribution/waiting")
    story.assert_content("edge-0", "edge-1", "edge-2")
    assert members.items() <= story.members().items()  # more replicas restart none of those that run


@pytest.mark.timeout(1200)
def test_an_operator_of_one_namespace_becomes_one_of_all_that_acts_as_before(
    story: Story, cluster: Any, operator: NamespaceClient
) -> None:
    assert OF_ALL not in cluster.objects.names("ClusterRole")
    with cluster.definitions():  # after the other stories, whose namespaces have operators of their own
        release(cluster, CHART, "--wait", "--set=replicas=2")
    assert OF_ALL in cluster.objects.names("ClusterRole")
    story.change_pool(replicas=2)
    story.namespace.wait_for("Ready", "SubscriberPool/edge")
    assert set(story.members()) == {"edge-0", "edge-1"}
    story.publish_page("everywhere")
    story.namespace.wait_for("Distributed", "Distribution/everywhere")
    story.assert_content("edge-0", "edge-1")


def test_the_documented_uninstall_leaves_volumes_and_topics_and_nothing_else(
    story: Story, cluster: Any, operator: NamespaceClient, kafka: str
) -> None:
    story.namespace.kubectl("delete", "mailboat", "--all", "--cascade=foreground", "--timeout=150s")
    story.namespace.delete("Pod", "filler", grace_seconds=0)
    story.namespace.wait_gone("Pod/filler")
    left = story.namespace.names(*CHILDREN)
    assert left == {"ConfigMap/kube-root-ca.crt", "Secret/mailboat-s3", "ServiceAccount/default"}

    uninstall(cluster)
    operator.delete("Secret", "dashboard")
    operator.wait_gone("Lease/mailboat")
    assert operator.names(*CHILDREN) == {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}
    assert any("mailboat.dev" in name for name in cluster.objects.names("CustomResourceDefinition"))
    cluster.run("kubectl", "delete", "-f", str(ROOT / "crds"), "--timeout=60s")
    kinds = ("CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding")
    assert not [name for name in cluster.objects.names(*kinds) if "mailboat" in name]

    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics
    assert len([name for name in topics if name.startswith("quickstart-")]) == 6  # also that of jobs
    claims = story.namespace.list("PersistentVolumeClaim")
    assert len(claims) == MANY + 2  # the members' content, the publisher's state, and the site


CHILDREN = (
    *(
        "ConfigMap",
        "Deployment",
        "HorizontalPodAutoscaler",
        "Lease",
        "Pod",
        "PodDisruptionBudget",
        "ReplicaSet",
        "Role",
    ),
    *("RoleBinding", "Secret", "Service", "ServiceAccount", "StatefulSet"),
)
"""Kinds of what the chart and the operator make."""


@contextmanager
def forwarded(cluster: Any, target: str, port: int) -> Iterator[str]:
    """The URL of a port of this machine that leads to one of the operator's Service."""
    words = ("kubectl", "--namespace", SYSTEM, "port-forward", target, f":{port}")
    with subprocess.Popen(words, env=cluster.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://{process.stdout.readline().split()[2]}/"  # Forwarding from 127.0.0.1:40123 -> 8081
        finally:
            process.terminate()


@contextmanager
def cordoned(cluster: Any) -> Iterator[None]:
    """No pod is placed on the node meanwhile."""
    cluster.objects.patch("Node", NODE, {"spec": {"unschedulable": True}})
    try:
        yield
    finally:
        cluster.objects.patch("Node", NODE, {"spec": {"unschedulable": None}})


def kill_container(cluster: Any, pod: Manifest) -> None:
    """End the process of a pod with SIGKILL: nothing is told that it goes."""
    [container] = pod["status"]["containerStatuses"]
    task = container["containerID"].rpartition("/")[2]
    cluster.run("docker", "exec", NODE, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", task)


def lacks_image(pod: Manifest) -> bool:
    """Whether a container waits for its image."""
    containers = pod["status"].get("containerStatuses") or ()
    return any("Image" in item["state"].get("waiting", {}).get("reason", "") for item in containers)


def restarts_of(pod: Manifest) -> int:
    return sum(item["restartCount"] for item in pod["status"]["containerStatuses"])


def is_pending(pod: Manifest) -> bool:
    return bool(pod) and pod["status"].get("phase") == "Pending"

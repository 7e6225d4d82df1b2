"""What the operator asks the brokers for a Topic: growth is confirmed by them, and a deletion never hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from mailboat.errors import BrokersUnreachableError
from mailboat_operator.broker_connections import Connections
from mailboat_operator.brokers import ClusterFound, Credentials, client_options
from mailboat_operator.kinds.controllers import plan_for
from mailboat_operator.kinds.journal.spec import Kafka
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.topic import controller
from mailboat_operator.kinds.topic.plan import CompetingTopics, TopicObservation, plan_topic
from mailboat_operator.plan.actions import RECLAIM_SECONDS, DeleteTopic, Hold, Plan, RecordEvent, TopicFound
from mailboat_operator.plan.labels import ACCEPTED_TOPIC, FINALIZER
from mailboat_operator.systems import Systems
from mailboat_operator.topic_claims import TopicClaims
from mailboat_operator.watches import Watched

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def stored(kind: str, name: str, spec: dict[str, Any]) -> Any:
    head = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    return decode({"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec})


JOURNAL = stored("Journal", "main", {"kafka": {"bootstrapServers": ["kafka:9092"]}})
TOPIC = stored("Topic", "orders", {"journalRef": {"name": "main"}, "topicName": "orders", "partitions": 3})
SMALL = TopicFound("id-1", 1, 1, {})


class LateBrokers:
    """Take every request, and tell of what they did after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.was_asked, self.cluster_id = looks, False, "one"

    async def cluster(self) -> ClusterFound:
        return ClusterFound("one", 3)

    async def topics(self, names: Collection[str]) -> Mapping[str, TopicFound]:
        self.looks -= self.was_asked
        return dict.fromkeys(names, SMALL if self.looks >= 0 else replace(SMALL, partitions=3))

    async def act(self, actions: Mapping[str, object]) -> Mapping[str, None]:
        self.was_asked = True
        return dict.fromkeys(actions)


class Around:
    """What a look at a Topic needs to see."""

    now = NOW

    def __init__(self, brokers: LateBrokers) -> None:

        def connect(kafka: Kafka, credentials: Credentials, _: float) -> Any:
            client_options(kafka, credentials)  # raises what the real client would
            return brokers

        self.systems = Systems(Connections(nullcontext, connect))

    found = JOURNAL

    async def journal(self, *_: str) -> Any:
        return self.found

    async def credentials(self, *_: str) -> None:
        return None


async def planned(around: Around, topic: Any) -> Plan:
    """Observe, plan, and act on the brokers, as `Reconciler` does."""
    return await plan_for(cast("Any", around), topic)


def plan_with(brokers: LateBrokers) -> Plan:
    known = replace(TOPIC, status=replace(TOPIC.status, topic_id=SMALL.topic_id))
    return asyncio.run(planned(Around(brokers), known))


def told(plan: Plan) -> tuple[Any, str]:
    """The partitions and the reason that the status says."""
    assert plan.status is not None
    return plan.status.get("partitions"), plan.status["conditions"][0]["reason"]


@pytest.mark.parametrize("looks", [0, 1, 3])
def test_a_topic_that_grows_is_waited_for_until_the_brokers_tell_of_all_its_partitions(looks: int) -> None:
    plan = plan_with(LateBrokers(looks))
    assert (told(plan), plan.again_seconds) == ((3, "AsSpecified"), None)


def test_a_topic_whose_partitions_no_one_tells_of_is_looked_at_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_PAUSES", (0.0, 0.0))
    plan = plan_with(LateBrokers(9))
    assert (told(plan), plan.again_seconds) == ((None, "TopicMade"), 2.0)


def test_observing_a_topic_changes_nothing_on_the_brokers() -> None:
    brokers = LateBrokers(0)
    known = replace(TOPIC, status=replace(TOPIC.status, topic_id=SMALL.topic_id))
    seen = asyncio.run(controller.observe_topic(cast("Any", Around(brokers)), known))
    assert (seen.found, brokers.was_asked) == (SMALL, False)


class SilentBrokers(LateBrokers):
    """Never answer."""

    def __init__(self) -> None:
        super().__init__(0)

    async def topics(self, names: Collection[str]) -> Mapping[str, TopicFound]:
        raise BrokersUnreachableError(f"looking at {len(names)} topics: timed out")


def deleted_topic(seconds_ago: float = 0.0, policy: str = "Delete", owner: str = "uid-main") -> Any:
    """A Topic of the Journal `main` that is being deleted, with its topic known."""
    spec = {"journalRef": {"name": "main"}, "topicName": "orders", "reclaimPolicy": policy}
    topic = stored("Topic", "orders", spec)
    metadata = replace(
        topic.metadata,
        deleted_at=NOW - timedelta(seconds=seconds_ago),
        finalizers=(FINALIZER,),
        owner_uid=owner,
    )
    return replace(topic, metadata=metadata, status=replace(topic.status, topic_id=SMALL.topic_id))


def journal_with(policy: str, **kafka: Any) -> Any:
    spec = {"kafka": {"bootstrapServers": ["kafka:9092"], **kafka}, "topics": {"reclaimPolicy": policy}}
    return stored("Journal", "main", spec)


def plan_of_deletion(topic: Any, journal: Any, brokers: LateBrokers, *, was_connected: bool = False) -> Plan:
    around = Around(brokers)
    around.found = journal
    if was_connected:
        around.systems.connections.to("shop", "main", journal.spec.kafka, {"login": {"username": "u", "password": "p"}})
    return asyncio.run(planned(around, topic))


def reports(plan: Plan) -> list[str]:
    return [action.reason for action in plan.actions if isinstance(action, RecordEvent)]


def is_released(plan: Plan) -> bool:
    return Hold(is_held=False) in plan.actions


def test_a_deleted_topic_follows_the_policy_of_the_journal_that_made_it() -> None:
    """The policy may have changed while the Journal was being deleted: what its own message advises."""
    plan = plan_of_deletion(deleted_topic(), journal_with("Retain"), LateBrokers(0))
    assert is_released(plan)
    assert not any(isinstance(action, DeleteTopic) for action in plan.actions)


def test_a_topic_that_no_journal_made_follows_its_own_policy() -> None:
    plan = plan_of_deletion(deleted_topic(owner=""), journal_with("Retain"), LateBrokers(0))
    assert any(isinstance(action, DeleteTopic) for action in plan.actions)


def test_a_deletion_waits_for_silent_brokers_and_says_until_when() -> None:
    plan = plan_of_deletion(deleted_topic(seconds_ago=10), journal_with("Delete"), SilentBrokers())
    assert not is_released(plan)
    assert plan.status is not None
    assert "waits until 00:04:50 UTC" in plan.status["conditions"][0]["message"]


def test_a_deletion_does_not_wait_longer_than_the_limit() -> None:
    plan = plan_of_deletion(deleted_topic(seconds_ago=RECLAIM_SECONDS), journal_with("Delete"), SilentBrokers())
    assert (is_released(plan), reports(plan)) == (True, ["TopicRetained"])


SASL = {"sasl": {"mechanism": "PLAIN", "credentialsSecretRef": {"name": "login"}}}


def test_a_deletion_without_the_secret_keeps_the_topic() -> None:
    plan = plan_of_deletion(deleted_topic(), journal_with("Delete", **SASL), LateBrokers(0))
    assert (is_released(plan), reports(plan)) == (True, ["TopicRetained"])


def test_a_deletion_without_the_secret_uses_the_last_connection() -> None:
    plan = plan_of_deletion(deleted_topic(), journal_with("Delete", **SASL), LateBrokers(0), was_connected=True)
    assert reports(plan) == ["TopicDeleted"]


def test_a_topic_of_another_cluster_is_neither_created_nor_deleted() -> None:
    """Its Journal says so and decides; the topic of the former cluster still holds its messages."""
    journal = journal_with("Delete")
    journal = replace(journal, status=replace(journal.status, cluster_id="former"))
    around = Around(LateBrokers(0))
    around.found = journal
    plan = asyncio.run(planned(around, TOPIC))
    assert (plan.actions, told(plan)[1]) == ((), "ClusterReplaced")
    assert reports(plan_of_deletion(deleted_topic(), journal, LateBrokers(0))) == ["TopicRetained"]


def claims_of(*objects: tuple[str, str, dict[str, Any]]) -> TopicClaims:
    """Claims of Journals and of their package Topics, each in a namespace of its own, the first one the oldest."""
    claims = TopicClaims()
    for number, (kind, namespace, spec) in enumerate(objects):
        made_at = f"2026-01-01T00:00:{number:02}Z"
        head = {"name": "main", "namespace": namespace, "uid": namespace, "creationTimestamp": made_at}
        claims.saw({"apiVersion": "mailboat.dev/v1alpha1", "kind": kind, "metadata": head, "spec": spec})
    return claims


def owner_of(
    claims: TopicClaims, spec: dict[str, Any], topics: dict[str, Any], cluster_id: str | None = None
) -> tuple[str, str] | None:
    """The older Topic that has the topic of a Topic of the namespace `ours`, of a Journal with these topics."""
    journal = stored("Journal", "main", {**JOURNAL_SPEC, "topics": topics})
    journal = replace(journal, status=replace(journal.status, cluster_id=cluster_id))
    topic = stored("Topic", "main", {"journalRef": {"name": "main"}, **spec})
    younger = replace(topic.metadata, namespace="ours", created_at=datetime(2026, 2, 1, tzinfo=UTC))
    return claims.rivals(replace(topic, metadata=younger), journal).owner


JOURNAL_SPEC: dict[str, Any] = {"kafka": {"bootstrapServers": ["kafka:9092"]}}
OF_PACKAGES: dict[str, Any] = {"journalRef": {"name": "main"}, "role": "package"}


def test_a_topic_with_a_name_of_its_own_is_claimed_by_that_name_alone() -> None:
    named = {"names": {"package": "content"}}
    claims = claims_of(("Journal", "a", {**JOURNAL_SPEC, "topics": named}), ("Topic", "a", OF_PACKAGES))
    assert owner_of(claims, {"role": "package"}, {}) is None, "A has the topic `content`"
    assert owner_of(claims, {"role": "package"}, named) == ("a", "main")
    assert owner_of(claims, {"topicName": "content"}, {}) == ("a", "main")
    claims.saw({"kind": "Journal", "metadata": {"namespace": "a", "name": "main"}}, is_gone=True)
    assert owner_of(claims, {"topicName": "content"}, {}) is None


def test_a_namespace_that_may_not_be_listed_may_claim_each_topic() -> None:
    """Its RoleBinding may be missing for a moment: a topic that is deleted then is lost."""
    claims = claims_of(("Journal", "a", JOURNAL_SPEC))
    claims.hide({"b"})
    topic, journal = stored("Topic", "main", OF_PACKAGES), stored("Journal", "main", JOURNAL_SPEC)
    heir = claims.rivals(topic, journal).heir
    assert heir is not None
    assert heir[0] == "b"
    claims.hide(())
    assert claims.rivals(topic, journal).heir is None


def test_journals_with_two_addresses_are_known_as_one_by_the_cluster_of_their_statuses() -> None:
    """The first event of a Journal is older than its status."""
    claims = TopicClaims()
    watched = Watched(lambda _: None, claims)
    head = {"name": "main", "namespace": "a", "uid": "a", "resourceVersion": "1", "generation": 1}
    journal = {"apiVersion": "mailboat.dev/v1alpha1", "kind": "Journal", "metadata": head}
    journal["spec"] = {"kafka": {"bootstrapServers": ["kafka.kafka.svc:9092"]}}
    known = {**journal, "status": {"clusterId": "one"}}

    async def run() -> None:
        for body in (journal, {**journal, "kind": "Topic", "spec": OF_PACKAGES}, known):
            await watched.object_changed("MODIFIED", body)

    asyncio.run(run())
    assert owner_of(claims, {"role": "package"}, {}, "one") == ("a", "main")
    assert owner_of(claims, {"role": "package"}, {}, "two") is None


@pytest.mark.parametrize(
    ("topics_ready", "reason"),
    [(None, "TopicExists"), ("4/6", "TopicExists"), ("5/6", "AsSpecified"), ("5/5", "AsSpecified")],
)
def test_an_existing_topic_of_jobs_is_accepted_with_the_topics_of_packages(
    topics_ready: str | None, reason: str
) -> None:
    """It may be of a Journal that another operator serves: its owner would delete the jobs of that with itself."""
    journal = replace(JOURNAL, status=replace(JOURNAL.status, topics_ready=topics_ready))
    topic = stored("Topic", "main-job", {"journalRef": {"name": "main"}, "role": "job"})
    plan = plan_topic(topic, TopicObservation(NOW, journal, CompetingTopics(), SMALL))
    assert plan.status is not None
    assert (plan.status["conditions"][0]["reason"], "topicId" in plan.status) == (reason, reason == "AsSpecified")
    accepted = replace(topic, metadata=replace(topic.metadata, annotations={ACCEPTED_TOPIC: SMALL.topic_id}))
    plan = plan_topic(accepted, TopicObservation(NOW, journal, CompetingTopics(), SMALL))
    assert plan.status is not None
    assert plan.status["topicId"] == SMALL.topic_id


def test_a_topic_without_a_name_of_its_own_is_claimed_by_prefix_and_role() -> None:
    topics = {"prefix": "shop-"}
    claims = claims_of(("Journal", "a", {**JOURNAL_SPEC, "topics": topics}), ("Topic", "a", OF_PACKAGES))
    assert owner_of(claims, {"role": "package"}, topics) == ("a", "main")
    assert owner_of(claims, {"topicName": "shop-package"}, {}) == ("a", "main")
    assert owner_of(claims, {"role": "package"}, {"names": {"package": "shop-package"}}) == ("a", "main")
    assert owner_of(claims, {"role": "package"}, {}) is None

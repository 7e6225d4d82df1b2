"""What the control service shows of bulk builds: what became of their packages at each subscriber."""

from __future__ import annotations

import pytest
from mailboat.api.records import BuildFollowerView, BuildView
from mailboat.control.service import ControlService
from mailboat.errors import BuildMissingError
from mailboat.model.identifiers import AgentName, BuildId, Offset, PackageId
from mailboat.model.messages import Action, BulkPart, PackageMessage, ReportStart, TopicRole
from mailboat.model.paths import NodePath
from support.control_harbour import (
    AUTHOR,
    FAILED,
    IMPORTED,
    OTHER,
    REMOVED,
    SLING_ID,
    Harbour,
    publish,
    settle,
)

TOTAL = 4


def publish_part(harbour: Harbour, sequence: int) -> None:
    message = PackageMessage(
        pub_sling_id=SLING_ID,
        package_id=PackageId(f"part-{sequence}"),
        action=Action.DELETE,
        package_type="tree",
        pub_agent_name=AUTHOR,
        paths=(NodePath(f"/content/{sequence}"),),
        bulk=BulkPart(BuildId("release-7"), sequence, TOTAL),
    )
    harbour.append(TopicRole.PACKAGE, message)


def publish_build(harbour: Harbour, service: ControlService) -> None:
    """At offsets 1 to 4, between other packages."""
    publish(service)
    for sequence in range(TOTAL):
        publish_part(harbour, sequence)
    publish(service)


def shown(harbour: Harbour, service: ControlService) -> tuple[str, dict[str, BuildFollowerView]]:
    settle(harbour, service)
    (found,) = service.builds("release-7")
    assert isinstance(found, BuildView)
    return found.state, {subscriber.name: subscriber for subscriber in found.subscribers}


def test_each_package_of_a_build_is_in_exactly_one_count(harbour: Harbour, service: ControlService) -> None:
    publish_build(harbour, service)
    golden = AgentName("golden")
    harbour.subscriber("behind").announce(2)
    harbour.subscriber("elsewhere", publishers=(OTHER,)).announce(5)
    harbour.subscriber("failing").tell(2, FAILED)
    harbour.subscriber("foreign", reports=None).announce(5)
    harbour.subscriber("skipping").tell(3, REMOVED, golden=golden)
    harbour.subscriber("later", reports=ReportStart(Offset(3), is_first=True)).announce(5)
    for offset in (2, 3, 4):
        harbour.subscriber("dropping", is_editable=True).tell(offset, REMOVED)
    for name in ("dropping", "failing", "importing", "skipping"):
        harbour.subscriber(name, is_editable=name == "dropping").announce(5)
    state, found = shown(harbour, service)
    assert state == "failed"
    assert found == {
        "behind": BuildFollowerView("behind", 2, "importing", pending=2),
        "dropping": BuildFollowerView("dropping", 1, "importing", dropped=3),
        "failing": BuildFollowerView("failing", 3, "importing", given_up=1),
        "foreign": BuildFollowerView("foreign", 0, "importing", unknown=4),
        "importing": BuildFollowerView("importing", 4, "importing"),
        "later": BuildFollowerView("later", 2, "importing", skipped=2),
        "skipping": BuildFollowerView("skipping", 3, "importing", skipped=1),
    }


def test_a_build_is_distributed_only_if_all_imported_all_of_it(harbour: Harbour, service: ControlService) -> None:
    publish_build(harbour, service)
    assert shown(harbour, service)[0] == "published"
    edge = harbour.subscriber(is_editable=True)
    edge.announce(3)
    assert shown(harbour, service)[0] == "published"
    edge.tell(4, REMOVED)
    edge.announce(5)
    assert shown(harbour, service)[0] == "incomplete"
    edge.tell(4, IMPORTED)
    assert shown(harbour, service)[0] == "distributed"


def test_a_build_with_the_id_of_an_earlier_one_takes_its_place(harbour: Harbour, service: ControlService) -> None:
    for _ in range(2):
        publish_build(harbour, service)
    settle(harbour, service)
    (found,) = service.builds()
    assert (found.published, found.first_offset, found.last_offset) == (TOTAL, 7, 10)


def test_builds_of_a_topic_that_was_created_again_are_forgotten(harbour: Harbour, service: ControlService) -> None:
    publish_build(harbour, service)
    assert len(service.builds()) == 1
    workspace = harbour.workspace
    length = workspace.journal.bounds(workspace.package_topic).next_offset
    workspace.journal.upkeep.delete_topic(workspace.package_topic)
    workspace.ensure_topics()
    plain = PackageMessage(SLING_ID, PackageId("plain"), Action.TEST, "tree", pub_agent_name=AUTHOR)
    for _ in range(length):
        harbour.append(TopicRole.PACKAGE, plain)
    assert service.builds() == []


def test_packages_that_the_log_holds_no_more_are_not_counted(harbour: Harbour, service: ControlService) -> None:
    publish_build(harbour, service)
    edge = harbour.subscriber()
    edge.tell(1, FAILED)
    edge.announce(5)
    assert shown(harbour, service)[1]["edge"].given_up == 1
    journal, topic = harbour.workspace.journal, harbour.workspace.package_topic
    journal.truncate(topic, Offset(3))
    state, found = shown(harbour, service)
    assert (state, found["edge"]) == ("distributed", BuildFollowerView("edge", 2, "importing"))
    journal.truncate(topic, Offset(6))
    with pytest.raises(BuildMissingError):
        service.builds("release-7")

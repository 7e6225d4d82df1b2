"""The control service on a home: requests taken, held up, and followed to where they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from mailboat.api.records import DistributionView
from mailboat.config.document import (
    ThrottleConfig,
)
from mailboat.control.distribution_lookup import Distributions
from mailboat.control.service import ControlService
from mailboat.errors import (
    AgentMissingError,
    DistributionMissingError,
    LimitExceededError,
    PathRefusedError,
    RequestConflictError,
    SourceMissingError,
    ThrottledError,
    UsageError,
)
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.messages import ReportStart, SubscriberState, TopicRole
from mailboat.model.paths import ROOT
from mailboat.model.requests import DistributionRequest, parse_request
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until
from support.control_harbour import (
    AUTHOR,
    FAILED,
    IMPORTED,
    OTHER,
    REMOVED,
    Harbour,
    count_records,
    publish,
    settle,
)


class TestDistribute:
    def test_content_of_the_publishers_source_is_published(self, service: ControlService) -> None:
        order = parse_request("ADD", ("/1.html",), ("/1.html",), "r1", "ann")
        done = service.distribute(AUTHOR, order)
        found = service.distribution(AUTHOR, done.package_id)
        assert (found.action, found.paths, found.deep_paths) == ("ADD", ("/1.html",), ("/1.html",))
        assert (found.request_id, found.user_id, found.offset) == ("r1", "ann", 0)
        assert found.package_bytes > 0
        assert found.published_at is not None

    def test_the_same_request_id_is_the_same_request(self, service: ControlService) -> None:
        order = parse_request("DELETE", ("/old",), request_id="r1")
        first, again = service.distribute(AUTHOR, order), service.distribute(AUTHOR, order)
        assert (again.offset, again.package_id, again.repeated) == (first.offset, first.package_id, True)
        with pytest.raises(RequestConflictError):
            service.distribute(AUTHOR, replace(order, paths=("/other",)))

    def test_deep_means_nothing_to_actions_without_depth(self, service: ControlService) -> None:
        order = parse_request("DELETE", ("/old",), ("/old",))
        assert service.distribution(AUTHOR, service.distribute(AUTHOR, order).package_id).deep_paths == ()

    @pytest.mark.parametrize(
        ("request_of", "error"),
        [
            (lambda: parse_request("PULL", ("/a",)), UsageError),
            (lambda: parse_request("add", ("/a",)), UsageError),
            (lambda: parse_request("ADD", ()), UsageError),
            (lambda: parse_request("ADD", ("/1.html", "/1.html")), UsageError),
            (lambda: parse_request("ADD", ("/1.html",), ("/2.html",)), UsageError),
            (lambda: parse_request("ADD", ("/nowhere",)), SourceMissingError),
            (lambda: parse_request("ADD", ("relative",)), PathRefusedError),
            (lambda: parse_request("DELETE", ("/a/../../etc",)), PathRefusedError),
            (lambda: parse_request("DELETE", ("/",)), UsageError),
            (lambda: parse_request("DELETE", tuple(f"/{n}" for n in range(501))), LimitExceededError),
            (lambda: parse_request("ADD", ("/1.html",), tuple(f"/{n}" for n in range(501))), LimitExceededError),
            (lambda: parse_request("DELETE", ("/a",), request_id="with space"), UsageError),
            (lambda: parse_request("DELETE", ("/a",), user_id="x" * 201), UsageError),
            (lambda: parse_request("DELETE", ("/a",), user_id="line\nbreak"), UsageError),
        ],
    )
    def test_invalid_request_is_refused_before_anything_is_written(
        self,
        harbour: Harbour,
        service: ControlService,
        request_of: Callable[[], DistributionRequest],
        error: type[Exception],
    ) -> None:
        with pytest.raises(error):
            service.distribute(AUTHOR, request_of())
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 0

    def test_changes_of_the_source_are_planned_and_published_once(self, service: ControlService) -> None:
        planned = service.plan_changed(AUTHOR, [ROOT])
        assert (planned.packages, service.plan_changed(AUTHOR, [ROOT])) == (1, planned)
        assert service.plan(AUTHOR, parse_request("ADD", ("/1.html",))).files == 1
        (made,) = service.publish_changed(AUTHOR, [ROOT], "ann")
        assert (made.offset, made.user_id) == (0, "ann")
        assert service.distribution(AUTHOR, made.package_id).paths == made.paths
        assert (list(service.publish_changed(AUTHOR, [ROOT])), service.plan_changed(AUTHOR, [ROOT]).packages) == ([], 0)

    def test_a_changed_node_is_answered_without_its_subtree(self, harbour: Harbour, service: ControlService) -> None:
        list(service.publish_changed(AUTHOR, [ROOT]))
        (harbour.source / "1.html").write_text("changed")
        (made,) = service.publish_changed(AUTHOR, [ROOT])
        assert (made.paths, made.deep_paths) == (("/1.html",), ())
        assert service.distribution(AUTHOR, made.package_id).deep_paths == ()

    def test_changes_need_a_source(self, service: ControlService) -> None:
        with pytest.raises(UsageError, match="no source"):
            next(service.publish_changed(OTHER, [ROOT]))
        with pytest.raises(UsageError, match="no source"):
            service.plan_changed(OTHER, [ROOT])

    def test_requests_before_a_failed_one_are_returned_and_counted(self, service: ControlService) -> None:
        wanted = [parse_request("ADD", (path,)) for path in ("/1.html", "/2.html", "/missing.html")]
        found = service.distribute_all(AUTHOR, wanted)
        assert [next(found).nodes, next(found).offset] == [1, 1]
        with pytest.raises(SourceMissingError) as caught:
            next(found)
        assert caught.value.where["published_before"] == 2
        assert service.distribute(AUTHOR, wanted[0]).offset == 2

    def test_a_publisher_without_a_source_takes_what_needs_none(self, service: ControlService) -> None:
        with pytest.raises(UsageError, match="no source"):
            service.distribute(OTHER, parse_request("ADD", ("/1.html",)))
        assert publish(service, publisher=OTHER)[0].offset == 0

    def test_a_publisher_that_is_not_here_is_named_with_those_that_are(self, service: ControlService) -> None:
        for call in (lambda: publish(service, publisher="nobody"), lambda: service.queues("nobody")):
            with pytest.raises(AgentMissingError, match="'nobody' here; publishers: author, other"):
                call()

    def test_many_at_once_are_all_published_once_and_share_what_durability_costs(self, harbour: Harbour) -> None:
        service = harbour.service(is_running=True)
        before = harbour.workspace.journal.upkeep.synchronisations()

        def one(number: int) -> DistributionView:
            action, path = ("ADD", f"/{number % 5}.html") if number % 2 else ("DELETE", f"/gone-{number}")
            return service.distribute(AUTHOR, parse_request(action, (path,), user_id=f"user-{number % 7}"))

        with ThreadPoolExecutor(24) as pool:
            done = list(pool.map(one, range(200)))
        assert sorted(item.offset for item in done) == list(range(200))
        after = harbour.workspace.journal.upkeep.synchronisations()
        if before is not None and after is not None:
            assert after - before < 200

    def test_a_request_that_fails_fails_alone(self, harbour: Harbour) -> None:
        service = harbour.service(is_running=True)

        def one(number: int) -> str:
            path = f"/{number}.html" if number % 5 < 4 and number < 5 else f"/missing-{number}"
            try:
                return service.distribute(AUTHOR, parse_request("ADD", (path,))).state
            except SourceMissingError:
                return "missing"

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(one, range(40)))
        assert found == ["queued"] * 4 + ["missing"] * 36
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 4


class TestThrottle:
    @pytest.fixture
    def throttle(self) -> ThrottleConfig:
        return ThrottleConfig(max_queue_entries=4, max_delay_seconds=20.0)

    def test_a_lagging_editable_subscriber_slows_publishing_down(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 6)
        harbour.subscriber(is_editable=True).announce(-1)
        harbour.subscriber("quick", is_editable=True).announce(5)
        service = harbour.service(is_running=True)
        wait_until(lambda: service.status().publishers[0].delay_seconds == 10.0)
        with pytest.raises(ThrottledError) as refused:
            publish(service)
        assert refused.value.retry_after_seconds == 10.0
        assert harbour.workspace.journal.bounds(harbour.workspace.package_topic).next_offset == 6
        assert publish(service, publisher=OTHER)

    def test_one_that_follows_everyone_slows_publishers_down_that_it_never_heard_of(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 6)
        edge = harbour.subscriber(is_editable=True, publishers=())
        edge.announce(follows_all=True, next_offset=Offset(0))
        service = harbour.service(is_running=True)
        wait_until(lambda: service.status().publishers[0].delay_seconds == 10.0)
        edge.announce(follows_all=True, next_offset=Offset(6))
        wait_until(lambda: service.status().publishers[0].delay_seconds == 0)

    def test_one_that_can_not_be_cleared_slows_no_one_down(self, harbour: Harbour, service: ControlService) -> None:
        publish(service, 50)
        harbour.subscriber().announce(-1)
        harbour.subscriber("other", is_editable=True, publishers=(OTHER,)).announce(-1)
        assert publish(harbour.service(is_running=True))

    def test_a_repeat_is_answered_whatever_the_backlog(self, harbour: Harbour, service: ControlService) -> None:
        order = parse_request("DELETE", ("/a",), request_id="r")
        service.distribute(AUTHOR, order)
        publish(service, 10)
        harbour.subscriber(is_editable=True).announce(-1)
        service = harbour.service(is_running=True)
        wait_until(lambda: service.status().publishers[0].delay_seconds > 0)
        assert service.distribute(AUTHOR, order).repeated


class TestDistribution:
    def test_requests_are_listed_by_pages_the_newest_first(self, harbour: Harbour, service: ControlService) -> None:
        made = publish(service, 5)
        publish(service, 3, OTHER)
        made += publish(service, 2)
        harbour.subscriber().announce(made[2].offset)
        settle(harbour, service)
        seen, before, states = [], None, []
        while (page := service.distributions(AUTHOR, before, 3)).next_before is not None:
            seen += [item.package_id for item in page.items]
            states += [item.state for item in page.items]
            before = page.next_before
        seen += [item.package_id for item in page.items]
        states += [item.state for item in page.items]
        assert seen == [item.package_id for item in reversed(made)]
        assert states == ["queued"] * 4 + ["distributed"] * 3
        assert service.distributions(AUTHOR, 0).items == ()
        assert service.distributions(AUTHOR, 10**9, 1).items[0].offset == made[-1].offset

    def test_paths_in_a_list_are_bounded_and_the_request_alone_has_all(self, service: ControlService) -> None:
        for paths in (
            tuple(f"/{number}" for number in range(101)),
            tuple(f"/{n:02}" + ("/" + "ä" * 100) * 6 for n in range(20)),
        ):
            service.distribute(AUTHOR, parse_request("INVALIDATE", paths))
        long, many = service.distributions(AUTHOR).items
        assert (len(many.paths), many.path_count, many.paths_truncated) == (100, 101, True)
        assert (len(long.paths), long.path_count, long.paths_truncated) == (13, 20, True)
        alone = service.distribution(AUTHOR, many.package_id)
        assert (len(alone.paths), alone.path_count, alone.paths_truncated) == (101, 101, False)

    def test_a_request_far_behind_those_of_others_is_listed_with_a_few_looks(
        self, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (made,) = publish(service)
        publish(service, 100, OTHER)
        looks: list[object] = []
        between = Distributions._between

        def counted(*words: Any) -> Any:
            looks.append(words)
            return between(*words)

        monkeypatch.setattr(Distributions, "_between", counted)
        assert [item.offset for item in service.distributions(AUTHOR, None, 1).items] == [made.offset]
        assert len(looks) <= 7

    def test_everybodys_position_says_who_has_it(self, harbour: Harbour, service: ControlService) -> None:
        first, second = publish(service, 2)
        harbour.subscriber("ahead").announce(1)
        harbour.subscriber("behind").announce(0)
        harbour.subscriber("new").announce(-1)
        harbour.subscriber("elsewhere", publishers=(OTHER,)).announce(-1)
        settle(harbour, service)
        found = service.distribution(AUTHOR, first.package_id)
        assert (found.imported, found.waiting, found.state) == (("ahead", "behind"), ("new",), "queued")
        assert service.distribution(AUTHOR, second.package_id).waiting == ("behind", "new")

    def test_who_gave_it_up_or_dropped_it_did_not_import_it(self, harbour: Harbour, service: ControlService) -> None:
        (done,) = publish(service)
        failing, clearing = harbour.subscriber("failing"), harbour.subscriber("clearing", is_editable=True)
        failing.tell(0, FAILED)
        clearing.tell(0, REMOVED)
        for item in (failing, clearing, harbour.subscriber("fine")):
            item.announce(0)
        settle(harbour, service)
        found = service.distribution(AUTHOR, done.package_id)
        (failure,) = found.failed
        assert (failure.subscriber, failure.cause.code, found.removed, found.imported) == (
            "failing",
            "StorageFull",
            ("clearing",),
            ("fine",),
        )
        assert (found.state, found.waiting) == ("failed", ())
        failing.tell(0, IMPORTED)
        assert service.distribution(AUTHOR, done.package_id).state == "incomplete"

    def test_each_subscriber_has_exactly_one_outcome(self, harbour: Harbour, service: ControlService) -> None:
        first, done = publish(service, 2)
        for name in ("dropping", "failing", "importing", "pending", "skipping"):
            harbour.subscriber(name, is_editable=name == "dropping").announce(-1 if name == "pending" else 1)
        harbour.subscriber("dropping").tell(1, REMOVED)
        harbour.subscriber("failing").tell(1, FAILED)
        harbour.subscriber("skipping").tell(1, REMOVED, golden=AgentName("golden"))
        harbour.subscriber("elsewhere", publishers=(OTHER,)).announce(1)
        former = SubscriberState(AUTHOR, 1, reports=ReportStart(Offset(0), is_first=True, until=Offset(2)))
        harbour.subscriber("leaving", publishers=(OTHER,)).announce(1, former=(former,))
        harbour.subscriber("foreign", reports=None).announce(1)
        harbour.subscriber("later", reports=ReportStart(Offset(9), is_first=True)).announce(1)
        harbour.subscriber("restored", reports=ReportStart(Offset(9))).announce(1)
        settle(harbour, service)
        found = service.distribution(AUTHOR, done.package_id)
        assert (found.state, found.imported, found.waiting, found.removed) == (
            "failed",
            ("importing", "leaving"),
            ("pending",),
            ("dropping",),
        )
        assert [each.subscriber for each in found.failed] == ["failing"]
        assert {item.subscriber: (item.reason, item.golden) for item in found.skipped} == {
            "elsewhere": ("not-followed", None),
            "later": ("joined-later", None),
            "skipping": ("staged", "golden"),
        }
        assert {item.subscriber: item.reason for item in found.unknown} == {
            "foreign": "no-reports",
            "restored": "before-reports",
        }
        assert service.distribution(AUTHOR, first.package_id).imported == (
            "dropping",
            "failing",
            "importing",
            "leaving",
            "skipping",
        )

    def test_statuses_that_retention_removed_are_never_taken_for_imports(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        (done,) = publish(service)
        edge = harbour.subscriber(is_editable=True)
        edge.tell(0, REMOVED)
        edge.announce(0)
        status = harbour.workspace.topic(TopicRole.STATUS)
        harbour.workspace.journal.truncate(status, Offset(1))
        settle(harbour, service)
        found = service.distribution(AUTHOR, done.package_id)
        assert (found.state, [item.reason for item in found.unknown]) == ("incomplete", ["statuses-gone"])

    def test_distribution_lookup_by_package_or_request_id_from_another_agent(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        publish(service, 3)
        done = service.distribute(AUTHOR, parse_request("DELETE", ("/x",), request_id="theirs"))
        publish(service, 3)
        unnamed = publish(service)[0]
        for file in harbour.home.publishers_path.glob("*"):
            file.unlink()
        stranger = harbour.service()
        assert stranger.distribution(AUTHOR, done.package_id).offset == 3
        assert stranger.distribution(AUTHOR, "theirs").offset == 3
        assert stranger.distribution(AUTHOR, unnamed.package_id).offset == 7

    def test_it_is_found_deep_in_a_long_log_by_the_time_in_its_id(
        self, harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = harbour.workspace.package_topic
        noise = [NewRecord(b"\xff")] * 4_000

        def append_noise() -> None:
            for _ in range(3):
                harbour.workspace.journal.append(topic, noise)

        append_noise()
        threading.Event().wait(0.002)  # its id is of a later millisecond
        (done,) = publish(service)
        append_noise()
        monkeypatch.setattr("mailboat.control.distribution_lookup._BUILDING_MS", 0)
        read = count_records(monkeypatch)
        assert harbour.service().distribution(AUTHOR, done.package_id).offset == 12_000
        assert read["package"] <= 11_000

    @pytest.mark.parametrize(
        "identifier", ["", "nobody", "dstrpck-1-x", f"dstrpck-{10**14}-x", "dstrpck-" + "9" * 30 + "-x", "%", "\x00"]
    )
    def test_what_was_never_published_is_missing(self, service: ControlService, identifier: str) -> None:
        publish(service, 3)
        with pytest.raises(DistributionMissingError):
            service.distribution(AUTHOR, identifier)

    def test_another_publishers_package_is_missing_here(self, service: ControlService) -> None:
        (done,) = publish(service)
        with pytest.raises(DistributionMissingError):
            service.distribution(OTHER, done.package_id)

    @pytest.mark.parametrize("is_running", [True, False])
    def test_a_wait_ends_with_the_last_import(self, harbour: Harbour, is_running: bool) -> None:
        service = harbour.service(is_running=is_running)
        edges = [harbour.subscriber(f"edge-{number}") for number in range(3)]
        for item in edges:
            item.announce(-1)
        (done,) = publish(service)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(service.distribution, AUTHOR, done.package_id, PATIENCE_SECONDS)
            for item in edges:
                item.announce(0)
            assert waiting.result(PATIENCE_SECONDS).state == "distributed"

    def test_a_wait_whose_time_is_over_says_who_is_missing(self, harbour: Harbour, service: ControlService) -> None:
        harbour.subscriber().announce(-1)
        (done,) = publish(service)
        assert service.distribution(AUTHOR, done.package_id, 0.05).waiting == ("edge",)

    def test_wait_lasts_as_long_as_the_caller_asks(
        self, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = list[float]()

        def waited(read: Callable[[], Any], _: object, seconds: float) -> Any:
            asked.append(seconds)
            return read()

        monkeypatch.setattr(service._journal_state, "wait_until", waited)
        (done,) = publish(service)
        service.distribution(AUTHOR, done.package_id, 7_200.0)
        assert asked == [7_200.0]

    def test_a_failure_that_was_told_before_the_position_is_never_taken_for_an_import(self, harbour: Harbour) -> None:
        service = harbour.service(is_running=True)
        edge = harbour.subscriber()
        edge.announce(-1)
        # without a known subscriber a package is distributed at once, before the thread of announcements has read this
        wait_until(lambda: bool(service.status().subscribers))
        for offset, done in enumerate(publish(service, 10)):
            edge.tell(offset, FAILED)
            edge.announce(offset)
            assert service.distribution(AUTHOR, done.package_id, PATIENCE_SECONDS).state == "failed"

    def test_a_position_counts_a_moment_after_it_was_announced_or_once_the_package_is_confirmed(
        self, harbour: Harbour, service: ControlService
    ) -> None:
        (done,) = publish(service)
        harbour.clock.stand_still()
        harbour.subscriber("quiet").announce(0)
        sure = harbour.subscriber("sure", is_editable=True)
        sure.announce(0)
        sure.tell(0, IMPORTED)
        found = service.distribution(AUTHOR, done.package_id)
        assert (found.state, found.waiting, found.imported) == ("queued", ("quiet",), ("sure",))
        settle(harbour, service)
        found = service.distribution(AUTHOR, done.package_id)
        assert (found.state, found.imported) == ("distributed", ("quiet", "sure"))

    def test_a_package_that_was_given_up_is_not_distributed_while_statuses_are_read_late(
        self, harbour: Harbour, service: ControlService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (done,) = publish(service)
        edge = harbour.subscriber()
        edge.tell(0, FAILED)
        edge.announce(0)
        with monkeypatch.context() as late:
            late.setattr(type(service._journal_state), "hear_statuses", lambda _: None)
            settle(harbour, service)
            assert service.distribution(AUTHOR, done.package_id).state == "queued"
        assert service.distribution(AUTHOR, done.package_id).state == "failed"

"""Jobs over HTTP: the same answers as on a home, verbs, and workers that are late, guess or send nonsense."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mailboat.api.client import HttpControl
from mailboat.api.job_control import JobFilter
from mailboat.api.job_orders import HeldCall, RenewalOrder, ResultOrder, TurnOrder
from mailboat.api.job_views import CallView, JobQueueView, JobStateView, TurnView
from mailboat.api.orders import LONGEST_WAIT_SECONDS
from mailboat.clock import SystemClock
from mailboat.config.document import HttpConfig, TokenConfig, Verb
from mailboat.config.storage import Secret
from mailboat.control.job_service import JobService
from mailboat.errors import UsageError
from mailboat.failpoints import NoFailpoints
from mailboat.http.ports import MAX_TURNS
from mailboat.jobs.http_source import HttpSource
from mailboat.jobs.leases import RULES
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.source import Offer, PollResult
from mailboat.jobs.topic import open_job_topic
from mailboat.journal.memory import MemoryJournal
from mailboat.model.identifiers import AgentName, Offset
from mailboat.model.jobs import (
    AttemptOutcome,
    Feed,
    JobAction,
    JobId,
    JobMissingError,
    JobQueueMissingError,
    JobResult,
    JobsAdded,
    JobScheduleMissingError,
    MissedFirings,
    NewJob,
    QueueKind,
    QueueSettings,
    Renewal,
    Schedule,
    Token,
    WorkerSeen,
    parse_job_id,
    pool_topic,
    show_job_id,
)
from mailboat.model.positions import LogIdentity
from mailboat.testing.clocks import ManualClock
from mailboat.testing.wait import LONG_WAIT_SECONDS, PATIENCE_SECONDS, wait_until
from support.fake_control import FakeControl

WORKER = "worker-1"
UNHURRIED = HttpConfig(requests_per_second=1e6, burst_requests=1_000_000)


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal(SystemClock())


def service_of(journal: MemoryJournal) -> JobService:
    return JobService(journal.another_handle, SystemClock(), random.Random(1))


@pytest.fixture
def client(journal: MemoryJournal, serve: Any) -> Iterator[HttpControl]:
    with HttpControl(serve(FakeControl(), UNHURRIED, jobs=service_of(journal)).url) as made:
        yield made


def claim(client: HttpControl, free: int = 4, held: tuple[tuple[Token, JobId], ...] = ()) -> TurnView:
    return ask(client, free, held, LONGEST_WAIT_SECONDS)


def ask(
    client: HttpControl, free: int, held: tuple[tuple[Token, JobId], ...] = (), wait_seconds: float = 0.0
) -> TurnView:
    known = tuple(HeldCall(show_job_id(job), token) for token, job in held)
    return client.jobs.turn(WORKER, TurnOrder(("**",), 4, free, known, wait_seconds=wait_seconds))


def report(
    client: HttpControl, *results: JobResult, renewals: tuple[Renewal, ...] = (), worker: str = WORKER, free: int = 0
) -> TurnView:
    ended, renewed = tuple(map(ResultOrder.of, results)), tuple(map(RenewalOrder.of, renewals))
    return client.jobs.turn(worker, TurnOrder(("**",), 4, free, results=ended, renewals=renewed))


def timeless(queue: JobQueueView) -> JobQueueView:
    """A queue without what changes from one request to the next."""
    return replace(queue, oldest_seconds=None)


def test_every_verb_answers_the_same_over_http(client: HttpControl, journal: MemoryJournal) -> None:
    there, here = client.jobs, service_of(journal)
    settings = QueueSettings("cdn", ("purge.*",), QueueKind.KEYED, 8, 100, 1_000)
    assert there.set_queue(settings).queue == "cdn"
    added = there.add([NewJob("purge.cdn", b'{"site": "blog", "try": {"n": 2}}', "news"), NewJob("mail", b"\xff\x00")])
    assert [each.state for each in added] == ["unassigned", "unassigned"]
    assert here.list_jobs(JobFilter()) == there.list_jobs(JobFilter())
    assert list(map(timeless, here.queues())) == list(map(timeless, there.queues()))
    assert timeless(there.queue("cdn")) == timeless(there.queues()[0])
    first, second = (parse_job_id(each.job) for each in added)
    assert here.show(first) == there.show(first)
    assert there.show(first).data == {"site": "blog", "try": {"n": 2}}
    assert there.suspend("cdn", 60).until_at is not None
    assert there.queues()[0].suspended
    assert there.resume("cdn").until_at is None
    assert list(there.command(JobAction.STOP, [first])) == [JobStateView(added[0].job, "stopped")]
    (again,) = there.retry([first])
    assert again.state == "unassigned"
    assert there.command(JobAction.REMOVE, [second])[0].state == "ended"
    assert there.clear("cdn").dropped == 1
    assert there.remove_queue("cdn").queue == "cdn"
    nightly = Schedule("nightly", NewJob("report", b'{"n": 1}', "k"), cron="0 3 * * *", zone="Europe/Berlin")
    once = Schedule("once", NewJob("report"), at_ms=4_000_000_000_000, missed=MissedFirings.ALL)
    assert [there.set_schedule(each) for each in (nightly, once)] == list(here.schedules()) == list(there.schedules())
    assert there.set_schedule(nightly) == there.schedule("nightly")
    assert (there.schedule("nightly").data, there.schedule("once").missed) == ({"n": 1}, "all")
    assert there.fire("nightly").state == "unassigned"
    assert there.remove_schedule("nightly").schedule == "nightly"
    for missing, call in (
        (JobMissingError, lambda: there.show(JobId(1 << 40))),
        (JobQueueMissingError, lambda: there.clear("cdn")),
        (JobQueueMissingError, lambda: there.queue("cdn")),
        (JobScheduleMissingError, lambda: there.schedule("nightly")),
        (JobScheduleMissingError, lambda: there.fire("nightly")),
        (JobScheduleMissingError, lambda: there.remove_schedule("nightly")),
        (UsageError, lambda: there.set_schedule(nightly._replace(cron="no"))),
        (UsageError, lambda: there.add([NewJob("not a topic")])),
    ):
        with pytest.raises(missing):
            call()


def test_search_compares_payload_values_as_data(client: HttpControl) -> None:
    payloads = [{"site": "blog"}, {"site": 'it\'s "quoted"'}, {"n": {"m": 7}}, {"n": {"m": "7"}}, {"n": {"m": 70}}]
    added = client.jobs.add([NewJob("work", json.dumps(each).encode()) for each in payloads])
    for text, wanted in (
        ("site=blog", [0]),
        ('site=it\'s "quoted"', [1]),
        ("n.m=7", [2, 3]),
        ("site=' or 1=1", []),
        ("site.x=blog", []),
    ):
        found = client.jobs.list_jobs(JobFilter(members=(text,)))
        assert [each.job for each in found.items] == [added[place].job for place in wanted]
    with pytest.raises(UsageError, match="NAME=VALUE"):
        client.jobs.list_jobs(JobFilter(members=("site",)))


def test_pages_show_each_job_once(client: HttpControl) -> None:
    added = client.jobs.add([NewJob("work")] * 7)
    seen: list[str] = []
    page = client.jobs.list_jobs(JobFilter(), None, 3)
    seen += [each.job for each in page.items]
    while page.next_page is not None:
        page = client.jobs.list_jobs(JobFilter(), page.next_page, 3)
        seen += [each.job for each in page.items]
    assert seen == [each.job for each in added]


def test_a_worker_claims_renews_and_finishes(client: HttpControl) -> None:
    (added,) = client.jobs.add([NewJob("work", b"payload", keep=True)])
    (claimed,) = claim(client).claimed
    job, token = parse_job_id(claimed.job), Token(claimed.token)
    assert (claimed.job, claimed.attempt, claimed.jobs[0].payload) == (added.job, 1, "cGF5bG9hZA==")
    assert not report(client, renewals=(Renewal(job, token, b"half"),)).lost
    assert client.jobs.show(job).progress == "half"
    assert not report(client, JobResult(job, token, AttemptOutcome.OK)).lost
    assert client.jobs.show(job).view.state == "succeeded"


def test_a_report_gives_the_next_call_in_the_same_answer(client: HttpControl) -> None:
    client.jobs.add([NewJob("work")] * 2)
    (first,) = claim(client, free=1).claimed
    answer = report(client, JobResult(parse_job_id(first.job), Token(first.token), AttemptOutcome.OK), free=1)
    assert [each.job for each in answer.claimed] != [first.job]
    assert len(answer.claimed) == 1


def test_j35_a_claim_whose_answer_was_lost_is_given_again(client: HttpControl) -> None:
    client.jobs.add([NewJob("work")])
    lost, again = claim(client), claim(client)
    assert again.claimed == lost.claimed
    held = ((Token(again.claimed[0].token), parse_job_id(again.claimed[0].job)),)
    assert ask(client, 4, held) == TurnView()


@pytest.mark.parametrize(("worker", "change"), [("worker-1", 1), ("worker-1", -1), ("worker-2", 0)])
def test_a_token_of_another_lease_or_worker_is_refused(client: HttpControl, worker: str, change: int) -> None:
    client.jobs.add([NewJob("work", keep=True)])
    (claimed,) = claim(client).claimed
    job = parse_job_id(claimed.job)
    result = JobResult(job, Token(claimed.token + change), AttemptOutcome.OK)
    assert report(client, result, worker=worker).lost == (CallView(claimed.job, claimed.token + change),)
    assert client.jobs.show(job).view.state == "active"


def test_no_answer_shows_the_random_end_of_a_worker_s_id(client: HttpControl, journal: MemoryJournal) -> None:
    (added,) = client.jobs.add([NewJob("work")])
    client.jobs.turn("old-0123456789ab", TurnOrder(("**",), wait_seconds=LONGEST_WAIT_SECONDS))
    with closing(open_job_topic(journal.another_handle())) as topic:
        topic.append(WorkerSeen("new-ba9876543210", 1, ("**",), RULES + 1))
    assert client.jobs.queue("default").older_workers == ("old",)
    assert client.jobs.show(parse_job_id(added.job)).worker == "old"
    paths = ("jobs", f"jobs/{added.job}", "jobs/queues", "jobs/queues/default")
    answers = [httpx2.get(f"{client.url}/api/v1/{path}", verify=False).text for path in paths]
    assert not [text for text in answers if "0123456789ab" in text or "ba9876543210" in text]


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["live", "forgotten"])
def test_requests_in_the_name_of_a_pool_s_member_are_refused(serve: Any, is_forgotten: bool) -> None:
    clock = ManualClock()
    journal = MemoryJournal(clock)
    pool = AgentName("web")
    feed = Feed(pool, 1, Offset(1), LogIdentity("c", "t"), "marker")
    service = JobService(journal.another_handle, clock, random.Random(1))
    with (
        closing(open_job_topic(journal.another_handle())) as topic,
        HttpControl(serve(FakeControl(), UNHURRIED, jobs=service).url) as client,
    ):
        member = LogSource(topic, clock, random.Random(1), NoFailpoints())
        package = NewJob(pool_topic(pool), b"0", "0", lease_ms=600_000)
        topic.append(JobsAdded([package], feed=feed))
        offer = Offer("web-0-0123456789ab", 1, (pool_topic(pool),))
        member.catch_up()
        (call,) = {each.call for _ in range(2) for each in member.poll(offer, 1, (), 0.0).claimed}
        if is_forgotten:
            clock.advance(100.0)
        result = JobResult(call.job, call.token, AttemptOutcome.OK)
        for requested in (
            partial(report, client, result, worker=offer.worker),
            partial(report, client, renewals=(Renewal(call.job, call.token),), worker=offer.worker),
            partial(client.jobs.turn, offer.worker, TurnOrder(("x",))),
            partial(client.jobs.leave, offer.worker),
        ):
            with pytest.raises(UsageError, match="members of shared pools"):
                requested()
        assert client.jobs.show(call.job).view.state == "active"
        assert member.report(offer, [result], []).lost == []


def test_j37_a_second_result_is_refused(client: HttpControl) -> None:
    client.jobs.add([NewJob("work", keep=True)])
    (claimed,) = claim(client).claimed
    result = JobResult(parse_job_id(claimed.job), Token(claimed.token), AttemptOutcome.OK)
    assert report(client, result).lost == ()
    assert report(client, result).lost == (CallView(claimed.job, claimed.token),)


def test_j16_a_stop_reaches_the_worker_once(client: HttpControl) -> None:
    client.jobs.add([NewJob("work")])
    (claimed,) = claim(client).claimed
    job, token = parse_job_id(claimed.job), Token(claimed.token)
    assert client.jobs.command(JobAction.STOP, [job])[0].stop_requested
    told = claim(client, free=0, held=((token, job),))
    assert [each.job for each in told.stopping] == [claimed.job]
    told_of = HeldCall(claimed.job, token, stop_seen=True)
    assert client.jobs.turn(WORKER, TurnOrder(("**",), 4, 0, (told_of,))) == TurnView()
    report(client, JobResult(job, token, AttemptOutcome.FAIL))
    assert client.jobs.show(job).view.state == "stopped"


def test_a_job_goes_on_while_its_agent_is_started_again(journal: MemoryJournal, serve: Any) -> None:
    with HttpControl(serve(FakeControl(), UNHURRIED, jobs=service_of(journal)).url) as before:
        before.jobs.add([NewJob("work", keep=True)])
        (claimed,) = claim(before).claimed
    job, token = parse_job_id(claimed.job), Token(claimed.token)
    with HttpControl(serve(FakeControl(), UNHURRIED, jobs=service_of(journal)).url) as after:
        assert not report(after, renewals=(Renewal(job, token),)).lost
        assert not report(after, JobResult(job, token, AttemptOutcome.OK)).lost
        assert after.jobs.show(job).view.state == "succeeded"


def test_a_worker_that_left_claims_nothing_and_has_given_its_calls_back(client: HttpControl) -> None:
    (added,) = client.jobs.add([NewJob("work")])
    claim(client)  # whose answer was lost
    client.jobs.leave(WORKER)
    assert (client.jobs.show(parse_job_id(added.job)).view.state, client.jobs.queues()[0].active) == ("unassigned", 0)
    client.jobs.add([NewJob("work")])
    assert ask(client, 4) == TurnView()
    assert client.jobs.queues()[0].workers == 0


@pytest.mark.parametrize("free", [-1, 1_000])
def test_any_number_of_free_slots_is_understood(client: HttpControl, free: int) -> None:
    source = HttpSource(client.jobs, SystemClock())
    assert not source.report(Offer(WORKER, 1_000, ("**",)), (), (), free).claimed


class WatchedJobs:
    """The service of jobs, which says how many looks for calls run now."""

    def __init__(self, service: Any) -> None:
        self._service = service
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def poll(self, *arguments: Any) -> Any:
        self.looks += 1  # by one thread at a time: one worker asks
        try:
            return self._service.poll(*arguments)
        finally:
            self.looks -= 1


class StuckJobs:
    """The service of jobs in an outage: each look for calls waits for the brokers."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.entered = threading.Semaphore(0)

    def poll(self, *_: Any) -> Any:
        self.entered.release()
        assert self.released.wait(LONG_WAIT_SECONDS)
        return PollResult()

    def has_left(self, _: str) -> bool:
        return True


def test_workers_that_wait_for_brokers_leave_threads_to_other_requests(serve: Any) -> None:
    jobs = StuckJobs()
    url = serve(FakeControl(), UNHURRIED, jobs=jobs).url
    host, _, port = url.removeprefix("http://").partition(":")
    body = b'{"topics": ["**"], "wait_seconds": 20}'
    head = f"POST /api/v1/jobs/workers/w-1/turns HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
    with ExitStack() as opened:
        opened.callback(jobs.released.set)
        for _ in range(60):  # more than there are threads
            worker = opened.enter_context(socket.create_connection((host, int(port)), PATIENCE_SECONDS))
            worker.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
        for _ in range(MAX_TURNS):
            assert jobs.entered.acquire(timeout=PATIENCE_SECONDS)
        with HttpControl(url) as client:
            assert client.status().publishers
        assert not jobs.entered.acquire(blocking=False), "the others wait without a thread"


def test_nothing_is_claimed_for_a_worker_that_hung_up(journal: MemoryJournal, serve: Any) -> None:
    jobs = WatchedJobs(service_of(journal))
    url = serve(FakeControl(), UNHURRIED, jobs=jobs).url
    host, _, port = url.removeprefix("http://").partition(":")
    with HttpControl(url) as client:
        with socket.create_connection((host, int(port)), PATIENCE_SECONDS) as killed:
            body = b'{"topics": ["**"], "wait_seconds": 20}'
            head = f"POST /api/v1/jobs/workers/killed/turns HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
            killed.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            wait_until(lambda: client.jobs.queues()[0].workers == 1)
            killed.shutdown(socket.SHUT_WR)
            assert killed.recv(1) == b"", "the server closes its end once it has noticed"
        wait_until(lambda: not jobs.looks)  # one that runs now may still claim
        (added,) = client.jobs.add([NewJob("work")])
        ask(client, 0, wait_seconds=0.2)  # longer than the pause between two looks
        assert client.jobs.show(parse_job_id(added.job)).view.state == "queued"


def test_a_renewal_that_does_not_count_is_lost_also_after_a_stop(client: HttpControl) -> None:
    unknown, job = Token(7), parse_job_id("99-0")
    turn = TurnOrder(("**",), 4, 0, (HeldCall("99-0", unknown, stop_seen=True),))
    assert client.jobs.turn(WORKER, turn) == TurnView(), "a poll does not repeat what the worker was told"
    renewed = client.jobs.turn(WORKER, replace(turn, renewals=(RenewalOrder.of(Renewal(job, unknown)),)))
    assert renewed.lost == (CallView("99-0", 7),)


def test_verbs_decide_who_adds_works_and_commands(journal: MemoryJournal, serve: Any, tmp_path: Path) -> None:
    tokens = []
    for verb in Verb:
        file = tmp_path / verb.value
        file.write_text(f"token-{verb.value}")
        tokens.append(TokenConfig(verb.value, Secret(file=str(file)), (verb,)))
    url = serve(FakeControl(), HttpConfig(tokens=tuple(tokens)), jobs=service_of(journal)).url
    calls = {
        Verb.VIEW: ("GET", "/jobs", None),
        Verb.SUBMIT: ("POST", "/jobs", {"jobs": [{"topic": "work"}]}),
        Verb.WORK: ("POST", "/jobs/workers/w/turns", {"topics": ["none"]}),
        Verb.ADMIN: ("POST", "/jobs/queues/default/clear", None),
    }
    for needed, (method, path, body) in calls.items():
        for verb in Verb:
            headers = {"Authorization": f"Bearer token-{verb.value}"}
            place, sent = f"{url}/api/v1{path}", {"json": body, "headers": headers}
            answer = httpx2.request(method, place, **sent, timeout=PATIENCE_SECONDS, verify=False)
            assert (answer.status_code == 403) == (verb not in (needed, Verb.ADMIN)), (path, verb, answer.text)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(json.dumps({"jobs": [{"topic": "work", "data": "x" * 1_048_576}]}), 413, id="1 MB payload"),
        pytest.param(json.dumps({"jobs": [{"topic": "work", "data": "x" * 300_000}]}), 400, id="300 kB payload"),
        pytest.param('{"jobs": [{"topic": "work", "data": ' + "[" * 100_000 + "]" * 100_000 + "}]}", 400, id="deep"),
        pytest.param(json.dumps({"jobs": [{"topic": "work"}] * 257}), 400, id="257 jobs"),
        pytest.param(json.dumps({"jobs": [{"topic": "work", "payload": "?"}]}), 400, id="no Base64"),
        pytest.param(json.dumps({"jobs": [{"topic": "a b"}]}), 400, id="no topic"),
        pytest.param(json.dumps({"jobs": [{"topic": "work", "lease_ms": 1}]}), 400, id="short lease"),
        pytest.param(json.dumps({f"k{n}": 0 for n in range(60_000)}), 400, id="60,000 keys"),
    ],
)
def test_hostile_jobs_are_refused_and_nothing_is_added(client: HttpControl, body: str, status: int) -> None:
    place, headers = f"{client.url}/api/v1/jobs", {"Content-Type": "application/json"}
    answer = httpx2.post(place, content=body, headers=headers, timeout=PATIENCE_SECONDS)
    assert answer.status_code == status, answer.text
    assert client.jobs.list_jobs(JobFilter()).items == ()


def test_commands_print_the_same_for_a_home_and_an_agent(boat: Any, serve: Any) -> None:
    from mailboat.composition.home import Home  # noqa: PLC0415  # for this test only
    from mailboat.composition.workspace import Workspace  # noqa: PLC0415

    boat.do("jobs", "set-queue", "cdn", "--topic", "purge.*", "--rate", "100/1s", "--max-parallel", "50%")
    assert boat.json("jobs", "queues")[0]["parallel_percent"] == 50
    for wrong in ("0%", "101%", "half"):
        assert boat.run("jobs", "set-queue", "cdn", "--max-parallel", wrong).code == 2
    boat.do("jobs", "add", "purge.cdn", "--data", '{"site": "blog"}')
    (added,) = boat.json("jobs", "ls")
    assert 'data       {"site": "blog"}' in boat.do("jobs", "show", added["job"]).out
    with Workspace(Home(boat.home)) as workspace:
        service = JobService(lambda: workspace.journal, SystemClock(), random.Random(1))
        url = serve(FakeControl(), UNHURRIED, jobs=service).url
        boat.do("jobs", "schedule", "nightly", "report", "--cron", "0 3 * * *")
        for words in (
            ("ls",),
            ("queues",),
            ("schedules",),
            ("ls", "--member", "site=blog"),
            ("ls", "--member", "site=x"),
            ("ls", "--older", "1h"),
        ):
            here, there = boat.do("jobs", *words).out, command_at(url, "jobs", *words)
            assert ageless(here) == ageless(there)
        service.close()


def ageless(text: str) -> str:
    """A printed table without its ages, which grow from one command to the next."""
    return re.sub(r" +[\d.]+ m?s +", " 0 s ", text)


def command_at(url: str, *words: str) -> str:
    import contextlib  # noqa: PLC0415
    import io  # noqa: PLC0415

    from mailboat.cli.main import main  # noqa: PLC0415

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["--url", url, *words]) == 0
    return out.getvalue()

"""Requests of the control API: what the client sends is what the server reads, with or without its framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from mailboat.api import job_orders, orders
from mailboat.api.job_orders import (
    JobIds,
    JobOrder,
    JobsOrder,
    QueueOrder,
    RenewalOrder,
    ResultOrder,
    ScheduleOrder,
    TurnOrder,
)
from mailboat.api.operations import read_order
from mailboat.api.orders import (
    ApiOrder,
    DistributionOrder,
    RedriveOrder,
    ResumeOrder,
    SubscriberSuspendOrder,
    TruncateOrder,
)
from mailboat.errors import UsageError
from mailboat.model.jobs import (
    AttemptOutcome,
    JobResult,
    MissedFirings,
    NewJob,
    Priority,
    QueueKind,
    QueueSettings,
    Renewal,
    Schedule,
    Token,
    parse_job_id,
)
from mailboat.model.messages import Action
from mailboat.model.paths import parse_path
from mailboat.model.requests import DistributionRequest
from pydantic import TypeAdapter, ValidationError

JOB = parse_job_id("1042-3")
WORK = NewJob("purge.cdn", b"\x00\xff", "key", Priority.HIGH, 5, 0, 3, 7_000, 9_000, "once", "", keep=True)
QUEUE = QueueSettings("cdn", ("purge.**", "x"), QueueKind.FAIR, 2, 3, 4_000, 5, 600, -1, 7, 8, 9, 50)
RECORDS = [
    each
    for module in (orders, job_orders)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, ApiOrder) and each is not ApiOrder
]


def received(order: ApiOrder) -> Any:
    """What the server's framework makes of what the client sends."""
    return TypeAdapter(type(order)).validate_python(msgspec.json.decode(msgspec.json.encode(order.document())))


def text_of(order: ApiOrder) -> bytes:
    return msgspec.json.encode(order.document())


@pytest.mark.parametrize("job", [WORK, NewJob("work"), WORK._replace(due_ms=0, delay_ms=6, request_id="r-1")])
def test_a_job_arrives_as_it_was_sent(job: NewJob) -> None:
    order = received(JobsOrder((JobOrder.of(job),)))
    assert [each.new_job() for each in order.jobs] == [job]


@pytest.mark.parametrize("settings", [QUEUE, QueueSettings("cdn"), *(QUEUE._replace(kind=kind) for kind in QueueKind)])
def test_a_queue_arrives_as_it_was_sent(settings: QueueSettings) -> None:
    assert received(QueueOrder.of(settings)).settings("cdn") == settings


@pytest.mark.parametrize("missed", MissedFirings)
def test_a_schedule_arrives_as_it_was_sent(missed: MissedFirings) -> None:
    schedule = Schedule("nightly", WORK._replace(due_ms=0), "0 3 * * *", "Europe/Berlin", 0, 0, missed)
    assert received(ScheduleOrder.of(schedule)).schedule("nightly") == schedule


@pytest.mark.parametrize("outcome", AttemptOutcome)
def test_a_turn_arrives_as_it_was_sent(outcome: AttemptOutcome) -> None:
    result, renewal = JobResult(JOB, Token(7), outcome, 1_500, "late"), Renewal(JOB, Token(8), b"half")
    turn = TurnOrder(("**",), results=(ResultOrder.of(result),), renewals=(RenewalOrder.of(renewal),), ending=True)
    order = received(turn)
    assert order == turn
    assert ([each.result() for each in order.results], [each.renewal() for each in order.renewals]) == (
        [result],
        [renewal],
    )


def test_ids_of_jobs_arrive_as_they_were_sent() -> None:
    assert received(JobIds.of([JOB])).parsed() == [JOB]


def test_a_publish_request_arrives_as_it_was_sent() -> None:
    path = parse_path("/news")
    order = DistributionOrder.of(DistributionRequest(Action.ADD, (path,), frozenset({path}), user_id="editor"))
    assert received(order) == order == DistributionOrder("ADD", ("/news",), ("/news",), user_id="editor")


def test_defaults_of_a_queue_are_the_same_over_http() -> None:
    assert QueueOrder().settings("cdn") == QueueSettings("cdn")
    assert JobOrder("work").new_job() == NewJob("work")


@pytest.mark.parametrize(
    ("order", "document"),
    [
        (SubscriberSuspendOrder(), {}),
        (TruncateOrder(7), {"before": 7}),
        (TruncateOrder(0, dry_run=False), {"before": 0, "dry_run": False}),
        (JobsOrder((JobOrder("work", key="k"),)), {"jobs": [{"topic": "work", "key": "k"}]}),
    ],
)
def test_members_with_their_defaults_are_not_sent(order: ApiOrder, document: Mapping[str, Any]) -> None:
    assert order.document() == document


@pytest.mark.parametrize("record", RECORDS)
def test_unknown_members_are_refused_by_both_servers(record: type[ApiOrder]) -> None:
    with pytest.raises(UsageError, match=r"body\.unknwon: there is no such member"):
        read_order(record, b'{"unknwon": 1}')
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(record).validate_python({"unknwon": 1})
    assert "unexpected_keyword_argument" in {fault["type"] for fault in caught.value.errors()}


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        (RedriveOrder("edge", (-1,)), "greater than or equal to 0"),
        (RedriveOrder("edge", (0,) * 1_001), "at most 1000 items"),
        (RedriveOrder("e" * 201, (0,)), "at most 200 characters"),
        (ResumeOrder(61.0), "less than or equal to 60"),
        (SubscriberSuspendOrder(0.5), "greater than or equal to 1"),
        (QueueOrder(rate=True), "valid integer"),
        (JobsOrder(()), "at least 1 item"),
    ],
)
def test_constraints_of_a_member_are_checked_by_the_framework(order: ApiOrder, fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TypeAdapter(type(order)).validate_python(vars(order))


@pytest.mark.parametrize("order", [SubscriberSuspendOrder(60.0, 1.0), RedriveOrder("edge", (0, 7)), TruncateOrder(3)])
def test_both_servers_read_the_same_of_a_request(order: ApiOrder) -> None:
    assert read_order(type(order), text_of(order)) == received(order) == order


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b'{"subscriber": 1, "offsets": [0]}', "body.subscriber: Expected `str`, got `int`"),
        (b'{"subscriber": "edge", "offsets": [true]}', "body.offsets[0]: Expected `int`, got `bool`"),
        (b'{"subscriber": "edge"}', "body: Object missing required field `offsets`"),
        (b"[]", "body: Expected `object`, got `array`"),
        (b"[" * 100_000, "body: "),
    ],
)
def test_a_body_of_other_types_is_refused_with_the_place(text: bytes, fault: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_order(RedriveOrder, text)
    assert caught.value.message.startswith(fault)

"""JobQueues and JobSchedules with a real API server and a real agent."""

from __future__ import annotations

from http import HTTPStatus

import httpx2
import pytest
from mailboat.errors import ClusterRefusedError
from mailboat.testing.wait import PATIENCE_SECONDS
from support.operator_harbour import Harbour

PUBLISHER_REF = {"publisherRef": {"name": "author"}}
QUEUE = {
    **PUBLISHER_REF,
    "topics": ["purge.*"],
    "maxParallel": 2,
    "reclaimPolicy": "Delete",
    "workers": {
        "tokenSecretRef": {"name": "workers"},
        "handlers": [{"topics": "purge.*", "command": "true"}],
        "max": 3,
    },
}
SCHEDULE = {**PUBLISHER_REF, "topic": "report.build", "every": "1h"}


def names(harbour: Harbour, what: str) -> list[str]:
    return [item[what.removesuffix("s")] for item in harbour.ask(f"jobs/{what}")]


def is_there(harbour: Harbour, kind: str, name: str, root: str) -> bool:
    return harbour.http.get(harbour.path(kind, name, root)).status_code == HTTPStatus.OK


def add_job(harbour: Harbour) -> None:
    order = {"jobs": [{"topic": "purge.cdn", "data": {}}]}
    headers = {"Authorization": f"Bearer {harbour.token}"}
    with httpx2.Client(headers=headers, timeout=PATIENCE_SECONDS, trust_env=False, verify=False) as http:
        http.post(f"{harbour.url}/api/v1/jobs", json=order).raise_for_status()


def change_workers(harbour: Harbour, **change: object) -> None:
    harbour.patch(harbour.path("JobQueue", "cdn"), {"spec": {"workers": change}})


def workers_of(harbour: Harbour) -> int:
    found = harbour.http.get(harbour.path("deployment", "cdn-workers", "apis/apps/v1")).raise_for_status()
    return int(found.json()["spec"]["replicas"])


def delete(harbour: Harbour, kind: str, name: str) -> None:
    harbour.http.delete(harbour.path(kind, name)).raise_for_status()
    harbour.reconcile(kind, name)
    assert harbour.http.get(harbour.path(kind, name)).status_code == HTTPStatus.NOT_FOUND


def test_queues_and_schedules_of_jobs_reach_the_journal_and_leave_it_again(harbour: Harbour) -> None:
    secret = {"metadata": {"name": "workers"}, "stringData": {"token": "t"}}
    harbour.http.post(harbour.path("secret", "", "api/v1"), json=secret).raise_for_status()
    harbour.make("JobQueue", "cdn", QUEUE)
    harbour.make("JobSchedule", "nightly", SCHEDULE)
    harbour.reconcile("JobQueue", "cdn")
    assert harbour.condition("JobQueue", "cdn") == ("False", "AgentUnreachable")
    harbour.run_author()
    for kind, name in (("JobQueue", "cdn"), ("JobSchedule", "nightly")):
        harbour.reconcile(kind, name)
        harbour.reconcile(kind, name)
    assert (names(harbour, "queues"), names(harbour, "schedules")) == (["cdn", "default"], ["nightly"])
    assert harbour.ask("jobs/queues/cdn")["max_parallel"] == 2
    assert is_there(harbour, "deployment", "cdn-workers", "apis/apps/v1")
    assert is_there(harbour, "horizontalpodautoscaler", "cdn-workers", "apis/autoscaling/v2")
    assert (harbour.condition("JobSchedule", "nightly"), harbour.condition("JobQueue", "cdn", "TopicsDistinct")) == (
        ("True", "AsSpecified"),
        ("True", "NoOverlap"),
    )
    add_job(harbour)
    harbour.reconcile("JobQueue", "cdn")
    found = harbour.status("JobQueue", "cdn")
    assert (found["queued"], found["due"], found["active"]) == (1, 1, 0)
    assert "nextAt" in harbour.status("JobSchedule", "nightly")
    change_workers(harbour, env=[{"name": "MAILBOAT_URL", "value": "http://elsewhere"}])
    with pytest.raises(ClusterRefusedError, match="duplicate entries"):  # a variable that the operator sets, too
        harbour.reconcile("JobQueue", "cdn")
    change_workers(harbour, env=None, min=2)
    harbour.reconcile("JobQueue", "cdn")
    assert workers_of(harbour) == 2
    change_workers(harbour, min=0)
    harbour.reconcile("JobQueue", "cdn")
    assert workers_of(harbour) == 2, "the number stays when an autoscaler takes over"
    delete(harbour, "JobQueue", "cdn")
    delete(harbour, "JobSchedule", "nightly")
    assert (names(harbour, "queues"), names(harbour, "schedules")) == (["default"], [])

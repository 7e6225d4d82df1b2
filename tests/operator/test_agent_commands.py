"""What the operator's pods run is what the command line of the agent's image takes: arguments and variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import pytest
import typer
from mailboat.cli.program import build_app
from mailboat.composition.environment import HOME_VARIABLE, TOKEN_VARIABLE, URL_VARIABLE, VERBOSE_VARIABLE
from mailboat_operator.kinds.job_queue.manifests import queue_children
from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.package_build.manifests import SparkRun, apache_application, kubeflow_application
from mailboat_operator.kinds.publisher.plan import plan_publisher
from mailboat_operator.kinds.registry import decode
from mailboat_operator.kinds.subscriber_pool.plan import plan_pool
from mailboat_operator.kinds.workload_context import SecretFound, WorkloadContext
from mailboat_operator.plan.actions import Apply
from mailboat_operator.workload.agent_manifests import AgentPolicy
from mailboat_operator.workload.pods import AgentImage

NOW: Final = datetime(2026, 11, 27, tzinfo=UTC)
IMAGE: Final = AgentImage("mailboat:1")
VARIABLES: Final = {HOME_VARIABLE, VERBOSE_VARIABLE, URL_VARIABLE, TOKEN_VARIABLE}
STORE: Final = {"volume": {"size": "5Gi"}}
SHARED: Final = {
    "target": {"generations": None, "files": {"claim": {"name": "content"}}},
    "delivery": "shared",
    "autoscaling": None,
}
Argued = tuple[Sequence[str], Mapping[str, Any]]
"""Arguments of a container, and its variables by name."""


@pytest.fixture
def stored(manifest_of: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """An object as it would be read from the API server, after a change of the accepted manifest of its kind."""

    def read(kind: str, change: Any = None) -> Any:
        manifest = manifest_of(kind, change)
        metadata = {**manifest["metadata"], "namespace": "shop", "uid": "0-1-2-3", "generation": 1}
        return decode({**manifest, "metadata": metadata})

    return read


def argued(pod: Mapping[str, Any]) -> Iterator[Argued]:
    """The containers of a pod that run the agent's image by its own command line."""
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        if container["image"] == IMAGE.name and "args" in container:
            yield container["args"], {each["name"]: each for each in container.get("env", ())}


@pytest.fixture
def context(stored: Any) -> WorkloadContext:
    journal = stored("Journal")
    secrets = {mount.secret: SecretFound("7", frozenset(mount.keys)) for mount in journal_mounts(journal.spec)}
    claim = {"metadata": {"name": "content"}, "spec": {"accessModes": ["ReadWriteMany"]}}
    return WorkloadContext(journal, secrets, {}, IMAGE, NOW, shared_claim=claim)


def workloads(plan: Any) -> Iterator[Argued]:
    """The containers of the StatefulSet that a plan applies."""
    made = [action.manifest for action in plan.actions if isinstance(action, Apply)]
    (workload,) = [manifest for manifest in made if manifest["kind"] == "StatefulSet"]
    yield from argued(workload["spec"]["template"]["spec"])


@cache
def application() -> Any:
    """The program with all its commands."""
    return typer.main.get_command(build_app())


def parse(arguments: Sequence[str]) -> str:
    """The path of the command that the arguments lead to. Raises: as the program for what it does not know."""
    context = application().make_context("mailboat", list(arguments))
    while hasattr(context.command, "commands"):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
    path: str = context.command_path
    return path


def check(found: Sequence[Argued], commands: Sequence[str]) -> None:
    assert [parse(arguments) for arguments, _ in found] == [f"mailboat {command}" for command in commands]
    for arguments, variables in found:
        own = {name for name in variables if name.startswith("MAILBOAT_")}
        assert own <= VARIABLES, f"the program does not read {sorted(own - VARIABLES)}"
        unused = [name for name in variables.keys() - own if not any(f"$({name})" in word for word in arguments)]
        assert not unused, f"no argument takes {unused}"


def test_the_command_of_a_publisher_is_known(stored: Any, context: WorkloadContext) -> None:
    publisher = stored("Publisher", {"image": None})
    check(list(workloads(plan_publisher(publisher, context))), ["agent run"])


@pytest.mark.parametrize(
    ("change", "commands"),
    [
        ({}, ["agent run"]),
        (
            {"target": {"generations": None, "files": STORE}, "seed": {"snapshot": "e"}},
            ["content restore", "agent run"],
        ),
        (SHARED, ["agent run"]),
    ],
    ids=["broadcast", "seeded", "shared"],
)
def test_the_commands_of_a_pool_are_known(
    change: Any, commands: Sequence[str], stored: Any, context: WorkloadContext
) -> None:
    check(list(workloads(plan_pool(stored("SubscriberPool", change), context))), commands)


def test_the_command_of_job_workers_is_known(stored: Any) -> None:
    handlers = [{"topics": "purge.*", "command": "./purge"}]
    queue = stored("JobQueue", {"workers": {"image": None, "handlers": handlers, "modules": ["shop.jobs"], "env": []}})
    made = queue_children(queue, queue.spec.workers, IMAGE, "7", has_keda=False, policy=AgentPolicy())
    (workload,) = [manifest for manifest in made if manifest["kind"] == "Deployment"]
    check(list(argued(workload["spec"]["template"]["spec"])), ["worker run"])


@pytest.mark.parametrize("allow_unreadable", [False, True])
def test_the_command_of_a_build_is_known(stored: Any, *, allow_unreadable: bool) -> None:
    publisher, journal = stored("Publisher"), stored("Journal")
    build = stored("PackageBuild", {"allowUnreadable": allow_unreadable})
    run = SparkRun(build, 1, publisher, journal.spec, publisher.spec.source, IMAGE)
    arguments = [
        kubeflow_application(run)["spec"]["arguments"],
        apache_application(run)["spec"]["driverArgs"],
    ]
    check([(words, {}) for words in arguments], ["bulk build", "bulk build"])
    assert ["--allow-unreadable" in words for words in arguments] == [allow_unreadable] * 2


@pytest.mark.parametrize(
    "arguments",
    [["agent", "run", "--subscribr", "edge-0"], ["agent", "start"], ["content", "restore", "blob:edge", "--sead"]],
)
def test_an_unknown_argument_is_noticed(arguments: Sequence[str]) -> None:
    with pytest.raises(typer.TyperException):
        parse(arguments)


def test_an_unknown_variable_is_noticed() -> None:
    with pytest.raises(AssertionError, match="MAILBOAT_HOMES"):
        check([(["status"], {"MAILBOAT_HOMES": {}})], ["status"])
    with pytest.raises(AssertionError, match="no argument takes"):
        check([(["status"], {"POD_NAME": {}})], ["status"])

"""Shares slow servers: one of each kind for a run, checked before each test that uses it, and started with time.

Workers share nothing, so `--dist loadgroup` gives all tests of a server to one worker: a server ends with its worker,
and a worker that takes its place starts another. Tests that use no server stay together by file. Which comes first is
decided by how long it takes, so that no worker waits for the other at the end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest
import pytest_timeout

SERVERS = ("spark", "api_server", "kafka_broker", "sling_process", "jackrabbit_process", "s3_server")
"""Fixtures in the order in which their tests begin; a test of several belongs to the first."""
CHECKED = tuple(name for name in SERVERS if name != "spark")
FOLDERS = ("operator", "faults", "integration", "contract", "golden", "fuzz", "repo", "unit")
SETUP_SECONDS = 300.0
"""Limit of a test's fixtures, which may start servers; the limit of a test, `timeout`, is for the test alone."""


class Server(Protocol):
    """What a shared server can do."""

    def ensure_running(self) -> None:
        """Start it, unless it runs. Raises: whatever keeps it from starting."""


@pytest.fixture(autouse=True)
def _running_servers(request: pytest.FixtureRequest) -> None:
    """Start a shared server again that another test left dead."""
    for name in CHECKED:
        if name in request.fixturenames:
            server: Server = request.getfixturevalue(name)
            server.ensure_running()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the group of each test, and order the groups, where several workers share the tests."""
    if not config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group_of(item)))
    items.sort(key=_rank_of)


def _group_of(item: pytest.Item) -> str:
    """The server, and where its fixture is defined; else the file."""
    known = getattr(item, "_fixtureinfo", None)
    for name in SERVERS:
        definitions = () if known is None else known.name2fixturedefs.get(name, ())
        if definitions and definitions[-1].scope == "session":
            return f"{name}:{definitions[-1].baseid}"
    return item.nodeid.partition("::")[0]


def _rank_of(item: pytest.Item) -> tuple[int, int, str]:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    group = str(mark.args[0])
    server = group.partition(":")[0]
    folder = next((one for one in FOLDERS if f"tests/{one}/" in item.nodeid), FOLDERS[0])
    if server in SERVERS:
        return SERVERS.index(server), 0, group
    return len(SERVERS), FOLDERS.index(folder), group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the set-up."""
    with _limited(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the end."""
    with _limited(item):
        return (yield)


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """Break fixtures off that hang; `--timeout 0` is without limits."""
    settings = pytest_timeout.get_env_settings(item.config)
    if not settings.timeout:
        yield
        return
    hooks = item.config.hook
    hooks.pytest_timeout_set_timer(item=item, settings=settings._replace(timeout=SETUP_SECONDS))
    try:
        yield
    finally:
        hooks.pytest_timeout_cancel_timer(item=item)

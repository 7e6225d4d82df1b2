"""Shares slow servers: one of each kind for a run (three API servers), checked before each test, and started with time.

Workers share nothing, so `--dist loadgroup` gives all tests of a server to one worker: a server ends with its worker,
and a worker that takes its place starts another. Tests that use no server stay together by file. Which comes first is
decided by how long it takes, so that no worker waits for the other at the end.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pytest
import pytest_timeout
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SERVERS = (
    "spark",
    "spare_api_server",
    "api_server",
    "kafka_broker",
    "sling_process",
    "jackrabbit_process",
    "s3_server",
)
"""Fixtures in the order in which their tests begin; a test of several belongs to the first."""
CHECKED = tuple(name for name in SERVERS if name != "spark")
RESTED = ("spare_api_server", "api_server", "kafka_broker")
"""They compute while nothing is asked: two to four CPU seconds in a hundred seconds."""
APART = "replicas"
"""Tests of this fixture use the API server of another worker: all tests of one server would take longer than the rest
of the suite on the other workers, and a second server costs 4 CPU seconds."""
FOLDERS = ("operator", "faults", "integration", "contract", "golden", "fuzz", "repo", "unit")
SETUP_SECONDS = 300.0
"""Limit of a test's fixtures, which may start servers, unless the mark `timeout` of the test allows more."""


AWAKE = pytest.StashKey[dict[str, "Server"]]()


class Server(Protocol):
    """What a shared server can do."""

    def ensure_running(self) -> None:
        """Start it, unless it runs. Raises: whatever keeps it from starting."""

    def rest(self) -> None:
        """Use no CPU until `ensure_running`. Of the servers in `RESTED` alone."""


@pytest.fixture(autouse=True)
def _running_servers(request: pytest.FixtureRequest) -> None:
    """Start a shared server again that another test left dead."""
    for name in CHECKED:
        if name in request.fixturenames or name in _marked(request.node):
            server: Server = request.getfixturevalue(name)
            server.ensure_running()
            if name in RESTED and _shared(request.node, name) is not None:
                request.config.stash.setdefault(AWAKE, {})[name] = server


class GroupScheduling(LoadScopeScheduling):
    """Gives a group of tests to one worker, and the groups in the order in which the workers collected them.

    xdist's own `loadgroup` writes the group into a private attribute of a test, which pytest 9.2 no longer reads.
    """

    def __init__(self, config: pytest.Config, log: Producer | None, file: Path) -> None:
        super().__init__(config, log)
        self.file = file

    @cached_property
    def groups(self) -> dict[str, str]:
        """What the workers wrote: the group of each test."""
        return dict(json.loads(self.file.read_text()))

    def _split_scope(self, nodeid: str) -> str:
        return self.groups[nodeid]


class Controller:
    """Reads the groups of the tests from a file, since only workers collect."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "groups.json"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["groups"] = str(self.file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
        return GroupScheduling(config, log, self.file) if config.getoption("dist") == "loadgroup" else None

    def pytest_unconfigure(self) -> None:
        shutil.rmtree(self.file.parent)


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the controller of a run with workers."""
    config.addinivalue_line(
        "markers", "server(fixture): asks for this shared server by name; of a parameter, as a rule"
    )
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(Controller(Path(tempfile.mkdtemp(prefix="mailboat-groups-"))), "groups")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the groups, where several workers share the tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=_rank_of)


@pytest.hookimpl(tryfirst=True)  # before xdist tells the controller that all is collected
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tell the controller the groups; all workers write the same."""
    given = getattr(session.config, "workerinput", {})
    if "groups" in given:
        draft = Path(f"{given['groups']}-{given['workerid']}")
        draft.write_text(json.dumps({item.nodeid: _group_of(item) for item in session.items}))
        draft.replace(given["groups"])


def _group_of(item: pytest.Item) -> str:
    """The server, and where its fixture is defined; else the file, unless a marker `xdist_group` says otherwise."""
    mark = item.get_closest_marker("xdist_group")
    if mark is not None:
        return str(mark.args[0])
    for name in SERVERS:
        definition = _shared(item, name)
        if definition is not None:
            is_apart = name == "api_server" and APART in item._fixtureinfo.name2fixturedefs
            return f"{name}:{APART if is_apart else definition.baseid}"
    return item.nodeid.partition("::")[0]


def _shared(item: pytest.Item, name: str) -> Any:
    """The definition of a fixture that the test uses and that lives for the whole run; None if it does not."""
    known = getattr(item, "_fixtureinfo", None)
    definitions = () if known is None else known.name2fixturedefs.get(name, ())
    if name in _marked(item):
        definitions = item.session._fixturemanager.getfixturedefs(name, item) or ()
    return definitions[-1] if definitions and definitions[-1].scope == "session" else None


def _marked(item: pytest.Item) -> set[str]:
    """The servers that a test asks for by name."""
    return {mark.args[0] for mark in item.iter_markers("server")}


def _rank_of(item: pytest.Item) -> tuple[int, int, str]:
    group = _group_of(item)
    server = group.partition(":")[0]
    folder = next((folder for folder in FOLDERS if f"tests/{folder}/" in item.nodeid), FOLDERS[0])
    if server in SERVERS:
        return SERVERS.index(server), 0, group
    return len(SERVERS), FOLDERS.index(folder), group


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Limit the set-up."""
    with _limited(item):
        return (yield)


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Refuse to start a server in a worker that does not run its tests. Raises: AssertionError."""
    item = request._pyfuncitem
    if fixturedef.argname in SERVERS and fixturedef.scope == "session":
        name = fixturedef.argname
        assert _shared(item, name), (
            f"{item.nodeid} asks for {name} by name: mark it server({name!r}), see CONTRIBUTING.md"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Limit the end. After the last test of a group let its servers rest; the end of the run ends them anyway."""
    with _limited(item):
        result = yield
    if hasattr(item.config, "workerinput") and nextitem is not None and _group_of(item) != _group_of(nextitem):
        awake = item.config.stash.setdefault(AWAKE, {})
        for server in awake.values():
            server.rest()
        awake.clear()
    return result


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """Break fixtures off that hang; `--timeout 0` is without limits."""
    settings = pytest_timeout.get_env_settings(item.config)
    if not settings.timeout:
        yield
        return
    hooks = item.config.hook
    marked = item.get_closest_marker("timeout")
    seconds = max(SETUP_SECONDS, *marked.args) if marked else SETUP_SECONDS
    hooks.pytest_timeout_set_timer(item=item, settings=settings._replace(timeout=seconds))
    try:
        yield
    finally:
        hooks.pytest_timeout_cancel_timer(item=item)

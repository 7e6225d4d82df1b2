"""How far subscribers are with bulk builds, as `status` tells it, and how builds are asked to be shown as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from mailboat.cli.main import main
from mailboat.composition.home import Home, create_home
from mailboat.composition.workspace import Workspace, initialise
from mailboat.config.document import Config
from mailboat.control import builds
from mailboat.control.builds import SEARCHED_RECORDS
from mailboat.control.service import ControlService
from mailboat.journal.port import NewRecord
from mailboat.model.identifiers import AgentName, Offset, SlingId
from mailboat.model.messages import DiscoveryMessage, Message, SubscriberState, TopicRole
from mailboat.wire.messages import encode_message
from support.exposure_scenario import Step, build_of, digest_of_files, digest_seen, message_of

AUTHOR, OTHER = AgentName("author"), AgentName("other")
INSTANCE = SlingId("5a1e0000-0000-4000-8000-000000000001")
FIVE = build_of("release-42", "a", "b", "c", "d", "e")


class Log:
    """A home whose log a test writes."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def publish(self, *steps: Step) -> None:
        for step in steps:
            self._append(TopicRole.PACKAGE, message_of(step))

    def announce(self, next_offset: int, name: str = "edge", publisher: AgentName = AUTHOR) -> None:
        state = SubscriberState(publisher, next_offset - 1, 0)
        position = Offset(next_offset)
        message = DiscoveryMessage(INSTANCE, AgentName(name), (state,), state="importing", next_offset=position)
        self._append(TopicRole.DISCOVERY, message)

    def progress(self, service: ControlService, name: str = "edge") -> tuple[str, int, int] | None:
        (found,) = [subscriber.build for subscriber in service.status().subscribers if subscriber.name == name]
        return None if found is None else (found.build_id, found.imported, found.total)

    def _append(self, role: TopicRole, message: Message) -> None:
        headers, value = encode_message(message)
        self.workspace.journal.append(self.workspace.topic(role), [NewRecord(value, headers)])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = create_home(tmp_path / "home", Config())
    initialise(home).__exit__(None, None, None)
    return home


@pytest.fixture
def log(home: Home) -> Iterator[Log]:
    with Workspace(home) as workspace:
        yield Log(workspace)


@pytest.fixture
def service(log: Log) -> Iterator[ControlService]:
    service = ControlService(log.workspace)
    yield service
    service.close()


def test_a_subscriber_in_the_middle_of_a_build_says_how_far_it_is(log: Log, service: ControlService) -> None:
    log.publish(Step("before"), *FIVE)
    for position, expected in ((1, None), (2, 1), (5, 4), (6, None)):
        log.announce(position)
        assert log.progress(service) == (None if expected is None else ("release-42", expected, 5))


def test_packages_between_those_of_a_build_do_not_hide_it(log: Log, service: ControlService) -> None:
    log.publish(FIVE[0], *(Step(str(number)) for number in range(SEARCHED_RECORDS)))
    log.announce(SEARCHED_RECORDS)
    assert log.progress(service) == ("release-42", 1, 5)
    log.announce(SEARCHED_RECORDS + 1)
    assert log.progress(service) is None


def test_who_does_not_follow_the_publisher_is_in_no_build_of_it(log: Log, service: ControlService) -> None:
    log.publish(*FIVE[:3])
    log.announce(3)
    log.announce(3, "else", OTHER)
    assert (log.progress(service), log.progress(service, "else")) == (("release-42", 3, 5), None)


def test_a_position_outside_of_the_log_is_in_no_build(log: Log, service: ControlService) -> None:
    log.publish(*FIVE[:3])
    log.announce(17)
    assert log.progress(service) is None


def test_few_positions_are_looked_up_at_once_and_those_of_most_first(
    log: Log, service: ControlService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "MAX_LOOKS", 1)
    log.publish(*FIVE)
    log.announce(1, "alone")
    for name in ("one", "two"):
        log.announce(3, name)
    first = {subscriber.name: subscriber.build for subscriber in service.status().subscribers}
    assert first["alone"] is None
    assert asdict(first["one"]) == asdict(first["two"]) == {"build_id": "release-42", "imported": 3, "total": 5}  # type: ignore[arg-type]
    assert log.progress(service, "alone") == ("release-42", 1, 5)


@pytest.fixture
def run(home: Home, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run_command(*arguments: str) -> tuple[int, str, str]:
        code = main(["--home", str(home.path), *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run_command


@pytest.mark.parametrize("target", ["files:{}/web", "sqlite:{}/web.db"])
def test_builds_as_a_whole_are_refused_where_every_package_is_shown(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, target: str
) -> None:
    into = target.format(tmp_path)
    code, _, said = run("subscribe", "web", "--into", into, "--expose", "build", "--until", "caught-up")
    assert code == 2
    assert f"web can't expose builds as a whole: {into.partition(':')[0]}: targets show every package" in said
    assert "generations:DIR" in said
    assert not Path(into.partition(":")[2]).exists()


def test_a_subscriber_remembers_that_it_shows_builds_as_a_whole(
    log: Log, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    target = tmp_path / "web"
    log.publish(*FIVE[:2])
    code, said, _ = run(
        *("subscribe", "web", "--into", f"generations:{target}", "--expose", "build", "--until", "caught-up"),
        *("-o", "json"),
    )
    last = json.loads(said.splitlines()[-1])
    assert (code, last["imported"], last["held_back"]) == (0, 2, 1)
    assert last["build"] == {"id": "release-42", "imported": 2, "total": 5}
    log.publish(FIVE[2])
    assert run("subscribe", "web", "--until", "caught-up")[0] == 0
    assert digest_seen(target) == digest_of_files({})
    _, status, _ = run("status")
    assert "release-42, 3 of 5" in status
    log.publish(*FIVE[3:])
    assert run("subscribe", "web", "--until", "caught-up")[0] == 0
    assert digest_seen(target) == digest_of_files(dict.fromkeys("abcde", "release-42"))
    assert "release-42" not in run("status")[1]


def test_builds_are_shown_at_once_when_packages_are_asked_for_again(
    log: Log, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    target = tmp_path / "web"
    log.publish(*FIVE[:2])
    run("subscribe", "web", "--into", f"generations:{target}", "--expose", "build", "--until", "caught-up")
    run("subscribe", "web", "--expose", "package", "--until", "caught-up")
    assert digest_seen(target) == digest_of_files(dict.fromkeys("ab", "release-42"))


def test_a_configuration_says_which_target_can_not_show_builds_as_a_whole(
    home: Home, run: Callable[..., tuple[int, str, str]]
) -> None:
    agents = "agents: {subscribers: [{name: a, target: 'files:a'}, {name: b, target: 'generations:b'}]}"
    (home.path / "mailboat.yaml").write_text(f"subscriber: {{expose: build}}\n{agents}\n")
    code, out, said = run("config", "check")
    assert code != 0
    assert "agents.subscribers[0].expose" in out + said
    assert "agents.subscribers[1].expose" not in out + said

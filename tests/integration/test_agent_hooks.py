"""Hooks that are commands: told of the package on standard input, ended in time, and their failures told."""

from __future__ import annotations

import contextlib
import errno
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import pytest
from mailboat.agent.command_hooks import CommandHook, Hooks, HookWatch
from mailboat.clock import Deadline, SystemClock
from mailboat.config.document import HooksConfig, SubscriberConfig
from mailboat.errors import ProcessorFailedError, RetryableError, StorageFullError
from mailboat.model.identifiers import AgentName, Offset, PackageId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.subscriber.admission import StopAskedError
from mailboat.subscriber.failures import TryAgain, decide_retry
from mailboat.subscriber.subscriber_settings import ProcessedPackage
from mailboat.testing.wait import PATIENCE_SECONDS, wait_until

EDGE = AgentName("edge")
CLOCK = SystemClock()
PACKAGE = ProcessedPackage(
    Offset(7),
    PackageId("p7"),
    "tree",
    Action.ADD,
    AgentName("author"),
    (NodePath("/sité"), NodePath("/a b")),
    (NodePath("/a b"),),
)


def python(code: str, *arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code, *map(str, arguments))


def hook(code: str, *arguments: object, seconds: float = 30.0) -> CommandHook:
    return CommandHook(python(code, *arguments), EDGE, seconds, CLOCK)


def test_a_command_is_told_of_the_package_as_one_json_object(tmp_path: Path) -> None:
    hook("import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())", tmp_path / "told").process(PACKAGE)
    told = (tmp_path / "told").read_bytes()
    assert told.endswith(b"}\n")
    assert json.loads(told) == {
        "subscriber": "edge",
        "publisher": "author",
        "offset": 7,
        "package_id": "p7",
        "package_type": "tree",
        "action": "ADD",
        "paths": ["/sité", "/a b"],
        "deep_paths": ["/a b"],
    }


def test_arguments_are_given_as_they_are_and_no_shell_looks_at_them(tmp_path: Path) -> None:
    nasty = f"$(touch {tmp_path / 'touched'}); `id` * | cat"
    hook("import sys; open(sys.argv[1], 'w').write(sys.argv[2])", tmp_path / "given", nasty).process(PACKAGE)
    assert (tmp_path / "given").read_text() == nasty
    assert not (tmp_path / "touched").exists()


def test_a_command_need_not_read_what_it_is_told() -> None:
    many = PACKAGE.__class__(
        PACKAGE.offset,
        PACKAGE.package_id,
        "tree",
        Action.DELETE,
        None,
        tuple(NodePath(f"/page-{number}") for number in range(20_000)),
        (),
    )
    hook("pass").process(many)


def test_a_command_that_fails_says_so_with_its_last_line() -> None:
    failing = hook("import sys; print('first'); print('cache is down', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ProcessorFailedError, match="ended with the exit code 3: cache is down") as caught:
        failing.process(PACKAGE)
    assert (caught.value.where["package"], caught.value.where["offset"]) == ("p7", 7)


def test_a_command_that_fails_in_silence_or_prints_without_end_is_told_in_few_words() -> None:
    with pytest.raises(ProcessorFailedError, match=r"exit code 1 "):
        hook("import sys; sys.exit(1)").process(PACKAGE)
    with pytest.raises(ProcessorFailedError) as caught:
        hook("import sys; print('x' * 3_000_000); sys.exit(1)").process(PACKAGE)
    assert len(caught.value.message) < 500


def test_a_command_that_is_not_there_is_a_failure() -> None:
    with pytest.raises(ProcessorFailedError, match="can't be started: No such file"):
        CommandHook(("/no/such/command",), EDGE, 1.0, CLOCK).process(PACKAGE)


def test_a_machine_without_room_for_hooks_costs_a_package_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def without_processes(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", without_processes)
        with pytest.raises(RetryableError, match="can't be started now: Resource temporarily unavailable") as caught:
            hook("pass").process(PACKAGE)
    decision = decide_retry(caught.value, 99, SubscriberConfig(max_retries=1), Random(1))
    assert isinstance(decision, TryAgain)
    assert not decision.is_counted
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageFullError, match="temporary files: No space left"):
        hook("pass").process(PACKAGE)


class ClockOfFile(SystemClock):
    """Stands still until a file is there; then an hour has passed."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def monotonic(self) -> float:
        return 3600.0 if self._file.exists() else 0.0


def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
        "open(sys.argv[1] + '.new', 'w').write(str(child.pid));"
        "import os; os.rename(sys.argv[1] + '.new', sys.argv[1]); time.sleep(600)"
    )
    started = tmp_path / "child"
    slow = CommandHook(python(code, started), EDGE, 3.0, ClockOfFile(started))
    with pytest.raises(ProcessorFailedError, match="took longer than 3 seconds"):
        slow.process(PACKAGE)
    child = int(started.read_text())
    wait_until(lambda: not is_running(child))


def test_a_command_that_fails_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)']);"
        "open(sys.argv[1], 'w').write(str(child.pid)); sys.exit(1)"
    )
    with pytest.raises(ProcessorFailedError, match="ended with the exit code 1"):
        hook(code, tmp_path / "child").process(PACKAGE)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))


def is_running(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_command_does_not_outlive_the_time_to_stop() -> None:
    slow = hook("import time; time.sleep(600)", seconds=600.0)
    slow.stop(Deadline(CLOCK, 0.0))
    began = time.monotonic()
    with pytest.raises(StopAskedError):
        slow.process(PACKAGE)
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_command_that_ends_in_the_time_to_stop_has_succeeded() -> None:
    quick = hook("pass", seconds=600.0)
    quick.stop(Deadline(CLOCK, 30.0))
    quick.process(PACKAGE)


def test_only_what_is_configured_is_a_hook() -> None:
    none = Hooks(HooksConfig(), EDGE, CLOCK).processors
    assert (none.before, none.after, none.invalidate) == (None, None, None)
    hooks = Hooks(HooksConfig(invalidate=python("raise SystemExit(4)"), timeout_seconds=30.0), EDGE, CLOCK)
    hooks.stop(Deadline(CLOCK, 30.0))
    assert hooks.processors.before is None
    assert hooks.processors.invalidate is not None
    with pytest.raises(ProcessorFailedError, match="exit code 4"):
        hooks.processors.invalidate.process(PACKAGE)
    hooks.close()


_KILLED = """
import sys
from mailboat.agent.command_hooks import HookWatch
from mailboat.agent.command_hooks import Hooks
from mailboat.clock import SystemClock
from mailboat.config.document import HooksConfig
from mailboat.model.identifiers import AgentName
sys.path.insert(0, sys.argv[1])
from test_agent_hooks import PACKAGE, python
code = "import os, subprocess, sys, time; subprocess.Popen(['sleep', '300']);" \\
    "open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(300)"
hooks = Hooks(HooksConfig(before=python(code, sys.argv[2])), AgentName("edge"), SystemClock())
hooks.processors.before.process(PACKAGE)
"""


def members_of(group: int) -> list[int]:
    """The processes of a group that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def test_a_hook_and_what_it_started_end_with_an_agent_that_is_killed(tmp_path: Path) -> None:
    started = tmp_path / "started"
    agent = subprocess.Popen([sys.executable, "-c", _KILLED, str(Path(__file__).parent), str(started)])
    try:
        wait_until(lambda: started.exists() and started.read_text())
        group = int(started.read_text())
        wait_until(lambda: len(members_of(group)) == 2)
    finally:
        agent.kill()
        agent.wait()
    wait_until(lambda: not members_of(group))


def test_a_watch_that_was_killed_is_replaced_with_the_next_hook() -> None:
    watch = HookWatch()
    watch.began(2**22 - 1)
    first = watch._process
    assert first is not None
    first.kill()
    first.wait()
    watch.ended(2**22 - 1)
    watch.began(2**22 - 2)
    assert watch._process is not None
    assert watch._process.pid != first.pid
    watch.ended(2**22 - 2)
    watch.close()
    watch.close()


def test_a_watch_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailboat.agent.command_hooks._CLOSE_SECONDS", 0.05)
    watch = HookWatch()
    watch.prepare()
    process = watch._process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    watch.close()
    assert process.returncode == -signal.SIGKILL


def test_where_no_watch_can_be_started_hooks_run_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    watch = HookWatch()
    watch.began(2**22 - 1)
    watch.ended(2**22 - 1)
    watch.close()
    assert "hooks are not watched" in caplog.text

"""`mailboat worker`: run jobs on this machine."""

from __future__ import annotations

import random
import shlex
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Annotated

import typer

from mailboat.api.client import HttpControl
from mailboat.cli.help_page import command_group
from mailboat.cli.options import remote_command
from mailboat.cli.output import count_text
from mailboat.cli.python_handlers import load_handlers, publish_at_agent, publish_at_home
from mailboat.cli.session import Session
from mailboat.cli.signals import stopped_by_signals
from mailboat.clock import Backoff, Clock, SystemClock
from mailboat.errors import MailboatError, RetryableError, UsageError
from mailboat.failpoints import Failpoints, NoFailpoints
from mailboat.jobs.command import SubprocessHandler
from mailboat.jobs.handlers import JobHandlers, Publish, WorkerPorts
from mailboat.jobs.http_source import HttpSource
from mailboat.jobs.job_worker import Handler, JobWorker, WorkerSettings
from mailboat.jobs.log_source import LogSource
from mailboat.jobs.source import JobSource
from mailboat.jobs.topic import open_job_topic
from mailboat.model.jobs import RESERVED_NAME, has_reserved, parse_pattern

_BACKOFF = Backoff(1.0, 60.0)
_EXIT_SECONDS = 15.0
"""After the deadline: calls get six seconds to stop, and an agent may not answer. Less than the margin of its pod."""

app = command_group("worker")


@app.command("run")
@remote_command
def run(
    session: Session,
    commands: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="PATTERN=COMMAND", help="Command for jobs of these topics; repeatable."),
    ] = None,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Python module with `mailboat.JobHandlers()`; repeatable."),
    ] = None,
    slots: Annotated[int, typer.Option("--slots", min=1, max=1_000, help="Calls at the same time.")] = 4,
    name: Annotated[str | None, typer.Option("--name", help="Name in lists. Default: the host's name.")] = None,
    shutdown_seconds: Annotated[
        float,
        typer.Option(
            "--shutdown-seconds",
            metavar="SECONDS",
            min=0,
            max=86_400,
            help="Let running calls end for this long, then stop them.",
        ),
    ] = 25.0,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C.

    A command gets the job as JSON on standard input. Exit code 0 is success. A command that exits with 75, is ended by
    a signal or cannot be started is retried; other exit codes are not.
    """
    if not commands and not modules:
        raise UsageError("specify handlers with --on PATTERN=COMMAND or --import MODULE")
    clock, stopping = SystemClock(), threading.Event()
    chance, failpoints = random.Random(), NoFailpoints()  # noqa: S311  # it makes names of workers differ
    found = [handlers for module in modules or () for handlers in load_handlers(module)]
    with _connected(session, clock, chance, failpoints) as (source, publish):
        parsed = _handlers(commands or (), found, WorkerPorts(clock, publish))
        settings = WorkerSettings(name or socket.gethostname(), slots, parsed)
        worker = JobWorker(source, settings, clock, chance, failpoints)

        def stop() -> None:
            stopping.set()
            worker.wake()

        with stopped_by_signals(stop, shutdown_seconds, _EXIT_SECONDS) as received:
            taken = f"takes {', '.join(parsed)} with {count_text(slots, 'slot')}"
            session.note(f"worker {worker.worker_id} {taken}; Ctrl-C stops it")
            try:
                _turns(session, worker, stopping, clock)
            except MailboatError:  # also then, what runs ends in order, as far as the source allows
                worker.stop(shutdown_seconds)
                raise
            worker.stop(shutdown_seconds)
    left = count_text(worker.running, "call")
    session.note("stopped cleanly" if not worker.running else f"stopped with {left} unfinished")
    if signal.SIGINT in received:
        raise KeyboardInterrupt


@contextmanager
def _connected(
    session: Session, clock: Clock, chance: random.Random, failpoints: Failpoints
) -> Iterator[tuple[JobSource, Publish]]:
    """Where the worker gets its calls from, and where jobs publish: an agent, else the home."""
    if session.url is not None:
        with closing(HttpControl(session.url, session.token)) as client:
            yield HttpSource(client.jobs, clock), publish_at_agent(client)
        return
    with session.workspace() as workspace:
        source = LogSource(open_job_topic(workspace.journal), clock, chance, failpoints)
        yield source, publish_at_home(session.home_path)


def _turns(session: Session, worker: JobWorker, stopping: threading.Event, clock: Clock) -> None:
    failures = 0
    while not stopping.is_set():
        try:
            worker.turn()
            failures = 0
        except RetryableError as error:
            failures += 1
            pause = worker.pause_within(_BACKOFF.pause(failures))
            session.note(f"{error}; next try in {pause:g} s")
            clock.wait(stopping, pause)


def _handlers(commands: Sequence[str], modules: Sequence[JobHandlers], ports: WorkerPorts) -> Mapping[str, Handler]:
    """All handlers by pattern; commands first. Raises: UsageError: of one pattern twice, or of a reserved one."""
    found = [_parse_handler(text) for text in commands]
    found += [handler for module in modules for handler in module.for_worker(ports).items()]
    patterns = [pattern for pattern, _ in found]
    if repeated := sorted({pattern for pattern in patterns if patterns.count(pattern) > 1}):
        raise UsageError(f"there are two handlers for {repeated[0]}")
    if has_reserved(patterns):  # it would end packages of shared pools as imported
        raise UsageError(f"topics that begin with {RESERVED_NAME} are for members of shared pools")
    if not found:
        raise UsageError("the imported modules have no handlers; add some with @handlers.job(PATTERN)")
    return dict(found)


def _parse_handler(text: str) -> tuple[str, Handler]:
    pattern, separator, line = text.partition("=")
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the command of {text!r} cannot be read: {error}") from error
    if not separator or not arguments:
        raise UsageError(f"{text!r} is not PATTERN=COMMAND, such as 'purge.*=./purge.sh'")
    return parse_pattern(pattern), SubprocessHandler(arguments)

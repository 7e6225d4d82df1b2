"""`mailboat agent run`: the agents of a configuration in one process, until SIGTERM or Ctrl-C; `agent health` asks it.

Puts the process (`agent/process.py`) and its HTTP server (`http/server.py`) together, says when they are ready, and
ends both within one deadline. What a pod runs is this.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mailboat.agent.health import AgentView
from mailboat.agent.process import AgentProcess, Startup
from mailboat.cli.config import checked_configuration, configuration
from mailboat.cli.error_report import INTERRUPTED_EXIT_CODE
from mailboat.cli.help_page import command_group
from mailboat.cli.options import command
from mailboat.cli.output import Output, Report, count_text
from mailboat.cli.session import Session
from mailboat.cli.signals import stopped_by_signals
from mailboat.clock import Deadline, SystemClock
from mailboat.composition.home import Home, note_configuration
from mailboat.composition.workspace import prepare
from mailboat.errors import UsageError
from mailboat.printable import printable
from mailboat.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from mailboat.http.server import HttpServer

_NAMED_SUBSCRIBERS = 3
_SERVER_SHARE = 0.8
"""This part of the time to stop is for requests that have begun: one may read the whole journal."""
_HEALTH_SECONDS = 4.0  # less than the timeout of the image's HEALTHCHECK

app = command_group("agent")


@app.command("run")
@command
def run(
    session: Session,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="YAML or JSON. Without --home, state is kept in its folder. Default: the home's.",
        ),
    ] = None,
    subscriber: Annotated[
        str | None,
        typer.Option(
            "--subscriber",
            metavar="NAME",
            help="Another name for the only subscriber, for pods that share a configuration.",
        ),
    ] = None,
) -> None:
    """Run the agents that a configuration names, with their HTTP API, until SIGTERM or Ctrl-C.

    Prints one line when it is ready. Ends with the exit code of the first subscriber that stopped in a named state.
    """
    from mailboat.http.agent_server import probes_during, server_of  # not for `agent health`

    # everything is checked before anything is made
    home, _ = checked_configuration(session, config, subscriber)
    first = (home.config.agents.publishers or home.config.agents.subscribers)[0]  # log lines call the process by it
    configure_logs(home.config.logs, first.name, SystemClock())
    startup = Startup(home.config.agents, SystemClock(), random.Random())  # noqa: S311  # it spreads retries
    with ExitStack() as opened:
        received = opened.enter_context(
            stopped_by_signals(startup.ask_to_stop, home.config.subscriber.shutdown_seconds)
        )
        process = _started(startup, home, config, opened, lambda: probes_during(startup, home))
        if process is None:
            _end(0, received)
            return
        server = server_of(process)
        # before the subscribers are open: the probes of a pod are answered while they wait for their locks
        server.start()
        try:
            ended = process.await_opened()  # or a supervisor would see `ready` and then exit code 5
            if not process.is_over:
                _say_ready(session, process, server, ended)
            process.wait()
        finally:
            code = stop_both(server, process)
    _end(code, received)


def stop_both(server: HttpServer, process: AgentProcess) -> int:
    """Stop the server, then the process that its requests use. Returns: the process's exit code."""
    deadline = process.deadline()  # one for both, as a supervisor kills both at its end
    server.stop(Deadline(SystemClock(), deadline.remaining_seconds() * _SERVER_SHARE))
    return process.stop(deadline)


def _started(
    startup: Startup,
    home: Home,
    config: Path | None,
    opened: ExitStack,
    probes: Callable[[], AbstractContextManager[None]],
) -> AgentProcess | None:
    """The process, closed with `opened`; None if a signal came first. `probes` are answered while it has to wait."""

    def attempt() -> AgentProcess:
        prepare(home)
        if config is not None:
            note_configuration(home, config)
        with ExitStack() as draft:
            process = draft.enter_context(AgentProcess(home))
            process.start()
            # only a process that started is handed over: a failed attempt is closed before the next one
            opened.push(draft.pop_all())
        return process

    with ExitStack() as waiting:
        return startup.run(attempt, lambda: waiting.enter_context(probes()))


def _end(code: int, received: set[int]) -> None:
    """End with an exit code; Ctrl-C is one if there is no other. Raises: typer.Exit."""
    if signal.SIGINT in received and not code:
        code = INTERRUPTED_EXIT_CODE
    if code:
        raise typer.Exit(code)


@app.command("health")
@command
def health(
    session: Session,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Configuration file. Default: the home's."),
    ] = None,
) -> None:
    """Check the liveness of the agent on this machine (/healthz). Exits 1 if it is not live, 75 without an answer."""
    from mailboat.api.client import fetch_health

    http = configuration(session, config).config.http
    if http.port == 0:
        raise UsageError("http.port is 0: the agent's port is not known", next_step="set http.port to a fixed port")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)  # noqa: S104  # every address: the loopback
    url = f"http://{f'[{host}]' if ':' in host else host}:{http.port}/healthz"
    status, answer = fetch_health(url, _HEALTH_SECONDS)
    document = {"url": url, "alive": status == HTTPStatus.OK, "answer": answer}
    text = "alive" if document["alive"] else f"HTTP {status}: {answer}"
    session.show(Report(document, [url], lambda: [f"{url}: {text}"]))
    if not document["alive"]:
        raise typer.Exit(1)


def _say_ready(session: Session, process: AgentProcess, server: HttpServer, ended: Sequence[AgentView]) -> None:
    stopped = {agent.name: agent.reason for agent in ended}
    document = {
        "state": "ready",
        "publishers": [publisher.name for publisher in process.config.agents.publishers],
        "subscribers": [
            subscriber.name for subscriber in process.config.agents.subscribers if subscriber.name not in stopped
        ],
        "stopped": stopped,
        "url": server.url,
        "home": str(process.workspace.home.path.absolute()),
        "pid": os.getpid(),
    }
    line = json.dumps(document, ensure_ascii=False) if session.output is Output.JSON else ready_text(document)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def ready_text(document: dict[str, Any]) -> str:
    """The line that says that everything runs."""
    publishers, subscribers = document["publishers"], document["subscribers"]
    parts = [f"publisher {name}" for name in publishers]
    if len(subscribers) <= _NAMED_SUBSCRIBERS:
        parts += [f"subscriber {name}" for name in subscribers]
    else:
        parts.append(f"{count_text(len(subscribers), 'subscriber')} {subscribers[0]} … {subscribers[-1]}")
    parts += [f"{name} stopped ({reason})" for name, reason in document.get("stopped", {}).items()]
    return printable(
        f"ready: {', '.join(parts)}; dashboard and API at {document['url']}; home {document['home']}; "
        f"pid {document['pid']}"
    )

"""Runs an application in a thread of its own: listening, serving, ending within a deadline.

`start` binds the port, in the caller's thread, so that a port in use is an error there and not in a log. The
command line's `agent run` starts and stops it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from mailboat.clock import Deadline
from mailboat.config.document import HttpConfig
from mailboat.errors import RetryableError, UsageError
from mailboat.http.access import check_exposure
from mailboat.http.connections import guarded_protocol

_LOG: Final = logging.getLogger("mailboat.http")
_CLOSE_SECONDS: Final = 1.0
"""How long its thread may outlast the deadline, to close what it cut off."""

# Idle connections count towards `max_connections`, and must free their places soon.
_KEEP_ALIVE_SECONDS: Final = 5
_MAX_HEAD_BYTES: Final = 32 * 1024
_BACKLOG: Final = 128
_START_SECONDS: Final = 10.0
_LONGEST_MS: Final = 2**31 - 1  # of a socket option: 24 days


class PortTakenError(UsageError):
    """The HTTP API cannot listen on its address: the port is in use, or the host is not an address of this machine.

    Choose another `http.port` in the configuration, or 0 for any free port.
    """


class HttpStartFailedError(RetryableError):
    """The agent's HTTP server failed to start, so the agent was not started.

    Start the agent again; the log has the cause.
    """


class HttpServer:
    """One listening server."""

    def __init__(self, app: ASGIApp, config: HttpConfig, stopping: threading.Event | None = None) -> None:
        """Listen nowhere yet; `stopping` is set when calls that wait should end. Raises: as `check_exposure`."""
        check_exposure(config)
        self._app = app
        self._config = config
        self._stopping = threading.Event() if stopping is None else stopping
        self._server: _QuietServer | None = None
        self._socket: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def url(self) -> str:
        """Where it can be reached; the port is the real one once it is started."""
        port = self._config.port if self._socket is None else self._socket.getsockname()[1]
        host = self._config.host
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Listen, and return once requests are served. Raises: PortTakenError, HttpStartFailedError."""
        self._socket = _listen(self._config)
        self._server = _QuietServer(_uvicorn_config(self._app, self._config))
        # A daemon: a request that never ends must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()
        if not self._server.ready.wait(_START_SECONDS) or not self._server.started:
            # It may still start later, and must not serve after its caller has given up.
            self._server.end(0.0)
            message = f"the HTTP server at {self.url} did not start within {_START_SECONDS:g} seconds"
            if self._failure is not None:
                message = f"the HTTP server at {self.url} did not start: {self._failure}"
            raise HttpStartFailedError(message) from self._failure

    def stop(self, deadline: Deadline) -> None:
        """Accept no further connections, let running requests end, and close the rest at the timeout."""
        if self._server is None or self._thread is None or not self.is_serving:
            return
        self._stopping.set()
        # calls that wait have been notified, so their connections can end in time
        self._server.end(deadline.remaining_seconds())
        self._thread.join(deadline.remaining_seconds() + _CLOSE_SECONDS)

    @property
    def is_serving(self) -> bool:
        """Whether its thread runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return 0 if self._server is None else len(self._server.server_state.connections)

    def _run(self) -> None:
        if self._server is None or self._socket is None:
            return
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except Exception as error:  # noqa: BLE001  # `start` raises it again, in the thread of its caller
            self._failure = error
            _LOG.exception("the HTTP server ended by a defect")
        finally:
            self._server.ready.set()  # `start` waits for it, and finds that it has ended


class _QuietServer(uvicorn.Server):
    """uvicorn's server without its ten wake-ups a second that check the clock and the end: an event signals the end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    async def main_loop(self) -> None:
        """Serve until the end is signalled."""
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self.ready.set()
        if not self.should_exit:
            await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, then close what was accepted."""
        loop = asyncio.get_running_loop()
        for listening in sockets or ():
            loop.remove_reader(listening)
        # CPython loses a connection that it accepted just before its server is closed, with a traceback in the log
        # (https://github.com/python/cpython/issues/109564): its transport is made one turn of the loop after the
        # accept, and uvicorn sees it after one more.
        for _ in range(2):
            await asyncio.sleep(0)
        await super().shutdown(sockets)

    def end(self, seconds: float) -> None:
        """End within some seconds. From any thread."""
        # at least a second: with 0 uvicorn logs an error also where no request is under way
        self.config.timeout_graceful_shutdown = max(1, int(seconds))
        # before the event: a loop that begins meanwhile reads it before it waits
        self.should_exit = True
        if self._loop is not None and self._ended is not None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                # An asyncio event is not thread-safe: its own loop sets it.
                self._loop.call_soon_threadsafe(self._ended.set)


def _uvicorn_config(app: ASGIApp, config: HttpConfig) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=guarded_protocol(config.request_seconds, config.max_connections),
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        log_level=logging.ERROR,  # its warnings report malformed requests: any client could fill the log
        access_log=False,
        server_header=False,
        date_header=False,
        # Forwarded addresses are the client's own claim; rates count the address of the connection.
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
    )


def _listen(config: HttpConfig) -> socket.socket:
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise _port_taken(config, error) from error
    try:
        # a restart must not wait for connections in TIME_WAIT
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        unanswered_ms = min(int(config.request_seconds * 1000), _LONGEST_MS)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unanswered_ms)  # connections inherit it (tcp(7))
        made.bind(address)
        made.listen(_BACKLOG)
        made.setblocking(False)
    except (OSError, OverflowError) as error:
        made.close()
        raise _port_taken(config, error) from error
    return made


def _port_taken(config: HttpConfig, error: Exception) -> PortTakenError:
    reason = getattr(error, "strerror", None) or str(error)
    message = f"{config.host} port {config.port} is not available: {reason}"
    return PortTakenError(message, next_step="choose another http.port, or 0 for any free one")

"""Stands between a client and a real HTTP server, passes everything on, and makes chosen requests go wrong.

What it does not touch is the real server's answer, byte by byte. Requests are counted by method, and by what they ask
for, so that a test can say how many a step costs.
"""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self

from support.free_ports import LOOPBACK

_PIECE_BYTES: Final = 256 * 1024
_NOT_PASSED_ON: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "expect"})


@dataclass
class Fault:
    """What happens to a request instead of its answer.

    Attributes:
        method: Which requests: by method; empty takes all.
        containing: And by a part of path and query.
        times: How many of them; None without end.
        skip: How many pass before.
        status: Answer with this status, without asking the server; None asks it.
        code: The error code of that answer.
        headers: Further headers of that answer.
        cut_after_bytes: Reset the connection after so many bytes of the server's answer; None lets it end.
        is_answer_lost: The server does what it was asked for, and the client hears nothing of it.
    """

    method: str = ""
    containing: str = ""
    times: int | None = 1
    skip: int = 0
    status: int | None = None
    code: str = "InternalError"
    headers: dict[str, str] = field(default_factory=dict)
    cut_after_bytes: int | None = None
    is_answer_lost: bool = False


class FaultProxy:
    """The proxy, running from its beginning. A context manager."""

    def __init__(self, port: int) -> None:
        """Listen, and pass on to the server on `port`."""
        self.upstream_port = port
        self.requests: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._server = _Listener((LOOPBACK, 0), _Handler)
        self._server.proxy = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="proxy", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def inject(self, fault: Fault) -> None:
        """Let requests fail from now on."""
        with self._lock:
            self._faults.append(fault)

    def heal(self) -> None:
        """Let all requests pass from now on."""
        with self._lock:
            self._faults.clear()

    def fault_of(self, method: str, path: str) -> Fault | None:
        """Count a request, and say what happens to it."""
        with self._lock:
            self.requests[_kind_of(method, path)] += 1
            for fault in self._faults:
                if fault.method not in {"", method} or fault.containing not in path or fault.times == 0:
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    proxy: FaultProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        if self.parse_request():
            self._pass_on()
            self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the parent's name for it
        pass

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        fault = self.server.proxy.fault_of(self.command, self.path)
        if fault is not None and fault.status is not None:
            self._refuse(fault)
            return
        upstream = http.client.HTTPConnection(LOOPBACK, self.server.proxy.upstream_port, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _NOT_PASSED_ON:
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            self._answer(upstream.getresponse(), fault)
        finally:
            upstream.close()

    def _answer(self, answer: http.client.HTTPResponse, fault: Fault | None) -> None:
        if fault is not None and fault.is_answer_lost:
            answer.read()
            self._reset()
            return
        data = None if answer.length is not None or self.command == "HEAD" else answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        if data is not None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if data is not None:
            self.wfile.write(data)
            return
        left = None if fault is None else fault.cut_after_bytes
        while piece := answer.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES)):
            self.wfile.write(piece)
            left = None if left is None else left - len(piece)
        if left == 0:
            self._reset()

    def _refuse(self, fault: Fault) -> None:
        text = f"<Error><Code>{fault.code}</Code><Message>injected</Message></Error>".encode()
        self.send_response_only(fault.status or 500)
        for name, value in fault.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _reset(self) -> None:
        """Cut the connection so that the other side gets a reset, not an end."""
        self.wfile.flush()
        self.close_connection = True
        with suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _kind_of(method: str, path: str) -> str:
    if method == "GET" and "list-type=" in path:
        return "LIST"
    return method

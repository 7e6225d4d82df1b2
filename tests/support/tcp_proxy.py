"""A TCP proxy that does to connections what networks do: resets, silence, slowness. For any protocol.

Each connection is passed on byte by byte, by two threads. What is slow or silent is so in both directions, for the
connections that are open and for those that come.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Final, Self

from support.free_ports import LOOPBACK

_CHUNK_BYTES: Final = 64 * 1024
_LOOK_SECONDS: Final = 0.05
_ABORT: Final = struct.pack("ii", 1, 0)  # closing with SO_LINGER of no time sends RST


class TcpProxy:
    """The proxy, running from its beginning. A context manager."""

    def __init__(self, port: int, listen: int = 0) -> None:
        """Pass on to `port`; listen on the port `listen`, or on a free one."""
        self.resets = 0
        self.passed_bytes = 0
        self._upstream = port
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._flows = threading.Event()
        self._flows.set()
        self._bytes_per_second: float | None = None
        self._is_over = threading.Event()
        self._server = socket.create_server((LOOPBACK, listen))
        threading.Thread(target=self._accept, name="tcp-proxy", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many are open."""
        with self._lock:
            return len(self._pairs)

    def reset(self) -> int:
        """Break off all connections, in both directions, without a word; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for item in pair:
                _abort(item)
        self.resets += len(pairs)
        return len(pairs)

    def silence(self) -> None:
        """Connections stay open, and new ones are taken, but no byte goes through any more."""
        self._flows.clear()

    def slow_down(self, bytes_per_second: float | None) -> None:
        """Let so many bytes through, for each direction of each connection; None: as many as come."""
        self._bytes_per_second = bytes_per_second

    def heal(self) -> None:
        """End silence and slowness. Connections that were silent go on."""
        self._bytes_per_second = None
        self._flows.set()

    def close(self) -> None:
        """End all."""
        self._is_over.set()
        self._flows.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._upstream), timeout=5)
                server.settimeout(None)
            except OSError:
                _abort(client)
                continue
            self._begin((client, server))

    def _begin(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.add(pair)
        for source, into in (pair, pair[::-1]):
            work = partial(self._pass_on, source, into, pair)
            threading.Thread(target=work, name="tcp-proxy-relay", daemon=True).start()

    def _pass_on(self, source: socket.socket, into: socket.socket, pair: tuple[socket.socket, socket.socket]) -> None:
        with suppress(OSError, ValueError):
            while not self._is_over.is_set() and (data := source.recv(_CHUNK_BYTES)):
                self._flows.wait()
                self._hold_back(len(data))
                into.sendall(data)
                with self._lock:
                    self.passed_bytes += len(data)
        with self._lock:
            self._pairs.discard(pair)
        for item in pair:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _hold_back(self, count: int) -> None:
        """Wait as long as a slow line needs for so many bytes; healed in between, no longer."""
        left = float(count)
        while left > 0:
            pace = self._bytes_per_second
            if pace is None or self._is_over.wait(_LOOK_SECONDS):
                return
            left -= pace * _LOOK_SECONDS


def _abort(one: socket.socket) -> None:
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
    with suppress(OSError):
        one.shutdown(socket.SHUT_RD)  # a thread that reads holds the socket open
    one.close()

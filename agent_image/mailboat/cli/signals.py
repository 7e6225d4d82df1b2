"""SIGTERM and Ctrl-C for commands that run until they are stopped, and the time limit of that end."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

EXIT_SECONDS: Final = 30.0
"""How long a process may take to end once its work is done, or beyond its own deadline."""

_STANDARD_ERROR: Final = 2
_DONE: Final = b"\0"
_JOIN_SECONDS: Final = 5.0
_BY_SIGNAL: Final = 128
"""Added to a signal, this is the exit code that a shell gives to a process that the signal ended."""


@contextmanager
def stopped_by_signals(
    stop: Callable[[], None], shutdown_seconds: float, exit_seconds: float = EXIT_SECONDS
) -> Iterator[set[int]]:
    """SIGTERM and Ctrl-C end the work in order, a second Ctrl-C at once. Yields the signals received.

    Args:
        stop: Requests the end. It is called in a thread of its own: a signal handler runs in the main thread between
            two instructions, and would deadlock on a lock that the interrupted code holds, such as that of the event
            that it is about to wait for.
        shutdown_seconds: The deadline that the work keeps after `stop`.
        exit_seconds: A process that is still there so long after the deadline ends with exit code 1 and the traces of
            its threads.
    """
    received: set[int] = set()
    reads, writes = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writes, False)  # required by `set_wakeup_fd`

    def listen() -> None:
        while (byte := os.read(reads, 1)) != _DONE:
            if byte[0] in numbers:  # signals that have other handlers are written as well
                if not received:
                    _limit(shutdown_seconds + exit_seconds)
                received.add(byte[0])
                stop()

    def receive(number: int, _: object) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    numbers = {signal.SIGTERM, signal.SIGINT}
    listener = threading.Thread(target=listen, name="mailboat-signals", daemon=True)
    listener.start()
    # The interpreter writes to this descriptor as the signal arrives. Handlers run later: if it arrives just before the
    # main thread begins to wait, only after that wait.
    descriptor = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    before = {number: signal.signal(number, receive) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(descriptor)
        os.write(writes, _DONE)
        listener.join(_JOIN_SECONDS)
        faulthandler.cancel_dump_traceback_later()
        if not listener.is_alive():  # else it still reads
            os.close(reads)
        os.close(writes)


@contextmanager
def exit_at(*numbers: int) -> Iterator[None]:
    """Let signals end this process by SystemExit, so that what is open is closed; ignored ones stay so (`nohup`)."""

    def end(number: int, _: object) -> NoReturn:
        sys.exit(_BY_SIGNAL + number)

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_sigterm() -> None:
    """Let SIGTERM end this process at once until `stopped_by_signals`, also as PID 1.

    The kernel discards a signal for which the first process of a PID namespace has no handler (pid_namespaces(7)). A
    pod that is removed while its agent loads its modules would run on until SIGKILL.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(_BY_SIGNAL + number))


def exit_with(code: int) -> NoReturn:
    """End the process, within `EXIT_SECONDS` whatever its threads and finalizers wait for."""
    _limit(EXIT_SECONDS)
    sys.exit(code)


def _limit(seconds: float) -> None:
    """End the process after so many seconds. The timer is not a Python thread: it needs no lock of the interpreter."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=_STANDARD_ERROR)

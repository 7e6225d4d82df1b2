"""`kubectl mailboat`: the commands that ask an agent, asked of a Publisher's agent in a Kubernetes cluster.

kubectl runs a program `kubectl-mailboat` that it finds in PATH. This one asks kubectl, and so with the kubeconfig and
the rights of its caller, for the Publisher and the token of its API, has the API's port forwarded, and runs the
command there. The token is in no file: a program that is killed leaves none behind.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final, NoReturn

from mailboat.cli.error_report import INTERRUPTED_EXIT_CODE, named_failure, print_error
from mailboat.cli.help_page import ALIASES, COMMANDS
from mailboat.cli.main import main, open_closed_streams
from mailboat.cli.signals import exit_at
from mailboat.composition.environment import current_settings
from mailboat.errors import KubectlFailedError, MailboatError, UsageError

REMOTE_COMMANDS: Final = {name: entry.summary for name, entry in COMMANDS.items() if entry.is_remote}
"""The commands that ask an agent, with their summaries."""

PUBLISHERS: Final = "publishers.mailboat.dev"
_PORT: Final = 8080
_TOKEN_KEY: Final = "token"  # noqa: S105  # the name of an entry
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
_POLL_SECONDS: Final = 0.05
_STOP_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.5
_HELP: Final = ("-h", "--help")
_LARGEST_TOKEN: Final = 32 * 1024
"""Less than a pipe holds."""
_SHOWN_BYTES: Final = 64 * 1024


class _Parser(argparse.ArgumentParser):
    """A parser whose errors look like all others of ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, next_step="kubectl mailboat --help")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Options and what they mean in two columns."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=24)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the options that say which cluster and namespace is meant.

    Attributes:
        options: `--namespace=…`, `--context=…`, `--kubeconfig=…`, as far as they were given.
    """

    options: tuple[str, ...] = ()

    def get(self, kind: str, name: str | None = None) -> Any:
        """An object, or the list of all of a kind. Raises: KubectlFailedError."""
        what = [kind] if name is None else [kind, name]
        command = self._command("get", *what, "--output=json")
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # the caller's kubectl
        if done.returncode != 0:
            raise _failed(f"kubectl can't get {' '.join(what)}", done.stderr)
        try:
            return json.loads(done.stdout)
        except ValueError as error:
            raise _failed(f"kubectl get {' '.join(what)} printed no JSON", done.stderr) from error

    def names(self, *command: str) -> Sequence[str]:
        """What kubectl lists with these words, one name a line. Raises: KubectlFailedError."""
        done = subprocess.run(  # noqa: S603  # the caller's kubectl
            self._command(*command), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise _failed(f"kubectl can't {' '.join(command)}", done.stderr)
        return [line.rpartition("/")[2] for line in done.stdout.splitlines()]

    @contextmanager
    def forwarded(self, service: str) -> Iterator[str]:
        """The URL of a Service's agent, while the context lasts. Raises: KubectlFailedError."""
        command = self._command("port-forward", "--address=127.0.0.1", f"service/{service}")
        # Files, not pipes: kubectl prints a line for each connection, and forwards nothing more once a pipe is full.
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            forwarding = _Forwarding(command, output, errors)
            try:
                port = forwarding.start()
                if port is None:
                    words = _words_in(errors) or _words_in(output)
                    raise _failed(f"kubectl can't forward a port of service/{service}", words)
                yield f"http://127.0.0.1:{port}"
            finally:
                forwarding.stop()

    def _command(self, *arguments: str) -> list[str]:
        program = shutil.which("kubectl")
        if program is None:
            raise UsageError("kubectl is not in PATH", next_step="https://kubernetes.io/docs/tasks/tools")
        return [program, *self.options, *arguments]


class _Forwarding:
    """`kubectl port-forward`, started again when it ends: it ends with the pod that it found behind the Service."""

    def __init__(self, command: Sequence[str], output: IO[bytes], errors: IO[bytes]) -> None:
        self._command = command
        self._output = output
        self._errors = errors
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, name="port-forward", daemon=True)
        self._port = ""

    def start(self) -> str | None:
        """The local port, as soon as kubectl prints it; None if kubectl ends before."""
        process = self._process = self._popen()
        while not self._port:
            has_ended = process.poll() is not None  # before the look: it may print and end in between
            found = _FORWARDING.search(_words_in(self._output))
            if found is not None:
                self._port = found[1]
            elif has_ended:
                return None
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        self._keeper.start()
        return self._port

    def stop(self) -> None:
        """Stop it and its restarts."""
        with self._turn:  # not between a check of `_stopping` and a start
            self._stopping.set()
        if self._process is not None:
            _stop(self._process)
        if self._keeper.ident is not None:
            self._keeper.join()

    def _keep(self) -> None:
        while True:
            if self._process is not None:
                self._process.wait()
            if self._stopping.wait(_AGAIN_SECONDS):
                return
            with self._turn:
                if self._stopping.is_set():
                    return
                with suppress(OSError):  # no memory for a process, or no kubectl any more
                    self._process = self._popen()

    def _popen(self) -> subprocess.Popen[bytes]:
        ports = f"{self._port}:{_PORT}"  # the first time any local port, then the same one
        return subprocess.Popen(  # noqa: S603  # the caller's kubectl
            [*self._command, ports], stdout=self._output, stderr=self._errors
        )


def run() -> None:
    """The entry point of the installed program `kubectl-mailboat`."""
    open_closed_streams()
    with exit_at(signal.SIGTERM, signal.SIGHUP):  # kubectl, which forwards a port, would stay behind
        code = ask(sys.argv[1:])
    sys.exit(code)


def ask(arguments: Sequence[str]) -> int:
    """Run one command line, without `kubectl mailboat`; the exit code."""
    try:
        given = option_parser().parse_args(arguments)
        command = _checked(given.command)
        if any(word in _HELP for word in command):
            return main(command)
        with forwarded_agent(kubectl_with(given), given.publisher) as (url, token), _readable(token) as file:
            return main(["--url", url, "--token-file", file, *command])
    except MailboatError as error:
        print_error(error, sys.stderr, is_verbose=current_settings().is_verbose)
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("stopped by Ctrl-C\n")
        return INTERRUPTED_EXIT_CODE
    except Exception as error:  # noqa: BLE001  # as in `main`
        found = named_failure(error)
        found.__cause__ = error
        print_error(found, sys.stderr, is_verbose=current_settings().is_verbose)
        return found.exit_code


def decide_publisher(found: Sequence[Mapping[str, Any]], wanted: str | None) -> Mapping[str, Any]:
    """Which Publisher is meant, of those of the namespace. Raises: UsageError."""
    by_name = {publisher["metadata"]["name"]: publisher for publisher in found}
    if not by_name:
        raise UsageError(
            "there is no Publisher in the namespace", next_step=f"kubectl get {PUBLISHERS} --all-namespaces"
        )
    if wanted is None and len(by_name) == 1:
        return next(iter(by_name.values()))
    names = ", ".join(sorted(by_name))
    if wanted is None:
        raise UsageError("several Publishers in the namespace", next_step=f"--publisher NAME, one of: {names}")
    if wanted not in by_name:
        raise UsageError(f"there is no Publisher {wanted} in the namespace", next_step=f"one of: {names}")
    return by_name[wanted]


def token_secret(publisher: Mapping[str, Any]) -> str:
    """The Secret with the API token of a Publisher: the named one, else the operator's."""
    named = publisher["spec"].get("http", {}).get("tokenSecretRef", {}).get("name")
    return str(named or f"{publisher['metadata']['name']}-token")


@contextmanager
def _readable(token: bytes) -> Iterator[str]:
    """What reads as a file that holds the token, once: the end of a pipe."""
    reads, writes = os.pipe()
    try:
        os.write(writes, token)
        os.close(writes)
        yield f"/dev/fd/{reads}"
    finally:
        os.close(reads)


@contextmanager
def forwarded_agent(kubectl: Kubectl, wanted: str | None) -> Iterator[tuple[str, bytes]]:
    """URL and token of a Publisher's agent, which can be reached as long as the context lasts.

    Raises: KubectlFailedError; UsageError.
    """
    publisher = decide_publisher(kubectl.get(PUBLISHERS)["items"], wanted)
    name = publisher["metadata"]["name"]
    secret = token_secret(publisher)
    entry = (kubectl.get("secrets", secret).get("data") or {}).get(_TOKEN_KEY)
    if entry is None:
        raise UsageError(f"the Secret {secret} has no entry {_TOKEN_KEY!r}", publisher=name)
    token = base64.b64decode(entry)
    if len(token) > _LARGEST_TOKEN:
        raise UsageError(f"the entry {_TOKEN_KEY!r} of the Secret {secret} is too large for a token", publisher=name)
    with kubectl.forwarded(name) as url:
        yield url, token


def option_parser() -> argparse.ArgumentParser:
    """The parser of the options before the command."""
    width = max(len(name) for name in REMOTE_COMMANDS) + 2
    commands = "\n".join(f"  {name:{width}}{meaning}" for name, meaning in REMOTE_COMMANDS.items())
    parser = _Parser(
        prog="kubectl mailboat",
        usage="kubectl mailboat [options] COMMAND …",
        description="Runs commands on the agent of a Publisher, through a forwarded port.",
        epilog=f"commands:\n{commands}\n\n`kubectl mailboat COMMAND --help` has details.",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="Publisher's namespace. Default: the context's")
    parser.add_argument("--context", metavar="NAME", help="kubeconfig context. Default: the current one")
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig file, as for kubectl")
    parser.add_argument("--publisher", metavar="NAME", help="Publisher. Default: the only one in the namespace")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND …", help=argparse.SUPPRESS)
    return parser


def _checked(command: Sequence[str]) -> Sequence[str]:
    """The command, if an agent answers it. Raises: UsageError."""
    if command and ALIASES.get(command[0], command[0]) in REMOTE_COMMANDS:
        return command
    problem = f"{command[0]!r} is not a command of agents" if command else "a command is missing"
    raise UsageError(problem, next_step="kubectl mailboat --help")


def kubectl_with(given: argparse.Namespace) -> Kubectl:
    """Return kubectl with the options of the command line."""
    options = {"namespace": given.namespace, "context": given.context, "kubeconfig": given.kubeconfig}
    return Kubectl(tuple(f"--{name}={value}" for name, value in options.items() if value is not None))


def _failed(what: str, words: str) -> KubectlFailedError:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return KubectlFailedError(f"{what}: {lines[-1] if lines else 'it printed nothing'}")


def _words_in(file: IO[bytes]) -> str:
    """The beginning of a file; its place stays that of the program that writes it."""
    return os.pread(file.fileno(), _SHOWN_BYTES, 0).decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

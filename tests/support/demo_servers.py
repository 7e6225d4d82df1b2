"""`make demo JOURNAL=kafka`: runs `mailboat demo` on a Kafka broker and an S3 server that it starts and ends.

    python -m support.demo_servers [ARGUMENT OF mailboat demo…]

Needs Java and, for the first run, Maven. Nothing of the servers stays behind.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml
from mailboat.clock import SystemClock
from mailboat.errors import MailboatError
from support.kafka_broker import BrokerSettings, KafkaBroker
from support.s3_server import ADMIN, S3Server, S3ServerSettings

PROGRAM: Final = (sys.executable, "-m", "mailboat.cli")
_KEY_FILES: Final = ("access_key_id", "secret_access_key")


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit code of `mailboat demo`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers end by SIGTERM as by Ctrl-C
    try:
        with tempfile.TemporaryDirectory(prefix="mailboat-demo-", ignore_cleanup_errors=True) as scratch:
            _note("starting a Kafka broker and an S3 server; the first run downloads the broker (43 MB)")
            with running_servers(Path(scratch)) as config:
                # on a terminal it stays until Enter, and the servers with it
                code = _demo([*arguments, "--config", str(config)])
    except MailboatError as error:
        _note(f"error: {type(error).__name__}: {error}\n{type(error).__doc__}")
        return 2
    except KeyboardInterrupt:
        return 130
    _note("The broker and the S3 server have ended, and their data is removed.")
    return code


@contextmanager
def running_servers(folder: Path) -> Iterator[Path]:
    """Run both servers in `folder`; gives the configuration file that names them.

    Raises:
        BrokerToolMissingError, S3ToolMissingError: A program must be installed; the error names it.
        BrokerFailedError, S3ServerFailedError: With the end of the server's log.
    """
    clock = SystemClock()
    with (
        KafkaBroker(BrokerSettings(folder / "kafka"), clock) as broker,
        S3Server(S3ServerSettings(folder / "s3"), clock) as s3,
    ):
        _note(f"Kafka at {broker.bootstrap_servers}, S3 at {s3.url}")
        for name in _KEY_FILES:
            (folder / name).write_text(getattr(ADMIN, name))
        keys = {name: {"file": str(folder / name)} for name in _KEY_FILES}
        bucket = {"bucket": s3.bucket, "endpoint_url": s3.url, "region": "us-east-1", "path_style": True, **keys}
        config = folder / "servers.yaml"
        journal = {"kafka": {"bootstrap_servers": [broker.bootstrap_servers]}}
        config.write_text(yaml.safe_dump({"journal": journal, "blobs": {"s3": bucket}}))
        yield config


def _demo(arguments: Sequence[str]) -> int:
    """Run `mailboat demo`; SIGTERM of this process ends it, too."""
    # A terminal sends Ctrl-C to both: the demo ends its agents, and is waited for while the servers run. A handler and
    # not SIG_IGN, which the demo would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with subprocess.Popen([*PROGRAM, "demo", *arguments], env=os.environ) as demo:
            try:
                return demo.wait()
            except KeyboardInterrupt:
                demo.terminate()
                demo.wait()
                raise
    finally:
        signal.signal(signal.SIGINT, before)


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

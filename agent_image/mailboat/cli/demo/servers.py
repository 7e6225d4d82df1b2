"""The real servers that the demo can run on: a one-broker Kafka and an S3 server, started for it in a scratch folder.

They are those of the tests (the only use of `mailboat.testing` outside of tests), so they need what `make dev`
installs, Java and, for the first time, Maven. Nothing of them stays behind.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mailboat.clock import Clock

if TYPE_CHECKING:
    from mailboat.testing.s3_server import S3Server

_KEY_FILES: Final = ("access_key_id", "secret_access_key")


class Backend(enum.StrEnum):
    """What the demo runs on."""

    EMBEDDED = "embedded"
    KAFKA = "kafka"


Sections = dict[str, Any]
"""The sections `journal` and `blobs` of a configuration; none are the embedded ones."""


@contextmanager
def servers_for(backend: Backend, clock: Clock, say: Callable[[str], None]) -> Iterator[Sections]:
    """Run what the demo needs, and say where it is; everything ends, and is removed, when the block is left.

    Args:
        backend: What is wanted.
        clock: For waiting.
        say: Tells people what takes its time.

    Raises:
        BrokerToolMissingError, S3ToolMissingError: Something has to be installed first; the error says what.
        BrokerFailedError, S3ServerFailedError: With the end of the server's log.
    """
    if backend is Backend.EMBEDDED:
        yield {}
        return
    from mailboat.testing.kafka_broker import BrokerSettings, KafkaBroker
    from mailboat.testing.s3_server import S3Server, S3ServerSettings

    with tempfile.TemporaryDirectory(prefix="mailboat-demo-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        say("starting a Kafka broker and an S3 server; for the first time the broker is brought by Maven, 43 MB")
        with (
            KafkaBroker(BrokerSettings(folder / "kafka"), clock) as broker,
            S3Server(S3ServerSettings(folder / "s3"), clock) as s3,
        ):
            say(f"Kafka at {broker.bootstrap_servers}, S3 at {s3.url}")
            yield {
                "journal": {"kafka": {"bootstrap_servers": [broker.bootstrap_servers]}},
                "blobs": {"s3": _bucket(s3, folder)},
            }


def _bucket(s3: S3Server, folder: Path) -> Sections:
    """The section of a bucket, with its keys in files as a deployment has them."""
    from mailboat.testing.s3_server import ADMIN

    for name in _KEY_FILES:
        (folder / name).write_text(getattr(ADMIN, name))
    keys = {name: {"file": str(folder / name)} for name in _KEY_FILES}
    return {"bucket": s3.bucket, "endpoint_url": s3.url, "region": "us-east-1", "is_path_style": True, **keys}

"""What all Kafka brokers of a machine share, each made once below `~/.cache/mailboat`: jars, and a formatted storage.

The jars are those that `kafka_broker.xml` names, brought by Maven and kept under a key of that file. Formatting takes a
Java process of 1.5 CPU seconds, and what it writes is the same for every broker but for the ids in one small file.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Final

from mailboat.errors import RetryableError, UsageError
from support.machine_cache import made_once

_POM: Final = Path(__file__).with_name("kafka_broker.xml")
_CHECKPOINT: Final = "bootstrap.checkpoint"
_IDS: Final = "meta.properties"
_TEMPLATE: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "CLIENT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENT",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


class BrokerToolMissingError(UsageError):
    """A program that the broker needs is not there. Install Java 17 or newer and Maven; on Debian both are packages."""


class BrokerFailedError(RetryableError):
    """The broker, or the download of its jars, failed. The message ends with the last lines of its log."""


def resolve_jars(cache: Path) -> Path:
    """Return the folder with the broker's jars; Maven fills it once, also when several processes ask at the same time.

    Raises:
        BrokerToolMissingError: Maven is not installed.
        BrokerFailedError: Maven failed.
    """

    def download(draft: Path) -> None:
        maven = [program("mvn"), "--quiet", "--batch-mode", "--strict-checksums", "--file", str(_POM)]
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={draft}"]
        run([*maven, *goal], "bringing the broker's jars by Maven")

    key = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]
    return made_once(cache / f"kafka-{key}", download)


def copy_formatted(jars: Path, data: Path, cluster_id: str, node_id: int) -> None:
    """Format a broker's storage by copying one that Kafka's own tool formatted. Raises: as `resolve_jars`."""

    def formatted(draft: Path) -> None:
        draft.mkdir()
        properties = draft / "server.properties"
        write_properties(properties, {**_TEMPLATE, "log.dirs": str(draft / "data")})
        format_storage([program("java"), "-cp", f"{jars}/*"], properties, cluster_id, [])

    template = made_once(jars.with_name(f"{jars.name}-formatted"), formatted)
    data.mkdir(parents=True)
    shutil.copy(template / "data" / _CHECKPOINT, data)
    ids = {"version": "1", "cluster.id": cluster_id, "node.id": str(node_id), "directory.id": new_id()}
    write_properties(data / _IDS, ids)


def format_storage(java: list[str], properties: Path, cluster_id: str, options: list[str]) -> None:
    """Format a broker's storage by Kafka's tool. Raises: BrokerFailedError."""
    # an equals sign keeps an id that begins with a dash from being taken for an option
    arguments = ["format", f"--cluster-id={cluster_id}", "-c", str(properties), *options]
    run([*java, "kafka.tools.StorageTool", *arguments], "formatting the broker's folder")


def write_properties(path: Path, lines: dict[str, str]) -> None:
    """Write a file in the format of Java's properties."""
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))


def new_id() -> str:
    """Return an id as Kafka wants it: 16 bytes in base 64."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def program(name: str) -> str:
    """Return the path of a program. Raises: BrokerToolMissingError."""
    found = shutil.which(name)
    if found is None:
        raise BrokerToolMissingError(
            f"a real Kafka broker needs the program {name}, which is not on the PATH",
            next_step="install Java 17 or newer and Maven (Debian: apt-get install openjdk-17-jre-headless maven)",
        )
    return found


def run(command: list[str], doing: str) -> None:
    """Run a command that must succeed. Raises: BrokerFailedError."""
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace").splitlines()[-20:]
        raise BrokerFailedError(f"{doing} failed with exit code {done.returncode}:\n" + "\n".join(said))

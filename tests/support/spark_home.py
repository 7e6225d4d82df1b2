"""Where the tests' Spark starts from: the installed PySpark's programs and jars, linked into the cache of this machine.

A Java machine loads some ten thousand classes before it answers the first query. An archive of them, which the first
session of a machine makes, saves ten CPU seconds of each later one. Java takes an archive for jars of the same paths
only, and each checkout has an environment of its own, so the jars need a place that all of them share.

Workers import PySpark from the environment, where it is compiled: its zip, which they would read first, has no place
here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from support.machine_cache import java_key, made_once

CACHE: Final = Path.home() / ".cache" / "mailboat"
_PARTS: Final = ("bin", "jars")
_TRAINING: Final = Path(__file__).with_name("spark_training.py")
QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms256m")
"""How a Java machine starts that lives for seconds."""


def spark_home(cache: Path = CACHE) -> Path:
    """The folder for `SPARK_HOME`, made once for each version of PySpark."""
    installed = Path(pyspark.__file__).parent

    def linked(draft: Path) -> None:
        for part in _PARTS:
            shutil.copytree(installed / part, draft / part, copy_function=_link)

    return made_once(cache / f"spark-{pyspark.__version__}", linked)


def class_archive(home: Path) -> Path:
    """The archive for Java machines of this home, made once for each build of Java and each training."""
    training = hashlib.sha256(_TRAINING.read_bytes()).hexdigest()[:12]
    place = home.with_name(f"{home.name}-{training}-{java_key(shutil.which('java') or 'java')}.jsa")
    return made_once(place, lambda draft: _train(home, draft))


@contextmanager
def started_from(home: Path) -> Iterator[None]:
    """Java machines that PySpark starts meanwhile are those of this home."""
    before = os.environ.get("SPARK_HOME")
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SPARK_HOME"]
        else:
            os.environ["SPARK_HOME"] = before


def _train(home: Path, draft: Path) -> None:
    """Do what tests do in a Java machine that archives its classes at its end; Java ignores an empty file."""
    options = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={draft}"))
    with tempfile.TemporaryDirectory(prefix="mailboat-spark-") as folder:
        command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", options]
        environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        subprocess.run([*command, str(_TRAINING), folder], env=environment, capture_output=True, check=False)
    draft.touch()


def _link(source: str, target: str) -> None:
    """Link a file, or copy it with its time where the cache is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


if __name__ == "__main__":  # before tests whose limits would count it
    class_archive(spark_home())

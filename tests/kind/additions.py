"""Programs of Go modules that are added to the test cluster: an image of one static program each, and manifests.

The images are written without an engine and loaded by kind; nothing is pulled. What is there already costs seconds.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from builds import Program, build
from oci import Image


def load_program(environment: Mapping[str, str], cluster: str, name: str, place: str, program: Program) -> str:
    """Build a program and give the cluster an image of it; the image's name.

    Args:
        environment: With which kind and kubectl reach the cluster.
        cluster: The name that kind knows it by.
        name: Of the image, without repository and tag.
        place: Of the program in the image, which runs it.
        program: What to build.
    """
    binary = build(program)
    image = Image(
        f"docker.io/mailboat/{name}:{binary.parent.name}", {place: binary}, entrypoint=(place,), is_static=True
    )
    node = f"{cluster}-control-plane"
    listed = run(environment, "docker", "exec", node, "ctr", "-n", "k8s.io", "images", "ls", "-q")
    if image.name not in listed.split():
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder) / "image.tar"
            image.write(archive)
            run(environment, "kind", "load", "image-archive", str(archive), "--name", cluster)
    return image.name


def apply(environment: Mapping[str, str], manifests: str, *waited: str) -> None:
    """Apply manifests, and wait until what is named is available."""
    run(environment, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-", given=manifests)
    run(environment, "kubectl", "wait", "--for=condition=Available", "--timeout=400s", *waited)


def run(environment: Mapping[str, str], *command: str, given: str = "") -> str:
    """What a program prints. Raises: RuntimeError with its own words."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, input=given, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return done.stdout

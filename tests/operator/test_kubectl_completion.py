"""`kubectl mailboat` completed by kubectl itself: commands of the plug-in, and names of a real API server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BUILDS = Path(__file__).resolve().parents[1] / "kind" / "builds.py"
PROGRAMS = {"kubectl-mailboat": "kubectl", "kubectl_complete-mailboat": "kubectl_completion"}
NO_FILES = ":4"


@pytest.fixture
def environment(api_server: Any, tmp_path: Path) -> dict[str, str]:
    """PATH with kubectl and the programs that the wheel installs."""
    kubebox = subprocess.run([sys.executable, str(BUILDS), "kubebox"], capture_output=True, text=True, check=True)
    (tmp_path / "kubectl").symlink_to(kubebox.stdout.strip())
    for name, module in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!{sys.executable}\nfrom mailboat.cli.{module} import run\nrun()\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "KUBECONFIG": str(api_server.kubeconfig), "HOME": str(tmp_path)}


def completed(environment: dict[str, str], *words: str) -> list[str]:
    """What kubectl offers for the last word, and its directive."""
    command = ["kubectl", "__complete", "mailboat", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


def test_kubectl_completes_commands_and_namespaces(environment: dict[str, str], namespace: str) -> None:
    assert completed(environment, "stat") == ["status", NO_FILES]
    assert namespace in completed(environment, "-n", namespace[:-1])

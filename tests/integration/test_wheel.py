"""The wheel alone, in an environment with nothing but the libraries that it declares: what `pip install` gives."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {
    "boto3", "botocore", "confluent_kafka", "opentelemetry.sdk", "opentelemetry.exporter", "pyspark", "pandas",
    "pyarrow", "aiohttp", "kopf", "lightkube", "pythonjsonlogger", "pytest", "hypothesis", "support",
    "mailboat_operator",
}  # fmt: skip
"""Modules of extras and of the checkout: the environment refuses them. FastAPI needs the API of OpenTelemetry."""
REFUSAL = f"""
import sys
class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name in {sorted(OPTIONAL)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refusal())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, without compiled modules."""
    (made,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    return Path(made)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the unpacked wheel and the locked libraries."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # a folder that a .pth file names is not searched for further .pth files: the checkout stays out of the path
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (site / "sitecustomize.py").write_text(REFUSAL)
    return folder / "bin" / "python"


def test_wheel_holds_no_tests_and_no_servers_of_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    folders = {name.partition("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"mailboat", "mailboat_operator"}
    testing = {Path(name).stem for name in names if name.startswith("mailboat/testing/")}
    assert testing == {
        "__init__", "blob_contract", "clocks", "examples", "job_contract", "journal_contract", "journal_harness",
        "journal_model", "memory_content", "package_contract", "target_contract", "target_model", "trees", "wait",
    }  # fmt: skip
    assert {"mailboat/py.typed", "mailboat_operator/py.typed"} <= set(names)


def test_demo_runs_from_the_wheel_without_extras(python: Path, tmp_path: Path) -> None:
    words = ["--home", str(tmp_path / "boat"), "demo", "--subscribers", "2", "--seconds", "0", "-o", "json"]
    document: Any = json.loads(run(python, "-m", "mailboat.cli", *words, folder=tmp_path))
    assert document["equal"]
    place = run(python, "-c", "import mailboat; print(mailboat.__file__)", folder=tmp_path)
    assert Path(place.strip()).is_relative_to(python.parent.parent)


def run(python: Path, *words: str, folder: Path) -> str:
    # the suite tests compiled modules by this variable, which would hide those of the wheel
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

"""What every test gets: quick hypothesis runs without a deadline, and no settings from the machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("fuzz", deadline=None, max_examples=20_000, suppress_health_check=list(HealthCheck))
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this suite."""
    parser.addoption("--full-length", action="store_true", help="run the benchmarks at the length of `make bench`")


@pytest.fixture(autouse=True)
def _no_settings_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own MAILBOAT_ variables, width or colours change no test."""
    for name in list(os.environ):
        if name.startswith("MAILBOAT_"):
            monkeypatch.delenv(name)
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)

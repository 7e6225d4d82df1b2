"""What every test gets: quick hypothesis runs without a deadline, and no settings from the machine."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from mailboat.clock import SystemClock
from mailboat.testing.kafka_broker import BrokerSettings, KafkaBroker

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


KAFKA_USERS = {"alice": "alice-secret"}


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker for the tests of one process; a test that stops or kills it starts it again."""
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaBroker(BrokerSettings(folder, users=KAFKA_USERS), SystemClock()) as broker:
        yield broker


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the broker's log to the report of a test that failed with it."""
    report = yield
    broker = getattr(item, "funcargs", {}).get("kafka_broker")
    if report.failed and broker is not None:
        report.sections.append((f"end of {broker.log_path}", broker.log_tail()))
    return report

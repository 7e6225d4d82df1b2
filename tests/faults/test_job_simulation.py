"""Seeded runs of workers in memory that crash, stall and lose answers; the fold is the model."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from mailboat.jobs.job_changes import Applied, JobChange
from mailboat.model.jobs import JobState
from support.job_simulation import JobSimulation

SHORT, LONG = 100, 1_100


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thousands of failures are warned of; pytest would format each."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def run_seeds(first: int, last: int) -> None:
    for seed in range(first, last):
        try:
            JobSimulation(seed).run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("first", range(0, SHORT, 50))
def test_no_job_ends_twice_no_limit_is_exceeded_and_order_is_kept(first: int) -> None:
    run_seeds(first, first + 50)


@pytest.mark.long("crashes-and-fuzz")
@pytest.mark.parametrize("first", range(SHORT, LONG, 50))
def test_no_job_ends_twice_over_a_thousand_seeds(first: int) -> None:
    run_seeds(first, first + 50)


def test_the_simulation_notices_a_job_that_ends_twice() -> None:
    simulation = JobSimulation(1)
    simulation.run()
    job = simulation.added[0]
    with pytest.raises(AssertionError, match="ended twice"):
        simulation.check(simulation.topic.fold, Applied([JobChange(JobState.SUCCEEDED, "free", "", [job], [0])]))

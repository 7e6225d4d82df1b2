"""Seeded runs of a whole distribution in memory, with faults and crashes at random failpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.simulation import Simulation

SEEDS = 200
PORTION = 20


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_content_is_the_replay_of_the_log_whatever_fails(tmp_path: Path, first: int) -> None:
    for seed in range(first, first + PORTION):
        try:
            Simulation(seed, tmp_path / str(seed)).run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def test_the_simulation_notices_a_subscriber_that_loses_a_package(tmp_path: Path) -> None:
    simulation = Simulation(1, tmp_path)
    simulation.failpoints.calm()
    simulation.run()
    simulation.store.bodies.popitem()
    with pytest.raises(AssertionError, match="not the replay"):
        simulation.check_content()

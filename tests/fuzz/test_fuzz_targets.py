"""The fuzz targets under hypothesis: sound inputs with a few changes, and noise. `make fuzz` runs them for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fuzzing import TARGETS, seeds

EDITS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 4), st.binary(max_size=4)), min_size=1, max_size=4
)


def edited(seed: bytes, edits: list[tuple[float, int, bytes]]) -> bytes:
    changed = bytearray(seed)
    for where, removed, inserted in edits:
        at = int(where * len(changed))
        changed[at : at + removed] = inserted
    return bytes(changed)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_sound(name: str) -> None:
    for seed in seeds(name):
        TARGETS[name](seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
@given(draw=st.data())
def test_a_changed_input_is_refused_or_holds(name: str, draw: st.DataObject) -> None:
    TARGETS[name](edited(draw.draw(st.sampled_from(seeds(name))), draw.draw(EDITS)))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", TARGETS)
@given(noise=st.binary(max_size=300))
def test_noise_is_refused_or_holds(name: str, noise: bytes) -> None:
    TARGETS[name](noise)

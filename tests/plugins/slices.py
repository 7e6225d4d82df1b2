"""Deselects the tests of `make test-long` (marker `long`) unless `--long SLICE` selects them; see tests/slices.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings
from mailboat.model import paths as compiled_module

TABLE = Path(__file__).resolve().parents[1] / "slices.toml"
ALL = "all"
FUZZ = "crashes-and-fuzz"
"""The slice that also runs every property test, with the examples of the profile `long`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`."""
    known = [slice_["name"] for slice_ in tomllib.loads(TABLE.read_text())["slice"]]
    parser.addoption(
        "--long",
        action="append",
        default=[],
        choices=[*known, ALL],
        help="run the tests that are marked long for this slice, instead of those that are not; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take more examples for a slice; `--hypothesis-profile` says otherwise."""
    config.addinivalue_line("markers", "long(slice): runs in a slice of make test-long only; see tests/slices.toml")
    config.addinivalue_line("markers", "interpreted(reason): is deselected where the modules are compiled by mypyc")
    config.addinivalue_line(
        "markers",
        "rotates(parameter): plain pytest runs one combination for each value of the parameter, with another one of the"
        " other parameters each time; the other combinations are long",
    )
    if config.getoption("--long") and not config.getoption("--hypothesis-profile"):
        settings.load_profile("long")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the chosen slices, or those that belong to none."""
    _hold_back_combinations(items)
    chosen, is_full_length = set(config.getoption("--long")), config.getoption("--full-length")
    is_compiled = not str(compiled_module.__file__).endswith(".py")
    kept = [item for item in items if is_full_length or _is_chosen(item, chosen)]
    kept = [item for item in kept if not is_compiled or item.get_closest_marker("interpreted") is None]
    if len(kept) < len(items):
        chosen_items = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen_items])
        items[:] = kept


def _hold_back_combinations(items: list[pytest.Item]) -> None:
    """Mark all combinations of a rotating test long but one for each value: for the n-th value, the n-th one."""
    tests = dict[str, dict[object, list[pytest.Item]]]()
    for item in items:
        mark = item.get_closest_marker("rotates")
        if mark is not None and isinstance(item, pytest.Function):
            values = tests.setdefault(item.nodeid.partition("[")[0], {})
            values.setdefault(item.callspec.params[mark.args[0]], []).append(item)
    for values in tests.values():
        for number, combinations in enumerate(values.values()):
            kept = combinations[number % len(combinations)]
            for item in combinations:
                if item is not kept:
                    item.add_marker(pytest.mark.long(FUZZ))


def _is_chosen(item: pytest.Item, chosen: set[str]) -> bool:
    slices = {str(mark.args[0]) for mark in item.iter_markers("long")}
    if not chosen:
        return not slices
    is_property = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
    return bool(slices & chosen) or bool(slices and ALL in chosen) or (FUZZ in chosen and is_property)

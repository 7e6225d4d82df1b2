"""Page tokens: pages cover a list once, in a stable order, also while it changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mailboat.control.page_tokens import page_of
from mailboat.errors import UsageError

ITEMS = st.sets(st.tuples(st.text(st.characters(exclude_categories=("Cs",)), max_size=5), st.integers(0, 9)))


def pages(items: set[tuple[str, int]], size: int) -> list[list[tuple[str, int]]]:
    found = []
    token: str | None = None
    while True:
        page, token = page_of(items, lambda one: one, token, size)
        found.append(page)
        if token is None:
            return found


@given(ITEMS, st.integers(1, 4))
def test_pages_cover_every_item_once_in_order(items: set[tuple[str, int]], size: int) -> None:
    found = pages(items, size)
    assert [item for page in found for item in page] == sorted(items)
    assert [len(page) for page in found[:-1]] == [size] * (len(found) - 1)


@given(ITEMS, ITEMS, ITEMS)
def test_items_that_stay_are_shown_once_while_others_come_and_go(
    staying: set[tuple[str, int]], going: set[tuple[str, int]], coming: set[tuple[str, int]]
) -> None:
    first, token = page_of(staying | going, lambda one: one, None, 3)
    rest: list[tuple[str, int]] = []
    if token is not None:
        rest, _ = page_of(staying | coming, lambda one: one, token, 1_000)
    shown = [*first, *rest]
    assert len(shown) == len(set(shown))
    assert staying <= set(shown)


@pytest.mark.parametrize(
    "token", ["", "x", "!", "W10", "WyJhIl0", "WyJhIiwiYiJd", "WzEsMl0", "bnVsbA", "e30", "[" * 3000, "ü"]
)
def test_a_token_of_another_list_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="unknown page token"):
        page_of([("a", 1)], lambda one: one, token, 1)

"""Pages of lists: their parameters, and the `Link` header to the next one.

Called by the routes.

Lists of the log begin at an offset (`from_offset`, `before`), all others behind a token (`page`). In every list
`max_items` bounds the page, and the header `Link` with `rel="next"` leads on, so a client needs no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, TypeVar

from fastapi import Query, Request, Response

from mailboat.api.orders import MAX_PAGE
from mailboat.control.page_tokens import Key, page_of

MAX_TOKEN: Final = 4_000
WHOLE_LIST: Final = 500
"""Items of a page of a list that is short in most systems, so that few callers meet a second page."""

PageToken = Annotated[
    str | None, Query(description="Token of the page, from the `Link` header of the one before.", max_length=MAX_TOKEN)
]
MaxItems = Annotated[int, Query(description="Maximum number of items.", ge=1, le=MAX_PAGE)]
T = TypeVar("T")


def link_next(request: Request, response: Response, token: str | None) -> None:
    """Add the header that leads to the next page, if there is one, with all other parameters as they are."""
    if token is not None:
        following = request.url.include_query_params(page=token)
        response.headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'


def page_and_link(
    items: Iterable[T], key: Callable[[T], Key], token: str | None, max_items: int, call: tuple[Request, Response]
) -> list[T]:
    """The items of a page, and its `Link` header. Raises: UsageError: the token is of another list."""
    page, following = page_of(items, key, token, max_items)
    link_next(*call, following)
    return page

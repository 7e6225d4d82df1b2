"""Mailboat: content distribution over a persisted log.

Publishers turn changes of a content tree into packages, a journal carries them in one order, and every subscriber
imports each package exactly once. `docs/architecture.md` draws the parts; the layers named there are the folders here.

`open` opens a home for a program: `docs/python.md`. Names that are not in `__all__`, here and in the modules that that
page lists, are private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mailboat.library import JobContext, JobHandlers, Mailboat
    from mailboat.library import open_mailboat as open  # noqa: A004

__all__ = ["JobContext", "JobHandlers", "Mailboat", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # the operator and restarting agents import the package and need none of the library
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mailboat import library  # noqa: PLC0415

    return library.open_mailboat if name == "open" else getattr(library, name)

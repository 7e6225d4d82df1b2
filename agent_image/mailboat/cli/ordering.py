"""Asks a publisher for requests through the control port, of a home or of an agent, and tells what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from mailboat.cli.distributions import Followed, end_by, followed, followed_lines, waited_for
from mailboat.cli.rendering import Report, bytes_text
from mailboat.cli.session import Session
from mailboat.clock import SystemClock

if TYPE_CHECKING:
    from mailboat.agent.control.views import DistributionView
    from mailboat.publisher.requests import DistributionRequest


class Ordered(Protocol):
    """Who publishes, and how long the subscribers are waited for."""

    @property
    def publisher(self) -> str | None:
        """Which publisher; None is the configured or only one."""

    @property
    def wait(self) -> float | None:
        """Seconds to wait for the subscribers; None does not wait."""


def order_all(session: Session, requests: Sequence[DistributionRequest], delivery: Ordered) -> None:
    """Publish requests one after the other, wait when asked to, print, and end by what became of them.

    Raises: typer.Exit as `distributions get`, and with 3 where nobody is known to wait for.
    """
    name = session.default_publisher(delivery.publisher)
    clock = SystemClock()
    outcome = None
    with session.control(publishing=name) as control:
        started = clock.monotonic()
        found = [control.distribute(name, _order_of(one)) for one in requests]
        if delivery.wait is not None:
            later = waited_for(control, name, [one.package_id for one in found], clock, delivery.wait)
            found = [replace(new, is_repeat=old.is_repeat) for old, new in zip(found, later, strict=True)]
            outcome = followed(control, found, clock.monotonic() - started)
    session.show(_report(found, outcome))
    if outcome is not None:
        end_by(found)


def _order_of(request: DistributionRequest) -> Any:
    from mailboat.agent.control.views import DistributionOrder

    return DistributionOrder(
        str(request.action), request.paths, tuple(sorted(request.deep_paths)), request_id=request.request_id
    )


def _report(found: Sequence[DistributionView], outcome: Followed | None) -> Report:
    return Report(
        {"packages": [asdict(one) for one in found]},
        [one.package_id for one in found],
        lambda: list(_lines(found, outcome)),
    )


def _lines(found: Sequence[DistributionView], outcome: Followed | None) -> Iterator[str]:
    for one in found:
        yield f"{one.package_id}  offset {one.offset}  {request_text(one.action, one.paths)}{_remark(one)}"
    if outcome is not None:
        yield from followed_lines(outcome)


def _remark(one: DistributionView) -> str:
    if one.is_repeat:
        return "  published before, nothing sent"
    return f"  {bytes_text(one.package_bytes)}" if one.package_bytes else ""


def request_text(action: str, paths: Sequence[str]) -> str:
    """What was asked for; TEST names no path."""
    return f"{action} {paths_text(paths)}".rstrip()


def paths_text(paths: Sequence[str]) -> str:
    """The first paths of a request, and how many there are."""
    first = " ".join(paths[:3])
    return f"{first} … {len(paths)} paths" if len(paths) > 3 else first

"""What was published, for people and programs: the same report for a home and for an agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mailboat.api.records import DistributionView, document_of
from mailboat.cli.distributions import Followed, followed_lines
from mailboat.cli.output import Report, bytes_text, count_text
from mailboat.model.messages import Action
from mailboat.publisher.appender import Receipt

_FOLLOWER_FIELDS = ("state", "imported", "waiting", "removed", "failed", "skipped", "unknown")


class Published(NamedTuple):
    """A published package. Unknown values are None: figures of a repeat, and of packages built by an agent."""

    package_id: str
    offset: int
    action: str
    paths: Sequence[str]
    request_id: str | None
    repeated: bool
    nodes: int | None = None
    removed: int | None = None
    package_bytes: int | None = None
    content_bytes: int | None = None
    inline: bool | None = None


def published_here(one: Receipt) -> Published:
    """Of a receipt, which a publisher of this process gave."""
    known = Published(one.package_id, one.offset, str(one.action), one.paths, one.request_id, one.is_repeat)
    if one.is_repeat:
        return known._replace(removed=None if one.action is Action.ADD else one.removed)
    return known._replace(
        nodes=one.nodes,
        removed=one.removed,
        package_bytes=one.package_bytes,
        content_bytes=one.content_bytes,
        inline=one.is_inline,
    )


def published_elsewhere(one: DistributionView) -> Published:
    """Of an answer of the control port."""
    size = None if one.repeated else one.package_bytes
    return Published(
        one.package_id, one.offset, one.action, one.paths, one.request_id, one.repeated, package_bytes=size
    )


def published_report(packages: Sequence[Published], outcome: Followed | None = None) -> Report:
    """The packages, and their outcomes where the command waited for them."""
    document: dict[str, Any] = {"packages": [{**one._asdict(), "paths": list(one.paths)} for one in packages]}
    if outcome is not None:
        view = document_of(outcome.view)
        document["followers"] = {
            **{name: view[name] for name in _FOLLOWER_FIELDS},
            "states": dict(outcome.states),
            "seconds": round(outcome.seconds, 3),
        }

    def lines() -> list[str]:
        return [*published_lines(packages), *([] if outcome is None else followed_lines(outcome))]

    return Report(document, [one.package_id for one in packages], lines)


def published_lines(packages: Sequence[Published]) -> Iterator[str]:
    """A line for each package."""
    if not packages:
        yield "nothing to publish"
    for one in packages:
        remark = "published before, nothing sent" if one.repeated else _figures_text([one])
        line = f"{one.package_id}  offset {one.offset}  {request_text(_action_text(one), one.paths)}"
        yield f"{line}  {remark}" if remark else line
    if len(packages) > 1:
        yield f"{count_text(len(packages), 'package')} in total: {_figures_text(packages) or 'no content'}"


def _action_text(one: Published) -> str:
    """What was sent, for people: an ADD also removes what it covers and does not carry."""
    if one.action != Action.ADD or not one.removed:
        return one.action
    return "ADD and DELETE" if one.nodes else "removes"


def _figures_text(packages: Sequence[Published]) -> str:
    """Sizes of content and package; they differ, as large binaries travel outside their package."""
    nodes, removed = sum(one.nodes or 0 for one in packages), sum(one.removed or 0 for one in packages)
    content = sum(one.content_bytes or 0 for one in packages)
    sent = sum(one.package_bytes or 0 for one in packages)
    figures = [count_text(nodes, "node")] if nodes else []
    figures += [count_text(removed, "delete")] if removed else []
    figures += [f"{bytes_text(content)} content"] if content else []
    figures += [f"{bytes_text(sent)} {'package' if len(packages) == 1 else 'packages'}"] if sent else []
    return ", ".join(figures)


def request_text(action: str, paths: Sequence[str]) -> str:
    """What was asked for; TEST names no path."""
    return f"{action} {paths_text(paths)}".rstrip()


def paths_text(paths: Sequence[str]) -> str:
    """The first paths of a request, and how many there are."""
    first = " ".join(paths[:3])
    return f"{first} … {len(paths)} paths" if len(paths) > 3 else first

"""What was published, for people and programs: the same report for a home and for an agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mailboat.api.records import DistributionView, document_of
from mailboat.cli.distributions import Followed, followed_lines
from mailboat.cli.output import Report, bytes_text, count_text
from mailboat.model.messages import Action

_PACKAGE_FIELDS = (
    *("package_id", "offset", "action", "paths", "request_id", "repeated"),
    *("nodes", "package_bytes", "content_bytes", "inline"),
)
_FOLLOWER_FIELDS = ("state", "imported", "waiting", "removed", "failed", "skipped", "unknown")


def published_report(packages: Sequence[DistributionView], outcome: Followed | None = None) -> Report:
    """The packages, and their outcomes where the command waited for them."""
    document: dict[str, Any] = {"packages": [_document(package) for package in packages]}
    if outcome is not None:
        view = document_of(outcome.view)
        document["followers"] = {
            **{name: view[name] for name in _FOLLOWER_FIELDS},
            "states": dict(outcome.states),
            "seconds": round(outcome.seconds, 3),
        }

    def lines() -> list[str]:
        return [*published_lines(packages), *([] if outcome is None else followed_lines(outcome))]

    return Report(document, [package.package_id for package in packages], lines)


def _document(one: DistributionView) -> dict[str, Any]:
    """What is known at the moment of the publish; figures of a repeat are not."""
    document = {name: getattr(one, name) for name in _PACKAGE_FIELDS}
    document["removed"] = one.removed_paths
    return document | {"paths": list(one.paths), "package_bytes": None if one.repeated else one.package_bytes}


def published_lines(packages: Sequence[DistributionView]) -> Iterator[str]:
    """A line for each package."""
    if not packages:
        yield "nothing to publish"
    for package in packages:
        remark = "published before, nothing sent" if package.repeated else _figures_text([package])
        line = f"{package.package_id}  offset {package.offset}  {request_text(_action_text(package), package.paths)}"
        yield f"{line}  {remark}" if remark else line
    if len(packages) > 1:
        yield f"{count_text(len(packages), 'package')} in total: {_figures_text(packages) or 'no content'}"


def _action_text(one: DistributionView) -> str:
    """What was sent, for people: an ADD also removes what it covers and does not carry."""
    if one.action != Action.ADD or not one.removed_paths:
        return one.action
    return "ADD and DELETE" if one.nodes else "removes"


def _figures_text(packages: Sequence[DistributionView]) -> str:
    """Sizes of content and package; they differ, as large binaries travel outside their package."""
    nodes = sum(package.nodes or 0 for package in packages)
    removed = sum(package.removed_paths or 0 for package in packages if package.action == Action.ADD)
    content = sum(package.content_bytes or 0 for package in packages)
    sent = sum(0 if package.repeated else package.package_bytes for package in packages)
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

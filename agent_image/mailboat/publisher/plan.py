"""What a publish would ship. Changes nothing: no message, no blob, no state."""

from __future__ import annotations

from dataclasses import dataclass

from mailboat.model.paths import NodePath


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """What would be shipped.

    Attributes:
        packages: How many packages.
        nodes: Nodes in them.
        files: Those of them that are files.
        content_bytes: Bytes of their values and binaries.
        deletes: Subtrees that would be removed.
        largest_package_bytes: Content of the largest package.
        first_paths: Some of the paths, for people: at most 20.
    """

    packages: int = 0
    nodes: int = 0
    files: int = 0
    content_bytes: int = 0
    deletes: int = 0
    largest_package_bytes: int = 0
    first_paths: tuple[NodePath, ...] = ()

"""What a publisher answers: the receipt of a request."""

from __future__ import annotations

from dataclasses import dataclass

from mailboat.model.identifiers import Offset, PackageId, RequestId
from mailboat.model.messages import Action
from mailboat.model.paths import NodePath
from mailboat.model.requests import DistributionRequest
from mailboat.publisher.appending import Placed
from mailboat.publisher.packaging import BuiltPackage


@dataclass(frozen=True, slots=True)
class Receipt:
    """That a request's message is durable in the journal.

    Attributes:
        action: What was asked for.
        paths: The request's paths; empty in the receipt of a repeated request found only in the state.
        package_id: The package.
        offset: The message's place on the package topic.
        request_id: The caller's id, or the one that the publisher made.
        is_repeat: The request was published before; nothing was appended now.
        nodes: Nodes in the package.
        removed: Paths that the package removes (DELETE, and the deletes of `publish_changed`).
        package_bytes: Size of the package.
        content_bytes: Bytes of all binaries, wherever they travel.
        is_inline: The package travels in the message, not through the blob store.
    """

    action: Action
    paths: tuple[NodePath, ...]
    package_id: PackageId
    offset: Offset
    request_id: RequestId
    is_repeat: bool = False
    nodes: int = 0
    removed: int = 0
    package_bytes: int = 0
    content_bytes: int = 0
    is_inline: bool = True


def receipt_of(
    request: DistributionRequest,
    request_id: RequestId,
    placed: Placed,
    built: BuiltPackage | None = None,
    *,
    removed: int = 0,
) -> Receipt:
    """The receipt of a request that stands at a place; figures are known of what was built just now."""
    if request.action is Action.DELETE:
        removed = len(request.paths)
    if built is None or built.summary is None or placed.is_repeat:
        return Receipt(
            request.action,
            request.paths,
            placed.package_id,
            placed.offset,
            request_id,
            placed.is_repeat,
            removed=removed,
        )
    return Receipt(
        request.action,
        request.paths,
        placed.package_id,
        placed.offset,
        request_id,
        nodes=built.summary.node_count,
        removed=removed,
        package_bytes=built.summary.length_bytes,
        content_bytes=built.summary.content_bytes,
        is_inline=built.message.payload is not None,
    )

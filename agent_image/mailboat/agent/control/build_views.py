"""What a control port answers about bulk builds: records of plain values, as in `views.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildFollowerView:
    """How far a subscriber is with a build.

    Attributes:
        name: The subscriber.
        imported: Packages of the build before its position.
        state: One of the subscriber's phases, or `silent`, `new`.
    """

    name: str
    imported: int
    state: str


@dataclass(frozen=True, slots=True)
class BuildView:
    """A bulk build, as the log tells it.

    Attributes:
        build_id: The build.
        publisher: Who publishes it.
        state: `publishing` until its last package stands in the log, then `published`; `distributed` when all known
            subscribers of the publisher are past it.
        published: How many of its packages stand in the log.
        total: How many it has.
        package_bytes: Of those that stand in the log.
        first_offset: Where the first of them stands.
        last_offset: Where the last of them stands so far.
        first_published_ms: When the log took the first one.
        last_published_ms: When it took the last one so far.
        subscribers: How far everybody is who follows the publisher.
    """

    build_id: str
    publisher: str
    state: str
    published: int
    total: int
    package_bytes: int
    first_offset: int
    last_offset: int
    first_published_ms: int
    last_published_ms: int
    subscribers: tuple[BuildFollowerView, ...] = ()

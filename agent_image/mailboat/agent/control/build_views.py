"""What a control port answers about bulk builds: records of plain values, as in `views.py`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BuildFollowerView:
    """What became of a build's packages at a subscriber. Each package that the log holds is in exactly one count.

    Attributes:
        name: The subscriber.
        imported: Packages that it imported.
        state: One of the subscriber's phases, or `silent`, `new`.
        pending: Packages that it has still to import.
        skipped: Packages that it passed because its golden subscriber did not import them, or that are older than its
            subscription.
        dropped: Packages that a clear command dropped.
        given_up: Packages in its error queue.
        unknown: Packages that it passed, where an import cannot be known.
    """

    name: str
    imported: int
    state: str
    pending: int = 0
    skipped: int = 0
    dropped: int = 0
    given_up: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class BuildView:
    """A bulk build, as the log tells it.

    Attributes:
        build_id: The build.
        publisher: Who publishes it.
        state: `publishing` until its last package stands in the log, then `published` while a subscriber of the
            publisher has packages to import; then `distributed` if all imported all of them, else `incomplete`.
            `failed` as soon as a subscriber gave up one of them.
        published: How many of its packages stand in the log.
        total: How many it has.
        package_bytes: Of those that stand in the log.
        first_offset: Where the first of them stands.
        last_offset: Where the last of them stands so far.
        first_published_ms: When the log took the first one.
        last_published_ms: When it took the last one so far.
        subscribers: What became of it at each subscriber that follows the publisher.
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

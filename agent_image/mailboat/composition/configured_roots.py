"""The roots that the configuration gives subscribers, by the name of a subscriber and by its target.

They hold on every road into a target: for agents, for `mailboat subscribe` and for snapshots that are restored.
"""

from __future__ import annotations

from mailboat.composition.home import Home
from mailboat.composition.places import absolute_target
from mailboat.config.document import Config
from mailboat.content.locations import parse_target
from mailboat.model.identifiers import AgentName
from mailboat.model.paths import NodePath, parse_path


def configured_roots(config: Config, name: AgentName) -> tuple[NodePath, ...]:
    """The roots that the configuration gives a subscriber of that name: they hold for a start by hand, too."""
    return next(
        (
            tuple(map(parse_path, subscriber.roots))
            for subscriber in config.agents.subscribers
            if subscriber.name == name
        ),
        (),
    )


def roots_of_target(home: Home, target: str) -> tuple[NodePath, ...]:
    """The roots of the subscriber that imports into a target, by whatever path the target is named.

    A target of several subscribers belongs to the first of them that has roots. Raises: UsageError.
    """
    place = parse_target(absolute_target(target)).path.resolve()
    users = [
        (home.resolve(subscriber.target), AgentName(subscriber.name)) for subscriber in home.config.agents.subscribers
    ]
    users += [(subscriber.target, subscriber.name) for subscriber in home.known_subscribers()]
    found = (configured_roots(home.config, name) for used, name in users if parse_target(used).path.resolve() == place)
    return next(filter(None, found), ())

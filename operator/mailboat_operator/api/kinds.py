"""All kinds, in the order in which they depend on each other."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from mailboat_operator.api.build import PACKAGE_BUILD, PackageBuild
from mailboat_operator.api.distribution import DISTRIBUTION, Distribution
from mailboat_operator.api.journal import JOURNAL, Journal
from mailboat_operator.api.kind import Kind
from mailboat_operator.api.pool import POOL, SubscriberPool
from mailboat_operator.api.publisher import PUBLISHER, Publisher
from mailboat_operator.api.topic import TOPIC, Topic

KINDS: Final[tuple[Kind[Any], ...]] = (JOURNAL, TOPIC, PUBLISHER, POOL, DISTRIBUTION, PACKAGE_BUILD)
KINDS_BY_NAME: Final = MappingProxyType({kind.name: kind for kind in KINDS})

Resource = Journal | Topic | Publisher | SubscriberPool | Distribution | PackageBuild
"""An object of any kind."""

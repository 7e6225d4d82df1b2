"""All kinds, in the order in which they depend on each other."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from mailboat_operator.definition.kind import Kind
from mailboat_operator.definition.resource_decoder import decode_one_of
from mailboat_operator.kinds.distribution.spec import DISTRIBUTION, Distribution
from mailboat_operator.kinds.job_queue.spec import JOB_QUEUE, JobQueue
from mailboat_operator.kinds.job_schedule.spec import JOB_SCHEDULE, JobSchedule
from mailboat_operator.kinds.journal.spec import JOURNAL, Journal
from mailboat_operator.kinds.package_build.spec import PACKAGE_BUILD, PackageBuild
from mailboat_operator.kinds.publisher.spec import PUBLISHER, Publisher
from mailboat_operator.kinds.subscriber_pool.spec import POOL, SubscriberPool
from mailboat_operator.kinds.topic.spec import TOPIC, Topic

KINDS: Final[tuple[Kind[Any], ...]] = (
    JOURNAL,
    TOPIC,
    PUBLISHER,
    POOL,
    DISTRIBUTION,
    PACKAGE_BUILD,
    JOB_QUEUE,
    JOB_SCHEDULE,
)
KINDS_BY_NAME: Final = MappingProxyType({kind.name: kind for kind in KINDS})

Resource = Journal | Topic | Publisher | SubscriberPool | Distribution | PackageBuild | JobQueue | JobSchedule
"""An object of any kind."""


def decode(manifest: object) -> Resource:
    """Read an object of any kind, as the API server or YAML gave it. Raises: ResourceInvalidError."""
    resource: Resource = decode_one_of(KINDS_BY_NAME, manifest)
    return resource

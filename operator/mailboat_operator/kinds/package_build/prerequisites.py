"""What a build stands on: publisher, journal, bucket, source, image and a Spark operator; nothing begins without one.

Called by `plan_build`, which goes on where everything is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from mailboat.api.records import BuildView
from mailboat.frozen import Frozen

from mailboat_operator.kinds.journal.spec import Journal
from mailboat_operator.kinds.package_build.manifests import SparkRun, application_name, owner_of_build
from mailboat_operator.kinds.package_build.spec import PackageBuild, SparkOperator
from mailboat_operator.kinds.publisher.spec import Publisher
from mailboat_operator.kinds.workload_context import WorkloadContext, usable_journal
from mailboat_operator.plan.child_manifest import APACHE_APPLICATION, KUBEFLOW_APPLICATION, ChildKey
from mailboat_operator.plan.children import name_conflict
from mailboat_operator.plan.findings import Finding, stalled
from mailboat_operator.workload.mounts import CONFIG_ENDING
from mailboat_operator.workload.pods import AgentImage

APPLICATIONS: Final = MappingProxyType(
    {SparkOperator.KUBEFLOW: KUBEFLOW_APPLICATION, SparkOperator.APACHE: APACHE_APPLICATION}
)
_SITES: Final = MappingProxyType(
    {
        SparkOperator.KUBEFLOW: "https://kubeflow.github.io/spark-operator",
        SparkOperator.APACHE: "https://apache.github.io/spark-kubernetes-operator",
    }
)


class BuildObservation(Frozen):
    """What was observed around a build.

    Attributes:
        context: The journal, its Secrets, and the children of the names that are wanted.
        publisher: In whose name it is built; None if absent, or not understood.
        is_served: Whether the Spark operator that it asks for is installed.
        progress: State of its packages; None if no agent answered, or if no package is published yet.
        is_asked: Whether a publisher's agent answered, if one had to be asked.
        image: What driver and executors run where the build names nothing; None for no such setting.
    """

    context: WorkloadContext
    publisher: Publisher | None
    is_served: bool = True
    progress: BuildView | None = None
    is_asked: bool = True
    image: AgentImage | None = None


def application_key(build: PackageBuild, attempt: int) -> ChildKey:
    """The application of an attempt."""
    return ChildKey(APPLICATIONS[build.spec.engine], application_name(build, attempt))


def build_keys(build: PackageBuild, *, is_served: bool) -> Sequence[ChildKey]:
    """The children to read: the configuration, and the applications of this attempt and the next."""
    attempt = build.status.attempt or 1
    config = ChildKey("ConfigMap", owner_of_build(build).name_of(CONFIG_ENDING))
    return [config, *(application_key(build, number) for number in (attempt, attempt + 1) if is_served)]


def run_of_attempt(build: PackageBuild, seen: BuildObservation) -> SparkRun | Sequence[Finding]:
    """The current attempt, or why nothing can be asked for at the moment."""
    publisher = seen.publisher
    if publisher is None:
        return stalled("PublisherMissing", f"no valid Publisher {build.spec.publisher_ref.name}")
    journal = usable_journal(build.metadata, publisher.spec.journal_ref.name, seen.context, (), suspend=False)
    if not isinstance(journal, Journal):
        return journal
    source = publisher.spec.source if build.spec.source is None else build.spec.source
    image = _image_of(build, seen.image)
    if journal.spec.blobs is None or source is None or image is None:
        return stalled(*_lacking(publisher, journal, has_source=source is not None))
    if not seen.is_served:
        return stalled("EngineMissing", _engine_missing(build.spec.engine))
    run = SparkRun(build, build.status.attempt or 1, publisher, journal.spec, source, image)
    wanted = [run.config, run.application, replace(run, number=run.number + 1).application]
    return name_conflict(wanted, seen.context.children, build.metadata.uid) or run


def _lacking(publisher: Publisher, journal: Journal, *, has_source: bool) -> tuple[str, str]:
    if journal.spec.blobs is None:
        bucket = "no bucket, which driver and executors need to share packages: set blobs"
        return "BucketMissing", f"Journal {journal.metadata.name} has {bucket}"
    if not has_source:
        return "SourceMissing", f"no source: set source here or in Publisher {publisher.metadata.name}"
    return "ImageMissing", "no image for Spark's pods: set image, or the chart's sparkImage"


def _image_of(build: PackageBuild, usual: AgentImage | None) -> AgentImage | None:
    own = build.spec.image
    if own is None:
        return usual
    return AgentImage(own) if usual is None else replace(usual, name=own)


def _engine_missing(engine: SparkOperator) -> str:
    group = APPLICATIONS[engine].partition(".")[2]
    return (
        f"there is no SparkApplication of {group} here, or the operator may not see it: "
        f"install that Spark operator ({_SITES[engine]}), or make a PackageBuild of the other engine"
    )

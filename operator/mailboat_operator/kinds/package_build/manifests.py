"""What a bulk build asks of Spark, in words that neither of its operators has: pods, arguments, settings.

`kubeflow_application` and `apache_application` write it down for their operator. Pods are restricted ones, like
agents': no root, no capabilities, a root file system that can't be written. Only the driver speaks to the Kubernetes
API. Credentials are files of mounted Secrets, in driver and executors alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from mailboat.config.document import AgentsConfig, Config, HttpConfig
from mailboat.config.receivers import EventsConfig
from mailboat.frozen import Frozen

from mailboat_operator.kinds.journal.agent_config import journal_mounts
from mailboat_operator.kinds.journal.spec import JournalSpec
from mailboat_operator.kinds.package_build.spec import Driver, Executors, PackageBuild, SparkOperator
from mailboat_operator.kinds.publisher.manifests import SOURCE_FOLDER, publisher_config, source_mount, source_volume
from mailboat_operator.kinds.publisher.spec import Publisher, Source
from mailboat_operator.plan.child_manifest import APACHE_APPLICATION, KUBEFLOW_APPLICATION, Manifest, Owner
from mailboat_operator.plan.labels import BUILD
from mailboat_operator.workload.agent_manifests import config_map
from mailboat_operator.workload.mounts import CONFIG_ENDING, CONFIG_FILE, CONFIG_FOLDER, HOME_FOLDER
from mailboat_operator.workload.pods import AGENT_SECURITY, TMP_MOUNT, AgentImage, restricted

SPARK_VERSION: Final = "4.3.0"
"""That of requirements/spark.txt, which the image holds."""
DRIVER_FILE: Final = "local:///opt/mailboat/mailboat.py"
"""The command line, in a file that Spark takes for Python."""
DRIVER_CONTAINER: Final = "spark-kubernetes-driver"
EXECUTOR_CONTAINER: Final = "spark-kubernetes-executor"

_MEBIBYTE: Final = 1 << 20
_SETTINGS: Final = MappingProxyType(
    {
        "spark.kubernetes.driver.podTemplateContainerName": DRIVER_CONTAINER,
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR_CONTAINER,
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",  # no right over claims is needed then
        "spark.ui.enabled": "false",  # progress is in the resource, and a port less is open
    }
)


class SparkRun(Frozen):
    """One attempt of a build, with everything that its application is rendered from.

    Attributes:
        build: Which.
        number: Of the attempt, from 1.
        publisher: In whose name it is built.
        journal: Where it is published.
        source: What is read.
        image: What driver and executors run.
    """

    build: PackageBuild
    number: int
    publisher: Publisher
    journal: JournalSpec
    source: Source
    image: AgentImage

    @property
    def owner(self) -> Owner:
        """Whose children these are."""
        return owner_of_build(self.build)

    @property
    def source_folder(self) -> str:
        """Path of the source in all pods: a build removes what the source of this path no longer has."""
        claim = self.source.volume_claim
        return "/".join([SOURCE_FOLDER, claim.name, *([] if claim.folder is None else [claim.folder])])

    @property
    def arguments(self) -> list[str]:
        """Of the command line."""
        spec = self.build.spec
        return [
            "bulk",
            "build",
            self.source_folder,
            *(root.replace("$", "$$") for root in spec.roots),  # the kubelet replaces $(NAME) in arguments
            f"--into={CONFIG_FOLDER}/{CONFIG_FILE}",
            f"--home={HOME_FOLDER}",
            f"--build-id={build_id_of(self.build)}",
            f"--budget={spec.budget.size_bytes}",
            f"--nodes={spec.budget.nodes}",
            "--master=submitted",
            # only then: an image of an earlier version refuses an option that it does not know
            *(["--allow-unreadable"] if spec.allow_unreadable else ()),
        ]

    @property
    def config(self) -> Manifest:
        """The ConfigMap, which the driver reads: the same for all attempts."""
        return config_map(self.owner, driver_config(self.publisher, self.journal))

    @property
    def application(self) -> Manifest:
        """The SparkApplication, as its operator reads it."""
        render = kubeflow_application if self.build.spec.engine is SparkOperator.KUBEFLOW else apache_application
        return render(self)


def build_id_of(build: PackageBuild) -> str:
    """Names the build in the journal: that of this very object, so that each attempt goes on where the last stopped."""
    return build.status.build_id or build.metadata.uid


def owner_of_build(build: PackageBuild) -> Owner:
    """Whose children these are."""
    return Owner("PackageBuild", BUILD, build.metadata)


def application_name(build: PackageBuild, attempt: int) -> str:
    """What the application of an attempt is called, so that none is mistaken for the one before."""
    return owner_of_build(build).name_of(str(attempt))


def driver_config(publisher: Publisher, journal: JournalSpec) -> Config:
    """The publisher's configuration, without listeners and without events to others."""
    return replace(
        publisher_config(publisher, journal), http=HttpConfig(), agents=AgentsConfig(), events=EventsConfig()
    )


def memory(amount: Driver | Executors) -> str:
    """Memory as Java writes it."""
    return f"{-(-amount.memory_bytes // _MEBIBYTE)}m"


def cpu_request(amount: Driver | Executors) -> str:
    """CPU that a pod is promised."""
    return str(amount.cores) if amount.cpu_request is None else amount.cpu_request


def _template(run: SparkRun, container: str) -> Manifest:
    spec, wanted = run.build.spec, run.build.spec.template
    secrets = tuple(dict.fromkeys((*spec.image_pull_secrets, *wanted.spec.image_pull_secrets)))
    metadata: Manifest = {"labels": {**wanted.metadata.labels, **run.owner.labels}}
    if wanted.metadata.annotations:
        metadata["annotations"] = dict(wanted.metadata.annotations)
    return {
        "metadata": metadata,
        "spec": {
            **restricted(replace(wanted.spec, image_pull_secrets=secrets), run.owner.labels, None),
            # the driver makes the executors through the API; these need nothing of the cluster
            "automountServiceAccountToken": container == DRIVER_CONTAINER,
            "containers": [
                {
                    "name": container,
                    "image": run.image.name,
                    "securityContext": {**AGENT_SECURITY},
                    "volumeMounts": list(_mounts(run)),
                }
            ],
            "volumes": _volumes(run),
        },
    }


def _mounts(run: SparkRun) -> Iterator[Mapping[str, Any]]:
    yield {"name": "mailboat-config", "mountPath": CONFIG_FOLDER, "readOnly": True}
    yield {"name": "home", "mountPath": HOME_FOLDER}
    yield {**TMP_MOUNT}
    yield source_mount(run.source, run.source_folder)
    yield from (secret.volume_mount for secret in journal_mounts(run.journal))


def _volumes(run: SparkRun) -> Sequence[Mapping[str, Any]]:
    return [
        {"name": "mailboat-config", "configMap": {"name": run.owner.name_of(CONFIG_ENDING)}},
        {"name": "home", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        source_volume(run.source),
        *(secret.volume for secret in journal_mounts(run.journal)),
    ]


def kubeflow_application(run: SparkRun) -> Manifest:
    """One attempt."""
    spec = run.build.spec
    content = {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": run.image.name,
        **({} if run.image.pull_policy is None else {"imagePullPolicy": run.image.pull_policy}),
        "mainApplicationFile": DRIVER_FILE,
        "arguments": run.arguments,
        "sparkConf": dict(_SETTINGS),
        "restartPolicy": {"type": "Never"},
        "driver": {
            "cores": spec.driver.cores,
            "coreRequest": cpu_request(spec.driver),
            "memory": memory(spec.driver),
            "serviceAccount": spec.service_account_name,
            "template": _template(run, DRIVER_CONTAINER),
        },
        "executor": {
            "instances": spec.executors.instances,
            "cores": spec.executors.cores,
            "coreRequest": cpu_request(spec.executors),
            "memory": memory(spec.executors),
            "template": _template(run, EXECUTOR_CONTAINER),
        },
    }
    return run.owner.child(KUBEFLOW_APPLICATION, str(run.number), {"spec": content})


_MILLISECONDS: Final = 1000


def apache_application(run: SparkRun) -> Manifest:
    """One attempt."""
    spec = run.build.spec
    deadline_ms = round(spec.start_deadline_seconds * _MILLISECONDS)
    content = {
        "deploymentMode": "ClusterMode",
        "runtimeVersions": {"sparkVersion": SPARK_VERSION},
        "pyFiles": DRIVER_FILE,
        "driverArgs": run.arguments,
        "sparkConf": _settings(run),
        "driverSpec": {"podTemplateSpec": _template(run, DRIVER_CONTAINER)},
        "executorSpec": {"podTemplateSpec": _template(run, EXECUTOR_CONTAINER)},
        "applicationTolerations": {
            "restartConfig": {"restartPolicy": "Never"},
            "resourceRetainPolicy": "OnFailure",
            "instanceConfig": {"initExecutors": 1, "minExecutors": 0, "maxExecutors": spec.executors.instances},
            "applicationTimeoutConfig": {
                "driverStartTimeoutMillis": deadline_ms,
                "driverReadyTimeoutMillis": deadline_ms,
                "executorStartTimeoutMillis": 0,  # none: whether executors are needed the operator does not know
            },
        },
    }
    return run.owner.child(APACHE_APPLICATION, str(run.number), {"spec": content})


def _settings(run: SparkRun) -> dict[str, str]:
    spec, image = run.build.spec, run.image
    policy = {} if image.pull_policy is None else {"spark.kubernetes.container.image.pullPolicy": image.pull_policy}
    return {
        **_SETTINGS,
        **policy,
        "spark.app.name": application_name(run.build, run.number),
        "spark.kubernetes.container.image": image.name,
        "spark.kubernetes.authenticate.driver.serviceAccountName": spec.service_account_name,
        "spark.kubernetes.driver.request.cores": cpu_request(spec.driver),
        "spark.kubernetes.executor.request.cores": cpu_request(spec.executors),
        "spark.driver.cores": str(spec.driver.cores),
        "spark.driver.memory": memory(spec.driver),
        "spark.executor.instances": str(spec.executors.instances),
        "spark.executor.cores": str(spec.executors.cores),
        "spark.executor.memory": memory(spec.executors),
    }

"""A bulk build for Apache's own operator: `SparkApplication` of spark.apache.org/v1.

Image, account and sizes are settings of Spark's there. Attempts are ours, so it is told to make none; what it made
stays after a failure, for the driver's log, and goes with the attempt.
"""

from __future__ import annotations

from typing import Final

from mailboat_operator.manifests.children import APACHE_APPLICATION, Manifest
from mailboat_operator.manifests.spark import (
    DRIVER_FILE,
    SPARK_VERSION,
    SparkRun,
    cpu_request,
    driver_template,
    executor_template,
    memory,
)

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
        "driverSpec": {"podTemplateSpec": driver_template(run)},
        "executorSpec": {"podTemplateSpec": executor_template(run)},
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
    return run.owner.child(APACHE_APPLICATION, run.ending, {"spec": content})


def _settings(run: SparkRun) -> dict[str, str]:
    spec, image = run.build.spec, run.image
    policy = {} if image.pull_policy is None else {"spark.kubernetes.container.image.pullPolicy": image.pull_policy}
    return {
        **run.settings,
        **policy,
        "spark.app.name": run.name,
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

"""A bulk build for kubeflow's operator: `SparkApplication` of sparkoperator.k8s.io/v1beta2.

Attempts are ours, so it is told to make none: each of ours is an application of its own, and is never changed, since a
change would make that operator run it again.
"""

from __future__ import annotations

from mailboat_operator.manifests.children import KUBEFLOW_APPLICATION, Manifest
from mailboat_operator.manifests.spark import (
    DRIVER_FILE,
    SPARK_VERSION,
    SparkRun,
    cpu_request,
    driver_template,
    executor_template,
    memory,
)


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
        "sparkConf": run.settings,
        "restartPolicy": {"type": "Never"},
        "driver": {
            "cores": spec.driver.cores,
            "coreRequest": cpu_request(spec.driver),
            "memory": memory(spec.driver),
            "serviceAccount": spec.service_account_name,
            "template": driver_template(run),
        },
        "executor": {
            "instances": spec.executors.instances,
            "cores": spec.executors.cores,
            "coreRequest": cpu_request(spec.executors),
            "memory": memory(spec.executors),
            "template": executor_template(run),
        },
    }
    return run.owner.child(KUBEFLOW_APPLICATION, run.ending, {"spec": content})

"""What the two operators for Spark take of a SparkApplication, in our own words: the fields that we
use, and their types. Their definitions are a megabyte each; against those it was checked by hand,
with the API server's own strict validation (Apache 1.1, Kubeflow 2.5).
"""

from __future__ import annotations

from typing import Any

from logpipeline_operator.cluster.kinds import SPARK_APACHE, SPARK_KUBEFLOW

Shape = dict[str, Any]

# Of a map with free names, the type of its values.
ANY = "*"
POD: Shape = {"metadata": {ANY: dict}, "spec": {ANY: object}}
_KUBEFLOW_POD: Shape = {"memory": str, "serviceAccount": str, "template": POD}
SHAPES: dict[str, Shape] = {
    SPARK_APACHE: {
        "runtimeVersions": {"sparkVersion": str},
        "deploymentMode": ("ClusterMode", "ClientMode"),
        "pyFiles": str,
        "driverArgs": [str],
        "sparkConf": {ANY: str},
        "applicationTolerations": {
            "resourceRetainPolicy": ("Always", "OnFailure", "Never"),
            "restartConfig": {
                "restartPolicy": ("Always", "Never", "OnFailure", "OnInfrastructureFailure"),
                "maxRestartAttempts": int,
                "restartBackoffMillis": int,
                "restartCounterResetMillis": int,
            },
        },
        "driverSpec": {"podTemplateSpec": POD},
        "executorSpec": {"podTemplateSpec": POD},
    },
    SPARK_KUBEFLOW: {
        "type": ("Java", "Scala", "Python", "R"),
        "mode": ("cluster", "client"),
        "sparkVersion": str,
        "image": str,
        "mainApplicationFile": str,
        "arguments": [str],
        "sparkConf": {ANY: str},
        "restartPolicy": {"type": ("Never", "Always", "OnFailure")},
        "driver": _KUBEFLOW_POD,
        "executor": {**_KUBEFLOW_POD, "instances": int, "cores": int},
    },
}


def misfits(value: Any, shape: Any, path: str = "spec") -> list[str]:
    """What of *value* does not have its *shape*."""
    if isinstance(shape, tuple):
        return [] if value in shape else [f"{path} is {value!r}"]
    if isinstance(shape, list):
        is_list = isinstance(value, list) and all(isinstance(item, shape[0]) for item in value)
        return [] if is_list else [f"{path} is no list of {shape[0].__name__}"]
    if not isinstance(shape, dict):
        return [] if isinstance(value, shape) else [f"{path} is no {shape.__name__}"]
    missing = shape.keys() - value.keys() - {ANY}
    found = [f"{path}.{key} is missing" for key in missing]
    for key, item in value.items():
        if key in shape or ANY in shape:
            found += misfits(item, shape.get(key, shape.get(ANY)), f"{path}.{key}")
        else:
            found.append(f"{path}.{key} is not known")
    return found

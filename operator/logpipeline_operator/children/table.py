"""What whoever writes a table has in its pod: the table's volume or the keys of its bucket, room
for Spark, and a name for a user who has none.
"""

from __future__ import annotations

from logpipeline.spec import LogPipeline
from logpipeline.spec.table import TableVolume
from logpipeline_operator.children import config
from logpipeline_operator.children.model import Manifest, given, quantity

VOLUME = "table"
# Spark takes a volume of this name for its own files, in executors as well.
SCRATCH_NAME = "spark-local-dir-scratch"
SCRATCH = "/var/lib/logpipeline"
SCRATCH_VOLUME: Manifest = {"name": SCRATCH_NAME, "emptyDir": {}}
# Hadoop's libraries ask who we are, and the user of the pod stands in no passwd.
USER = "logpipeline"
_USER_VARIABLES = ("HADOOP_USER_NAME", "SPARK_USER", "USER")
# Beside the JVM's heap: its own needs, and Python's workers, which hold what they write.
BESIDE_HEAP_BYTES = 2**30


def is_in_bucket(pipeline: LogPipeline) -> bool:
    """Return whether the table lies in a bucket."""
    return config.table_path(pipeline).startswith(config.BUCKET)


def has_own_claim(pipeline: LogPipeline) -> bool:
    """Return whether the table lies in a claim that is made for it."""
    volume = pipeline.spec.table.persistence or TableVolume()
    is_given = volume.existing_claim is not None or volume.empty_dir is not None
    return not is_in_bucket(pipeline) and not is_given


def volumes(pipeline: LogPipeline) -> list[Manifest]:
    """Return the table's volume, where that is no claim of its own."""
    volume = pipeline.spec.table.persistence or TableVolume()
    if is_in_bucket(pipeline) or has_own_claim(pipeline):
        return []
    if volume.existing_claim is not None:
        return [{"name": VOLUME, "persistentVolumeClaim": {"claimName": volume.existing_claim}}]
    limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
    return [{"name": VOLUME, "emptyDir": given({"sizeLimit": quantity(limit) if limit else None})}]


def mounts(pipeline: LogPipeline) -> list[Manifest]:
    """Return where configuration, scratch and table are, the same in all pods: tasks name files by
    their paths.
    """
    found: list[Manifest] = [
        {"name": "config", "mountPath": str(config.FOLDER), "readOnly": True},
        {"name": SCRATCH_NAME, "mountPath": SCRATCH},
    ]
    if not is_in_bucket(pipeline):
        # A folder of its own: a file system's root has more in it, and a claim may be shared.
        path = config.table_path(pipeline)
        found.append({"name": VOLUME, "mountPath": path, "subPath": pipeline.name})
    return found


def arguments(http_port: int) -> list[str]:
    """Return the words by which the job is started."""
    return [
        "table", "run",
        "-f", str(config.FOLDER / config.FILE),
        "--data", SCRATCH,
        "--http", f"0.0.0.0:{http_port}",
    ]  # fmt: skip


def environment(pipeline: LogPipeline) -> list[Manifest]:
    """Return the names of the user, and the keys of the bucket from their Secret."""
    names = {**dict.fromkeys(_USER_VARIABLES, USER), "HOME": SCRATCH}
    found: list[Manifest] = [{"name": name, "value": value} for name, value in names.items()]
    secret = pipeline.spec.table.s3.secret
    if secret is not None and is_in_bucket(pipeline):
        found += [
            _from_secret("AWS_ACCESS_KEY_ID", secret.name, secret.access_key_id),
            _from_secret("AWS_SECRET_ACCESS_KEY", secret.name, secret.secret_access_key),
        ]
    return found


def resources(pipeline: LogPipeline) -> Manifest:
    """Return what the pod that has the driver asks for, where the resource does not say it."""
    memory = quantity(pipeline.spec.table.driver_memory + BESIDE_HEAP_BYTES)
    return {"requests": {"cpu": "500m", "memory": memory}}


def _from_secret(name: str, secret: str, key: str) -> Manifest:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}

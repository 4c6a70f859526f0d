"""The names of our API in Kubernetes: group and version, kinds, and the labels and annotations that
users, or several components, write and read.
"""

from __future__ import annotations

GROUP = "logpipeline.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND, PLURAL = "LogPipeline", "logpipelines"
CLASS_KIND, CLASS_PLURAL = "LogPipelineClass", "logpipelineclasses"

COMPONENT_LABEL = "app.kubernetes.io/component"
# What the operator puts on the pods of a pipeline.
PIPELINE_LABEL = f"{GROUP}/pipeline"

# On a LogPipeline.
PAUSED_ANNOTATION = f"{GROUP}/paused"
DATA_LOSS_ANNOTATION = f"{GROUP}/allow-data-loss"
ADOPT_ANNOTATION = f"{GROUP}/adopt"
# What a user puts on a pod or a namespace whose logs stay where they are.
EXCLUDE_ANNOTATION = f"{GROUP}/exclude"
# What a user puts on a pod whose lines matter more, or less, than others.
ACK_ANNOTATION = f"{GROUP}/ack"

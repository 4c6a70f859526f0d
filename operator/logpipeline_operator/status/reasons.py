"""The table of all reasons that a status or an event of a pipeline gives.

Conditions, events and the page about operations are made from it. Causes stand before their
consequences: of several problems, `Ready` names the one that stands first here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Meaning:
    """The *description* of the reason *word*, and what a user should *do*.

    *is_passing*: it ends by itself, so that no warning is needed.
    """

    word: str
    description: str
    do: str = ""
    is_passing: bool = False


class Reason(Enum):
    """The reason of a condition or an event, the causes before their consequences."""

    # The resource.
    INVALID_SPEC = Meaning(
        "InvalidSpec",
        "The resource has mistakes, so none of it is applied. What runs already goes on.",
        "Correct the fields that the message names.",
    )
    LOCAL_IN_CLUSTER = Meaning(
        "LocalInCluster",
        "The resource has spec.local, which is for `logpipeline up` on one machine.",
        "Remove spec.local.",
    )
    NOT_ALLOWED_BY_CLASS = Meaning(
        "NotAllowedByClass",
        "The resource asks for something that its LogPipelineClass does not allow. The pipeline "
        "runs on as its class allowed it last; one that was never allowed is not started.",
        "Change the field to a value that the class allows, set another class in spec.className, "
        "or ask an administrator to allow it in the class.",
    )
    CLASS_UNUSABLE = Meaning(
        "ClassUnusable",
        "The LogPipelineClass of the resource does not exist, or has mistakes, so no change is "
        "allowed. The pipeline runs on as its class allowed it last.",
        "Ask an administrator to create or correct it (the chart creates those of its value "
        "classes), or set another class in spec.className.",
    )
    NAMESPACES_UNKNOWN = Meaning(
        "NamespacesUnknown",
        "A selector of namespaces decides whose pods are read, and the operator has no right to "
        "list namespaces.",
        "Let the operator list and watch namespaces (the chart does, unless watchNamespaces is "
        "set), or choose another podNamespaces.",
    )
    IMAGE_UNKNOWN = Meaning(
        "ImageUnknown",
        "Neither the resource nor the operator's settings name the image of some pods. "
        "Pods that run already are left as they are.",
        "Set the image in the spec, or LOGPIPELINE_IMAGE_* of the operator (the chart does).",
    )

    ENDING = Meaning(
        "Ending",
        "The resource is being deleted, and waits for its finalizers.",
        "The operator finishes within about a minute. A finalizer of another program has to be "
        "removed by that program.",
        is_passing=True,
    )

    # A user chose that nothing be changed, and something would have to be.
    PAUSED = Meaning(
        "Paused",
        "The pipeline is paused: what runs goes on, and nothing is changed. Full streams are "
        "trimmed all the same.",
        "To go on, remove the annotation logpipeline.dev/paused.",
    )
    UNMANAGED = Meaning(
        "Unmanaged",
        "spec.managementState is Unmanaged: nothing is changed. Full streams are trimmed all the "
        "same.",
        "To let the operator change things again, set spec.managementState to Managed.",
    )
    READ_ONLY = Meaning(
        "ReadOnly",
        "The operator runs with --read-only: nothing is changed, and full streams are not trimmed.",
        "To let the operator change things, start it without --read-only.",
    )

    # Kubernetes.
    NAMESPACE_ENDS = Meaning(
        "NamespaceEnds",
        "The namespace is being deleted, so no object can be created in it.",
        "Nothing, unless the namespace was deleted by mistake.",
    )
    KUBERNETES_FORBIDDEN = Meaning(
        "KubernetesForbidden",
        "The operator lacks a right in Kubernetes that it needs.",
        "Give the right to the operator's service account (the chart's rbac.create does), or watch "
        "fewer namespaces.",
    )
    POD_SECURITY = Meaning(
        "PodSecurity",
        "Pod Security, or another admission check, refuses the pipeline's pods.",
        "Collectors and NATS pass the level restricted. Shippers read the node's folders: label "
        "their namespace pod-security.kubernetes.io/enforce=privileged.",
    )
    QUOTA_EXCEEDED = Meaning(
        "QuotaExceeded",
        "A ResourceQuota or LimitRange of the namespace is used up.",
        "Raise the quota, or set smaller resources or fewer replicas in the spec.",
    )
    KIND_MISSING = Meaning(
        "KindMissing",
        "A kind of object that the operator needs is not installed in the cluster.",
        "Install its CustomResourceDefinition (for ours: helm upgrade, or kubectl apply "
        "--server-side -f deploy/crd.yaml).",
    )
    KUBERNETES_REFUSED = Meaning(
        "KubernetesRefused",
        "The API server refuses an object that was made from the spec as invalid.",
        "Correct the field of the spec that the message names, often one of the pods' fields.",
    )
    FOREIGN_CHILD = Meaning(
        "ForeignChild",
        "An object with the name of a child exists already, and belongs to another owner.",
        "Rename or delete it, or let the operator take it over: set the annotation "
        'logpipeline.dev/adopt to "true".',
    )
    FIELD_CONFLICT = Meaning(
        "FieldConflict",
        "Another manager sets a field of a child again and again, or at the same moment.",
        "Configure that manager to leave the field alone; kubectl get --show-managed-fields names "
        "the managers.",
    )
    KUBERNETES_AWAY = Meaning(
        "KubernetesAway",
        "The Kubernetes API server did not answer, or was too busy.",
        "The operator tries again. If it lasts, check the API server.",
        is_passing=True,
    )

    LOOK_FAILED = Meaning(
        "LookFailed",
        "The operator's last look at the pipeline ended with an error, or took too long. What it "
        "had not come to is not repaired; the rest of the status may be out of date.",
        "The operator tries again. If it lasts, its log has the whole error. After 'took too "
        "long', check that the NATS servers answer quickly.",
        is_passing=True,
    )

    # Secrets for NATS.
    SECRET_MISSING = Meaning(
        "SecretMissing",
        "A Secret that spec.nats names does not exist.",
        "Create it in the pipeline's namespace, or correct spec.nats.",
    )
    SECRET_INCOMPLETE = Meaning(
        "SecretIncomplete",
        "A Secret that spec.nats names lacks a key, or has a value that cannot be used.",
        "Add the key to the Secret, or correct spec.nats.",
    )

    # Pods. Problems of a managed server's pods are the cause of problems with its connection.
    POD_REFUSED = Meaning(
        "PodRefused",
        "Kubernetes refuses the pods of a controller.",
        "Do what the message says; `kubectl describe` of the controller shows it, too.",
    )
    CLAIM_UNBOUND = Meaning(
        "ClaimUnbound",
        "A volume is missing: there is no storage class, none of that name, or no free storage.",
        "Set persistence.storageClassName (or nats.managed.storageClassName) to one of `kubectl "
        "get storageclass`, or create a PersistentVolume.",
    )
    UNSCHEDULABLE = Meaning(
        "Unschedulable",
        "No node can run a pod.",
        "Free resources, add nodes, or relax resources, nodeSelector, affinity and tolerations.",
    )
    IMAGE_NOT_PULLED = Meaning(
        "ImageNotPulled",
        "An image cannot be pulled.",
        "Correct the image's name, or set imagePullSecrets.",
    )
    POD_MISCONFIGURED = Meaning(
        "PodMisconfigured",
        "A container cannot be created: a Secret, a ConfigMap, a key or a path is missing.",
        "Create what the message names.",
    )
    OUT_OF_MEMORY = Meaning(
        "OutOfMemory",
        "A container was ended because it used more memory than its limit.",
        "Raise resources.limits.memory.",
    )
    # The job's own error, if it could still report it, says more than that it ended.
    TABLE_FAILED = Meaning(
        "TableFailed",
        "The table's job ended with an error, and is restarted.",
        "Do what the message says; the job continues where it stopped.",
    )
    CRASH_LOOPING = Meaning(
        "CrashLooping",
        "A container ends after each start.",
        "Read the cause in its last log lines: kubectl logs --previous.",
    )
    NATS_NOT_READY = Meaning(
        "NatsNotReady",
        "Not all of the managed nats-servers are ready.",
        "They take seconds to start. If it lasts, check their pods.",
        is_passing=True,
    )

    NO_ENDPOINTS = Meaning(
        "NoEndpoints",
        "A Service has no endpoint for some of its pods, though these are ready.",
        "Kubernetes updates endpoints within seconds. If it lasts, check the Service's "
        "EndpointSlices, and pods that do not terminate.",
        is_passing=True,
    )

    # NATS.
    NATS_UNREACHABLE = Meaning(
        "NatsUnreachable",
        "No nats-server answers.",
        "Check spec.nats.servers, the servers, and the NetworkPolicies on the way.",
    )
    NATS_TLS_FAILED = Meaning(
        "NatsTlsFailed",
        "The server's certificate is not trusted, or the client's is not, or one side does not use "
        "TLS.",
        "Check the CA, the certificate's names and dates in the Secret of spec.nats.tls, and "
        "spec.nats.tlsFirst.",
    )
    NATS_CREDENTIALS_REFUSED = Meaning(
        "NatsCredentialsRefused",
        "The server does not accept the credentials.",
        "Put valid credentials into the Secret that spec.nats names; it is read again by itself.",
    )
    NATS_TOO_OLD = Meaning(
        "NatsTooOld",
        "The nats-server has a version with known security holes.",
        "Update it.",
    )
    JETSTREAM_DISABLED = Meaning(
        "JetStreamDisabled",
        "JetStream is not enabled on the server, or not for the account.",
        "Enable it in the server's configuration, or use other credentials.",
    )
    NATS_PERMISSION_DENIED = Meaning(
        "NatsPermissionDenied",
        "The credentials lack a permission for JetStream's API or for the pipeline's subjects.",
        "Give the permission on the server, or use other credentials.",
    )
    NATS_SILENT = Meaning(
        "NatsSilent",
        "The server did not answer in time: it is busy, elects a leader, or its disk is full. A "
        "denied permission looks the same.",
        "If it lasts, check the server's log and disk.",
        is_passing=True,
    )

    # Streams.
    ACCOUNT_LIMIT = Meaning(
        "AccountLimit",
        "The streams exceed the limits of the account or of the server.",
        "Raise the limit, or need less: set fewer partitions, or a smaller spec.stream.maxBytes.",
    )
    TOO_FEW_SERVERS = Meaning(
        "TooFewServers",
        "The streams need more replicas than there are servers.",
        "Set spec.stream.replicas lower, or add servers.",
    )
    PAYLOAD_TOO_SMALL = Meaning(
        "PayloadTooSmall",
        "A batch may be larger than the largest message that the server accepts.",
        "Set spec.batch.maxBytes lower, or raise the server's max_payload.",
    )
    SUBJECTS_OVERLAP = Meaning(
        "SubjectsOverlap",
        "A stream that does not belong to this pipeline already stores its subjects.",
        "Choose another spec.subject, or remove that stream.",
    )
    FOREIGN_STREAM = Meaning(
        "ForeignStream",
        "A stream or consumer with a name that this pipeline needs belongs to another owner.",
        "Choose another spec.stream.name, or set spec.stream.adopt to take it over.",
    )
    STREAM_MISSING = Meaning(
        "StreamMissing",
        "A stream that another LogPipeline creates (spec.stream.external) does not exist.",
        "Set spec.stream.name, spec.partitions and spec.nats as its owner has them, or wait for "
        "it.",
    )
    STREAM_DIFFERS = Meaning(
        "StreamDiffers",
        "The external streams have other subjects or partitions than this pipeline expects.",
        "Set spec.subject and spec.partitions as their owner has them.",
    )
    GROUP_TAKEN = Meaning(
        "GroupTaken",
        "Another LogPipeline assigns partitions to the group of these collectors.",
        "Create this one again with another spec.collectors.group. If the other pipeline no longer "
        "exists, spec.stream.adopt takes its group over.",
    )
    DATA_LOSS_HELD = Meaning(
        "DataLossHeld",
        "A change would delete stored lines, so it waits for your permission.",
        "Take the change back, or allow it for this generation with the annotation "
        "logpipeline.dev/allow-data-loss.",
    )
    CHANGE_IMPOSSIBLE = Meaning(
        "ChangeImpossible",
        "JetStream cannot change this field of an existing stream or consumer.",
        "Take the change back, or create a new pipeline.",
    )
    STREAM_REFUSED = Meaning(
        "StreamRefused",
        "JetStream refused to create or change a stream or consumer.",
        "Do what the message says.",
    )
    STREAMS_PENDING = Meaning(
        "StreamsPending",
        "Streams or consumers are still being created or changed.",
        "The operator goes on by itself.",
        is_passing=True,
    )

    # Collectors, partitions, shippers.
    COLLECTORS_SCALED_TO_ZERO = Meaning(
        "CollectorsScaledToZero",
        "spec.collectors.replicas is 0: lines are stored in streams, and not written to files.",
        "Set spec.collectors.replicas to 1 or more.",
    )
    COLLECTORS_NOT_READY = Meaning(
        "CollectorsNotReady",
        "Not all collectors are ready.",
        "They take seconds to start. If it lasts, check their pods.",
        is_passing=True,
    )
    PARTITIONS_MOVING = Meaning(
        "PartitionsMoving",
        "Some partitions have no collector yet, or are being handed over.",
        "It ends by itself within a minute. If it lasts, check the collectors' logs.",
        is_passing=True,
    )
    PARTITIONS_STALLED = Meaning(
        "PartitionsStalled",
        "Lines of some partitions wait to be written to files, and no collector commits them.",
        "Check the log of the partition's owner for a full, slow or broken disk.",
    )
    TRIMMING_HELD_BACK = Meaning(
        "TrimmingHeldBack",
        "Streams are almost full and cannot be trimmed, because a group of collectors or a "
        "consumer has not read their lines. Shippers wait when they are full.",
        "Start the named group's collectors, or the program that reads by the named consumer. If "
        "it is gone for good, remove it: the consumer with `nats consumer rm`, the group as "
        "docs/operations.md says (A group that is gone for good).",
    )
    SHIPPER_TROUBLE = Meaning(
        "ShipperTrouble",
        "A shipper reports that it cannot deliver lines, or cannot store its positions.",
        "Do what the message says; the shipper then goes on by itself.",
    )
    SHIPPERS_NOT_READY = Meaning(
        "ShippersNotReady",
        "Not all nodes have a shipper that is ready.",
        "They take seconds to start. If it lasts, check their pods and nodes.",
        is_passing=True,
    )
    NODES_BEHIND = Meaning(
        "NodesBehind",
        "Lines of some nodes have waited for more than five minutes to be sent.",
        "Check the log of the shipper on the node, its CPU limit, and the network to NATS.",
    )
    NO_NODES = Meaning(
        "NoNodes",
        "No node fits the settings of shippers.",
        "Check spec.shippers.nodeSelector and tolerations.",
    )
    COLLECTORS_UPDATING = Meaning(
        "CollectorsUpdating",
        "Some collectors still run the former configuration or image.",
        "They are updated one after the other; with updateStrategy OnDelete, when you delete the "
        "pods.",
        is_passing=True,
    )
    SHIPPERS_UPDATING = Meaning(
        "ShippersUpdating",
        "Some shippers still run the former configuration or image.",
        "They are updated one after the other; with updateStrategy OnDelete, when you delete the "
        "pods.",
        is_passing=True,
    )

    # The table.
    TABLE_FALLING_BEHIND = Meaning(
        "TableFallingBehind",
        "A stream is about to delete lines that are not in the table yet.",
        "Give the table's job more (spec.table.maxBytesPerBatch, resources, executors), or keep "
        "lines for longer (spec.stream.maxAge, maxBytes).",
    )
    TABLE_HOLDS_BACK = Meaning(
        "TableHoldsBack",
        "Streams are not trimmed, because only the table has not read their lines yet.",
        "Restart the table's job, or give it more (spec.table.maxBytesPerBatch, resources, "
        "executors); until then, larger streams (spec.stream.maxBytes) keep more lines for it.",
    )
    TABLE_OVERTAKEN = Meaning(
        "TableOvertaken",
        "The table misses lines: streams filled up, and their lines were deleted before the table "
        "read them.",
        "Restart the table's job: it continues behind the missed lines. The files have them. "
        "status.table.missed says about how many messages they are.",
    )
    SPARK_OPERATOR_MISSING = Meaning(
        "SparkOperatorMissing",
        "spec.table.runner is sparkApplication, and no operator for Spark is installed.",
        "Install one (Apache's or Kubeflow's; it is found within five minutes), or set "
        "spec.table.runner to native or embedded.",
    )
    TABLE_NOT_READY = Meaning(
        "TableNotReady",
        "The table's pod is not ready.",
        "Java and Spark take about ten seconds to start. If it lasts, check the pod.",
        is_passing=True,
    )

    # Durability of acknowledged lines.
    SYNC_DELAYED = Meaning(
        "SyncDelayed",
        "The server syncs to disk at intervals: a power cut loses acknowledged lines.",
        "Set sync_interval: always (spec.nats.managed.syncInterval for the managed server). "
        "Shippers resend what the server lost, as long as the files exist.",
    )
    MEMORY_STORAGE = Meaning(
        "MemoryStorage",
        "The streams are kept in memory: a restart of the servers loses lines.",
        "Create the pipeline again with spec.stream.storage: file.",
    )
    SYNC_UNKNOWN = Meaning(
        "SyncUnknown",
        "It is not known how often the server syncs to disk: only its monitoring shows it.",
        "Set spec.nats.monitoringUrl.",
    )

    # Losses.
    VOLUME_GONE = Meaning(
        "VolumeGone",
        "A collector's volume was empty or was replaced, and the streams no longer have all lines "
        "that were on it.",
        "`kubectl logpipeline status --check` shows which messages are missing; a backup of the "
        "volume may have them.",
    )
    BYTES_LOST = Meaning(
        "BytesLost",
        "Bytes of log files are lost: rotated before they were read, expired, removed or refused.",
        "`kubectl logpipeline losses` lists them with their causes.",
    )

    # Without a problem.
    WORKING = Meaning(
        "Working",
        "All children are ready, each partition has a collector, and lines reach the files.",
    )
    STREAMS_AS_WANTED = Meaning(
        "StreamsAsWanted", "Streams and consumers are as the resource asks."
    )
    COLLECTORS_READY = Meaning("CollectorsReady", "All collectors are ready.")
    SHIPPERS_READY = Meaning("ShippersReady", "Each node has a ready shipper.")
    SHIPPERS_DISABLED = Meaning("ShippersDisabled", "spec.shippers.enabled is false.")
    SIDECARS = Meaning(
        "Sidecars",
        "Shippers run as sidecars that `logpipeline inject` added to pods; they are not counted.",
    )
    TABLE_RUNNING = Meaning("TableRunning", "The table follows the streams.")
    TABLE_DISABLED = Meaning(
        "TableDisabled", "Neither spec.table.enabled nor the class asks for a table."
    )
    SYNC_ALWAYS = Meaning("SyncAlways", "The server syncs each message before it acknowledges it.")
    VOLUME_REREAD = Meaning(
        "VolumeReread",
        "A collector's volume was empty. The streams still have all its lines, and they are read "
        "again.",
    )
    NOTHING_LOST = Meaning("NothingLost", "No byte that a shipper read is lost.")
    ACTIVE = Meaning("Active", "The operator applies changes.")
    NOT_SEEN = Meaning("NotSeen", "The operator has not checked it yet.", is_passing=True)

    # Events without a condition.
    DRIFT_CORRECTED = Meaning(
        "DriftCorrected",
        "Another manager changed a child, or added a field that changes its meaning. The operator "
        "corrected it.",
        "Change the LogPipeline instead, or pause it first.",
    )
    CERTIFICATE_RENEWED = Meaning(
        "CertificateRenewed",
        "A certificate of the managed server, or of its authority, was renewed or removed. The "
        "server restarts with it, and clients reconnect.",
    )
    LOGINS_REFUSED = Meaning(
        "LoginsRefused",
        "The managed server refused a client's token or password. "
        "Reported at most once in ten minutes, grouped by cause.",
        "Find the pod by its address (kubectl get pods -A -o wide). If it is a shipper of the "
        "pipeline, read its log; another pod should not connect to this server.",
    )

    @property
    def word(self) -> str:
        """The reason as the status writes it."""
        return self.value.word

    @property
    def rank(self) -> int:
        """The position in the order of causes: smaller is nearer to the cause."""
        return _RANKS[self]


_RANKS = {reason: rank for rank, reason in enumerate(Reason)}

_BY_WORD = {reason.word: reason for reason in Reason}


def reason_of(word: str) -> Reason | None:
    """Return the reason that a status writes as *word*; None if this version does not know it."""
    return _BY_WORD.get(word)


BEGIN = "<!-- Made by `make generate`; change the code. -->\n"
END = "<!-- End of what is made. -->\n"


def markdown() -> str:
    """Return the table of all reasons."""
    rows = [f"| `{r.word}` | {r.value.description} | {r.value.do} |" for r in Reason]
    return "\n".join(["| Reason | What it says | What to do |", "|---|---|---|", *rows]) + "\n"


def with_reasons(page: str) -> str:
    """Return *page* with the table of all reasons between its two marks.

    Raises:
        ValueError: a mark is missing.
    """
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{head}{begin}{markdown()}{end}{tail}"

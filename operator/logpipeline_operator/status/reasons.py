"""Every reason that a status or an event of a pipeline gives: the one table of them.

Conditions, events and the page about operations are all made from it. The order is that of causes:
where several things are wrong, `Ready` gives the first, since the later ones often follow from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Meaning:
    """What *word* says, and what people *do* about it.

    *is_passing*: it ends by itself, so that nobody needs to be warned.
    """

    word: str
    description: str
    do: str = ""
    is_passing: bool = False


class Reason(Enum):
    """Why a condition is as it is, the causes before their consequences."""

    # The resource.
    INVALID_SPEC = Meaning(
        "InvalidSpec",
        "The resource has mistakes, and nothing of it is carried out; what runs goes on.",
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
        "runs on as it was last allowed; one that never was is not touched.",
        "Choose what the class allows, name another class in spec.className, or have an "
        "administrator allow it in the class.",
    )
    CLASS_UNUSABLE = Meaning(
        "ClassUnusable",
        "The LogPipelineClass of the resource is not there, or has mistakes, so nothing is "
        "allowed. The pipeline runs on as it was last allowed.",
        "Have an administrator make or correct it (the chart makes those of its value classes), "
        "or name another one in spec.className.",
    )
    NAMESPACES_UNKNOWN = Meaning(
        "NamespacesUnknown",
        "Labels of namespaces say whose pods are read, and the operator may not see these.",
        "Let the operator list and watch namespaces (the chart does, unless watchNamespaces is "
        "set), or choose another podNamespaces.",
    )
    IMAGE_UNKNOWN = Meaning(
        "ImageUnknown",
        "Neither the resource nor the operator's settings say which image pods run.",
        "Set the image in the spec, or LOGPIPELINE_IMAGE_* of the operator (the chart does).",
    )

    ENDING = Meaning(
        "Ending",
        "The resource is being deleted, and waits for its finalizers.",
        "The operator ends it within about a minute; a finalizer of others is theirs to remove.",
        is_passing=True,
    )

    # Somebody said that nothing be changed, and something would have to be.
    PAUSED = Meaning(
        "Paused",
        "The pipeline is paused; what runs goes on, and nothing is changed.",
        "Remove the annotation logpipeline.dev/paused to go on.",
    )
    UNMANAGED = Meaning(
        "Unmanaged",
        "spec.managementState is Unmanaged; nothing is changed.",
        "Set spec.managementState to Managed to have the operator act again.",
    )
    READ_ONLY = Meaning(
        "ReadOnly",
        "The operator runs with --read-only; nothing is changed.",
        "Start the operator without --read-only to have it act.",
    )

    # Kubernetes.
    NAMESPACE_ENDS = Meaning(
        "NamespaceEnds",
        "The namespace is being deleted, so that nothing can be made in it.",
        "Nothing is to be done, unless the namespace should have stayed.",
    )
    KUBERNETES_FORBIDDEN = Meaning(
        "KubernetesForbidden",
        "The operator has no right to something that it must do.",
        "Give the operator's service account the right (the chart's rbac.create does), or watch "
        "fewer namespaces.",
    )
    POD_SECURITY = Meaning(
        "PodSecurity",
        "Pod Security, or another admission, refuses our pods.",
        "Collectors and NATS pass the level restricted. Shippers read the node's folders: label "
        "their namespace pod-security.kubernetes.io/enforce=privileged.",
    )
    QUOTA_EXCEEDED = Meaning(
        "QuotaExceeded",
        "A ResourceQuota or LimitRange of the namespace leaves no room.",
        "Raise the quota, or set smaller resources or fewer replicas in the spec.",
    )
    KIND_MISSING = Meaning(
        "KindMissing",
        "Kubernetes does not know a kind of object that is needed.",
        "Install its CustomResourceDefinition (for ours: helm upgrade, or kubectl apply "
        "--server-side -f deploy/crd.yaml).",
    )
    KUBERNETES_REFUSED = Meaning(
        "KubernetesRefused",
        "The API server finds an object invalid that was made from the spec.",
        "Correct the field of the spec that the message tells of, often one of a pod template.",
    )
    FOREIGN_CHILD = Meaning(
        "ForeignChild",
        "An object of the name that a child should have belongs to somebody else.",
        'Rename or delete it, or set the annotation logpipeline.dev/adopt to "true" to have it '
        "taken over.",
    )
    FIELD_CONFLICT = Meaning(
        "FieldConflict",
        "Another manager sets a field of a child again and again, or in this very moment.",
        "Have it leave the field alone; kubectl get --show-managed-fields names managers.",
    )
    KUBERNETES_AWAY = Meaning(
        "KubernetesAway",
        "The API server did not answer, or was too busy.",
        "The operator tries again; look at the API server when it lasts.",
        is_passing=True,
    )

    # What is needed to talk to NATS.
    SECRET_MISSING = Meaning(
        "SecretMissing",
        "A Secret that spec.nats names does not exist.",
        "Create it in the pipeline's namespace, or correct spec.nats.",
    )
    SECRET_INCOMPLETE = Meaning(
        "SecretIncomplete",
        "A Secret that spec.nats names lacks a key, or holds something that cannot be used.",
        "Put the key in, or correct spec.nats.",
    )

    # Pods. Those of a managed NATS come before its silence, since they are its cause.
    POD_REFUSED = Meaning(
        "PodRefused",
        "Kubernetes does not let a controller make its pods.",
        "Do what the message says; `kubectl describe` of the controller shows it as well.",
    )
    CLAIM_UNBOUND = Meaning(
        "ClaimUnbound",
        "A volume is not there: no storage class, none of that name, or no room.",
        "Set persistence.storageClassName (or nats.managed.storageClassName) to one of `kubectl "
        "get storageclass`, or make a PersistentVolume.",
    )
    UNSCHEDULABLE = Meaning(
        "Unschedulable",
        "No node takes a pod.",
        "Add room or nodes, or relax resources, nodeSelector, affinity and tolerations.",
    )
    IMAGE_NOT_PULLED = Meaning(
        "ImageNotPulled",
        "An image cannot be pulled.",
        "Correct the image's name, or give imagePullSecrets.",
    )
    POD_MISCONFIGURED = Meaning(
        "PodMisconfigured",
        "A container cannot be made, for lack of a Secret, a ConfigMap, a key or a path.",
        "Make what the message names.",
    )
    OUT_OF_MEMORY = Meaning(
        "OutOfMemory",
        "A container was ended because it used more memory than its limit.",
        "Raise resources.limits.memory.",
    )
    # Its own words, where it could still say them, tell more than that it ends.
    TABLE_FAILED = Meaning(
        "TableFailed",
        "The table's job ended with an error, and is started again.",
        "Do what the message says; the job goes on where it was.",
    )
    CRASH_LOOPING = Meaning(
        "CrashLooping",
        "A container ends again and again.",
        "Its last words tell why: kubectl logs --previous.",
    )
    NATS_NOT_READY = Meaning(
        "NatsNotReady",
        "Not all of the managed nats-servers are ready.",
        "They take seconds to start; look at their pods when it lasts.",
        is_passing=True,
    )

    NO_ENDPOINTS = Meaning(
        "NoEndpoints",
        "A Service leads to none, or not to all, of its pods, though these are ready.",
        "Kubernetes follows its pods within seconds; look at the Service's EndpointSlices, and at "
        "pods that do not end, when it lasts.",
        is_passing=True,
    )

    # NATS.
    NATS_UNREACHABLE = Meaning(
        "NatsUnreachable",
        "No nats-server answers.",
        "Check spec.nats.servers, the servers, and NetworkPolicies between here and there.",
    )
    NATS_TLS_FAILED = Meaning(
        "NatsTlsFailed",
        "The server's certificate is not trusted, or ours is not, or one side wants no TLS.",
        "Check the CA, the certificate's names and dates in the Secret of spec.nats.tls, and "
        "spec.nats.tlsFirst.",
    )
    NATS_CREDENTIALS_REFUSED = Meaning(
        "NatsCredentialsRefused",
        "The server does not accept the credentials.",
        "Put current ones into the Secret that spec.nats names; it is read anew by itself.",
    )
    NATS_TOO_OLD = Meaning(
        "NatsTooOld",
        "The nats-server is of a version with known security holes.",
        "Update it.",
    )
    JETSTREAM_DISABLED = Meaning(
        "JetStreamDisabled",
        "The server, or the account, has no JetStream.",
        "Enable it in the server's configuration, or use other credentials.",
    )
    NATS_PERMISSION_DENIED = Meaning(
        "NatsPermissionDenied",
        "The credentials lack a permission for JetStream's API or for our subjects.",
        "Allow it on the server, or use other credentials.",
    )
    NATS_SILENT = Meaning(
        "NatsSilent",
        "The server did not answer in time: it is busy, elects a leader, or its disk is full; a "
        "permission that is denied looks the same.",
        "Look at the server's log and disk when it lasts.",
        is_passing=True,
    )

    # Streams.
    ACCOUNT_LIMIT = Meaning(
        "AccountLimit",
        "The account's or the server's limits leave no room for the streams.",
        "Raise the limit, or ask for less: fewer partitions, a smaller spec.stream.maxBytes.",
    )
    TOO_FEW_SERVERS = Meaning(
        "TooFewServers",
        "The streams shall have more replicas than there are servers that can hold them.",
        "Set spec.stream.replicas lower, or add servers.",
    )
    PAYLOAD_TOO_SMALL = Meaning(
        "PayloadTooSmall",
        "A batch may be larger than a message that the server takes.",
        "Set spec.batch.maxBytes lower, or raise the server's max_payload.",
    )
    SUBJECTS_OVERLAP = Meaning(
        "SubjectsOverlap",
        "A stream that is not this pipeline's already stores its subjects.",
        "Choose another spec.subject, or remove that stream.",
    )
    FOREIGN_STREAM = Meaning(
        "ForeignStream",
        "A stream or consumer of a name that is needed belongs to somebody else.",
        "Choose another spec.stream.name, or set spec.stream.adopt to take it over.",
    )
    STREAM_MISSING = Meaning(
        "StreamMissing",
        "A stream that another LogPipeline makes (spec.stream.external) is not there.",
        "Set spec.stream.name, spec.partitions and spec.nats as its owner has them, or wait for "
        "it.",
    )
    STREAM_DIFFERS = Meaning(
        "StreamDiffers",
        "The external streams do not store what is expected of them.",
        "Set spec.subject and spec.partitions as their owner has them.",
    )
    GROUP_TAKEN = Meaning(
        "GroupTaken",
        "Another LogPipeline shares partitions out to the group of these collectors.",
        "Choose another spec.collectors.group; where the other one is gone for good, "
        "spec.stream.adopt takes its group over.",
    )
    DATA_LOSS_HELD = Meaning(
        "DataLossHeld",
        "A change would delete stored lines, so it waits for a word of yours.",
        "Take the change back, or allow it for this generation with the annotation "
        "logpipeline.dev/allow-data-loss.",
    )
    CHANGE_IMPOSSIBLE = Meaning(
        "ChangeImpossible",
        "JetStream cannot change this of a stream or consumer that exists.",
        "Take the change back, or make a new pipeline.",
    )
    STREAM_REFUSED = Meaning(
        "StreamRefused",
        "JetStream refused to make or change a stream or consumer.",
        "Do what the message says.",
    )
    STREAMS_PENDING = Meaning(
        "StreamsPending",
        "Streams or consumers are still being made or changed.",
        "The operator goes on by itself.",
        is_passing=True,
    )

    # Collectors, partitions, shippers.
    COLLECTORS_SCALED_TO_ZERO = Meaning(
        "CollectorsScaledToZero",
        "No collector is wanted: lines are stored, and not written to files.",
        "Set spec.collectors.replicas to 1 or more.",
    )
    COLLECTORS_NOT_READY = Meaning(
        "CollectorsNotReady",
        "Not all collectors are ready.",
        "They take seconds to start; look at their pods when it lasts.",
        is_passing=True,
    )
    PARTITIONS_MOVING = Meaning(
        "PartitionsMoving",
        "Some partitions have no collector yet, or are being handed over.",
        "It ends by itself within a minute; else look at the collectors' logs.",
        is_passing=True,
    )
    PARTITIONS_STALLED = Meaning(
        "PartitionsStalled",
        "Lines of some partitions wait to be written to files, and nothing is committed.",
        "Look at the owner's log: a full disk, a slow one, or one that failed.",
    )
    SHIPPER_TROUBLE = Meaning(
        "ShipperTrouble",
        "A shipper says why it cannot deliver lines, or keep its positions.",
        "Do what the message says; the shipper goes on by itself then.",
    )
    SHIPPERS_NOT_READY = Meaning(
        "ShippersNotReady",
        "Not all nodes have a shipper that is ready.",
        "They take seconds to start; look at their pods and nodes when it lasts.",
        is_passing=True,
    )
    NODES_BEHIND = Meaning(
        "NodesBehind",
        "Lines of some nodes have waited for more than five minutes to be sent.",
        "Look at the log of the shipper on the node, its CPU limit, and the network to NATS.",
    )
    NO_NODES = Meaning(
        "NoNodes",
        "No node is to have a shipper.",
        "Check spec.shippers.nodeSelector and tolerations.",
    )
    COLLECTORS_UPDATING = Meaning(
        "CollectorsUpdating",
        "Some collectors still run what was wanted before.",
        "They follow one after the other; with updateStrategy OnDelete, when you delete the pods.",
        is_passing=True,
    )
    SHIPPERS_UPDATING = Meaning(
        "ShippersUpdating",
        "Some shippers still run what was wanted before.",
        "They follow one after the other; with updateStrategy OnDelete, when you delete the pods.",
        is_passing=True,
    )

    # The table.
    TABLE_FALLING_BEHIND = Meaning(
        "TableFallingBehind",
        "A stream is about to delete lines that are not in the table yet.",
        "Let the table's job do more (spec.table.maxBytesPerBatch, resources, executors), or keep "
        "lines for longer (spec.stream.maxAge, maxBytes).",
    )
    TABLE_HOLDS_BACK = Meaning(
        "TableHoldsBack",
        "Streams are not trimmed, because the table alone has not read what they hold.",
        "Bring the table's job back, or let it do more (spec.table.maxBytesPerBatch, resources, "
        "executors); until then, larger streams (spec.stream.maxBytes) keep more for it.",
    )
    TABLE_OVERTAKEN = Meaning(
        "TableOvertaken",
        "The table misses lines: streams were filling up, and files went on without it.",
        "Bring the table's job back: it goes on behind them. The files have these lines. "
        "status.table.missed says about how many messages they came in.",
    )
    SPARK_OPERATOR_MISSING = Meaning(
        "SparkOperatorMissing",
        "The table's job shall be a SparkApplication, and no operator for Spark is there.",
        "Install one (Apache's or Kubeflow's; it is found within five minutes), or set "
        "spec.table.runner to native or embedded.",
    )
    TABLE_NOT_READY = Meaning(
        "TableNotReady",
        "The table's pod is not ready.",
        "Java and Spark take some ten seconds to start; look at the pod when it lasts.",
        is_passing=True,
    )

    # How lasting what is acknowledged is.
    SYNC_DELAYED = Meaning(
        "SyncDelayed",
        "The server syncs to disk from time to time: a power cut loses acknowledged lines.",
        "Set sync_interval: always (spec.nats.managed.syncInterval for the managed server). "
        "Shippers send again what the server lost while the files are there.",
    )
    MEMORY_STORAGE = Meaning(
        "MemoryStorage",
        "The streams are kept in memory: when the servers restart, lines are lost.",
        "Make the pipeline anew with spec.stream.storage: file.",
    )
    SYNC_UNKNOWN = Meaning(
        "SyncUnknown",
        "How often the server syncs to disk shows only in its monitoring.",
        "Set spec.nats.monitoringUrl.",
    )

    # What is lost.
    VOLUME_GONE = Meaning(
        "VolumeGone",
        "A collector's volume was empty or another one, and the streams no longer hold all that it "
        "had.",
        "`kubectl logpipeline status --check` says which messages; a backup of the volume may have "
        "them.",
    )
    BYTES_LOST = Meaning(
        "BytesLost",
        "Bytes of log files are lost: rotated before they were read, expired, removed or refused.",
        "`kubectl logpipeline losses` lists them with their causes.",
    )

    # What is good.
    WORKING = Meaning(
        "Working",
        "All is as wanted, each partition has a collector, and lines reach the files.",
    )
    STREAMS_AS_WANTED = Meaning("StreamsAsWanted", "JetStream has what the resource asks for.")
    COLLECTORS_READY = Meaning("CollectorsReady", "All collectors are ready.")
    SHIPPERS_READY = Meaning("ShippersReady", "Each node has a shipper that is ready.")
    SHIPPERS_DISABLED = Meaning("ShippersDisabled", "spec.shippers.enabled is false.")
    SIDECARS = Meaning(
        "Sidecars",
        "Shippers run in pods that `logpipeline inject` put them into; nobody counts them.",
    )
    TABLE_RUNNING = Meaning("TableRunning", "The table follows the streams.")
    TABLE_DISABLED = Meaning(
        "TableDisabled", "Neither spec.table.enabled nor the class asks for a table."
    )
    SYNC_ALWAYS = Meaning("SyncAlways", "The server syncs each message before it acknowledges it.")
    VOLUME_REREAD = Meaning(
        "VolumeReread",
        "A collector's volume was empty; the streams hold all that it had, and it is read again.",
    )
    NOTHING_LOST = Meaning("NothingLost", "No byte that a shipper saw is lost.")
    ACTIVE = Meaning("Active", "The operator carries changes out.")
    NOT_SEEN = Meaning("NotSeen", "It could not be looked at yet.", is_passing=True)

    # What is told once, as an event.
    DRIFT_CORRECTED = Meaning(
        "DriftCorrected",
        "Another manager changed a child, or added what changes its meaning, and it was put right.",
        "Change the LogPipeline instead, or pause it before.",
    )
    CERTIFICATE_RENEWED = Meaning(
        "CertificateRenewed",
        "A certificate of the managed server, or of its authority, was made or removed. The server "
        "restarts with it, and clients follow.",
    )
    LOGINS_REFUSED = Meaning(
        "LoginsRefused",
        "The managed server refused a client's token or password. "
        "Told once in ten minutes at most, by what was shown.",
        "Find the pod by its address (kubectl get pods -A -o wide). Where it is a shipper of ours, "
        "its log says more; who else has no business there.",
    )

    @property
    def word(self) -> str:
        """How the status calls it."""
        return self.value.word

    @property
    def rank(self) -> int:
        """The smaller, the nearer to the cause."""
        return _RANKS[self]


_RANKS = {reason: rank for rank, reason in enumerate(Reason)}

_BY_WORD = {reason.word: reason for reason in Reason}


def reason_of(word: str) -> Reason | None:
    """Return the reason that a status calls *word*, None for one of another version."""
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

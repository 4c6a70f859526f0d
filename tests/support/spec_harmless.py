"""The fields of a LogPipeline on which no class decides, by the reason why none has to."""

from __future__ import annotations

from collections.abc import Iterator


def _each(owner: str, names: str) -> Iterator[str]:
    """Yield the fields *names* of *owner*."""
    return (f"{owner}.{name}" for name in names.split())


_PODS = ("collectors", "shippers", "nats.managed", "table")

HARMLESS: dict[str, tuple[str, ...]] = {
    "It only narrows what podNamespaces says: what the class selects counts in any case.": (
        "shippers.podNamespaceSelector.matchLabels",
        *_each("shippers.podNamespaceSelector.matchExpressions[]", "key operator values[]"),
    ),
    "It names the class that decides, or says whether anything is done at all.": (
        "className",
        "managementState",
    ),
    "The operator refuses what is for one machine.": (
        *_each(
            "local.nats",
            "caFile certFile keyFile credsFile nkeyFile tokenFile userFile passwordFile "
            "inboxPrefix port",
        ),
        "local.metricsPort",
        *_each("local.shippers[]", "name host pods hostsBelow"),
        *_each("local.shippers[].files[]", "include[] exclude[] ack"),
    ),
    "A name that its own lines carry, which no other pipeline trusts.": ("cluster",),
    "It concerns streams and consumers whose names and servers a class decides on.": (
        "repartitionPolicy",
        "deletionPolicy",
        *_each(
            "stream",
            "layout storage retention discard replicas maxAge duplicateWindow maxBytes maxMsgs "
            "maxMsgSize maxMsgsPerSubject maxConsumers compression foreignPartitions denyDelete "
            "denyPurge allowDirect placement.cluster placement.tags[] metadata trim trimAbove "
            "skipTablesAbove external",
        ),
        *_each("stream.overrides[]", "partitions maxBytes maxAge maxMsgs"),
        *_each(
            "consumers[]",
            "name type durable partitions deliverPolicy optStartTime optStartSeq ackPolicy ackWait "
            "maxDeliver maxAckPending maxWaiting backoff[] replayPolicy headersOnly deliverGroup "
            "inactiveThreshold memStorage replicas maxRequestBatch maxRequestExpires "
            "maxRequestMaxBytes flowControl idleHeartbeat rateLimitBps filterHost metadata",
        ),
        *_each("nats", "jsDomain tlsFirst"),
    ),
    "It says which key of a Secret, and a class decides on the Secret.": (
        *_each("nats.tls", "ca cert key"),
        *_each("nats", "creds.file nkey.seed token.token user.user user.password"),
        *_each("table.s3.secret", "accessKeyId secretAccessKey"),
    ),
    "How its own lines are put together, written and kept, within its own volume.": (
        *_each("batch", "maxBytes maxLineBytes linger compression ack message"),
        *_each("redaction", "presets[] expressions[] mask"),
        *_each(
            "collectors",
            "group deliverPolicy optStartTime path filePath output rotation.maxBytes "
            "rotation.maxAge compression retention.maxAge retention.maxBytes "
            "retention.minFreePercent maxOpenFiles commit.interval commit.maxBytes takeoverAfter "
            "snapshotEvery drainTimeoutSeconds onEmptyVolume",
        ),
        *_each(
            "table",
            "format trigger every maxBytesPerBatch rollups.enabled retention.maxAge "
            "retention.maxBytes compaction.enabled compaction.targetBytes "
            "compaction.words",
        ),
        "table.s3.region",
    ),
    "Which columns its own table has, and what its lines' times are.": (
        "table.zone",
        *_each("table.parse[]", "format pattern"),
        *_each("table.parse[].select", "namespaces[] pods[] containers[] hosts[] sources[]"),
        *_each("table.parse[].fields[]", "name from type"),
        *_each("table.time[]", "format pattern field"),
    ),
    "It narrows what is read, or says how.": (
        *_each(
            "shippers",
            "enabled mode containerLogs readFrom labels[] maxInFlightBytes deletedFiles.maxBytes "
            "deletedFiles.maxAge maxOpenFiles rescan",
        ),
        *_each("shippers.hostFiles[]", "exclude[] ack"),
        *_each("shippers.match[].select", "namespaces[] labels containerNames[]"),
        *_each("shippers.match[].exclude", "namespaces[] labels containerNames[]"),
        "shippers.match[].ack",
    ),
    "Processors and memory: a ResourceQuota and a LimitRange of the namespace limit them.": (
        *(f"{pods}.resources" for pods in _PODS),
        "table.driverMemory",
        *_each("table.executors", "cores memory resources"),
    ),
    "How pods of images that a class allows are pulled, spread, replaced and ended.": (
        *(f"{pods}.imagePullPolicy" for pods in _PODS),
        *(f"{pods}.topologySpreadConstraints[]" for pods in _PODS),
        *(f"{pods}.terminationGracePeriodSeconds" for pods in _PODS),
        *_each("collectors.updateStrategy", "type maxUnavailable"),
        "shippers.updateStrategy.maxUnavailable",
        *_each(
            "collectors.podDisruptionBudget",
            "enabled maxUnavailable unhealthyPodEvictionPolicy",
        ),
    ),
    "What becomes of its own volumes.": (
        *_each("collectors.persistence.retentionPolicy", "whenDeleted whenScaled"),
        *_each("table.persistence.retentionPolicy", "whenDeleted whenScaled"),
    ),
    "Whether there is one, of one or three servers, and how it syncs.": (
        *_each("nats.managed", "replicas syncInterval tls"),
        "table.enabled",
    ),
    "It is gone, and refused.": ("archive", "collectors.workers"),
    "Policies of its own pods: they allow nothing that was not allowed without them.": (
        "networkPolicy.enabled",
    ),
}

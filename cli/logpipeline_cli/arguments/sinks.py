"""Arguments of the command `sink`, which copies streams into other systems."""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.parser import (
    Command,
    add_action,
    add_start,
    add_target,
    add_yes,
    count,
)

# The messages of a batch. A batch is one request unless it is too large, and is sent again whole.
MESSAGES_DEFAULT = 100


def _sink(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="action", metavar="KIND", required=True)
    http = add_action(
        kinds,
        "http",
        "post the lines to an address",
        "Post each batch as JSON, with its name in the header Idempotency-Key. A receiver that\n"
        "keeps these names stores each line once.",
        "logpipeline sink http archive --url https://logs.example.net/ingest",
    )
    _common(http)
    _http(http)
    http.add_argument(
        "-o",
        "--output",
        choices=("ndjson", "json"),
        default="ndjson",
        help="a JSON object on each line (ndjson), or one array of them (json)",
    )
    _s3(kinds)
    _kafka(kinds)
    _of_a_product(kinds)


def _s3(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    s3 = add_action(
        kinds,
        "s3",
        "put the lines into a bucket",
        "Put each batch as an object into a bucket with S3's protocol, named by its stream and\n"
        "its sequences, so that a batch that is written again replaces itself.",
        "logpipeline sink s3 archive --url s3://logs/shop",
    )
    _common(s3)
    s3.add_argument("--url", required=True, metavar="URL", help="a bucket and a prefix: s3://…")
    s3.add_argument("--endpoint", metavar="URL", help="the server (default: as AWS's tools)")
    s3.add_argument("--region", metavar="NAME", help="its region (default: as AWS's tools)")
    s3.add_argument(
        "--access-key-file",
        metavar="FILE",
        help="the access key (default: $AWS_ACCESS_KEY_ID, or the machine's own role)",
    )
    s3.add_argument(
        "--secret-key-file",
        metavar="FILE",
        help="the secret key (default: $AWS_SECRET_ACCESS_KEY)",
    )
    s3.add_argument(
        "-o",
        "--output",
        choices=("ndjson", "raw"),
        default="ndjson",
        help="a JSON object on each line (ndjson), or lines as programs wrote them (raw)",
    )
    s3.add_argument(
        "--compression", choices=("zstd", "none"), default="zstd", help="of objects (zstd)"
    )


def _kafka(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    kafka = add_action(
        kinds,
        "kafka",
        "produce the lines to a topic of Kafka",
        "Produce each batch in one transaction, in which Kafka also notes how far the stream is\n"
        "copied. A reader with isolation.level=read_committed sees each line once.",
        "logpipeline sink kafka bus --brokers kafka.example.net:9092 --topic logs",
    )
    kafka.set_defaults(extra="kafka")
    _common(kafka)
    kafka.add_argument("--brokers", required=True, metavar="LIST", help="host:port, by commas")
    kafka.add_argument(
        "--topic",
        required=True,
        metavar="NAME",
        help="the topic, which must be there; {host}, {namespace} and {container} stand for those "
        "of a line: logs-{namespace}",
    )
    kafka.add_argument(
        "--key",
        choices=("host", "source"),
        default="host",
        help="lines of one key stay in order, in one partition: of a host (the default), or of a "
        "file or container",
    )
    kafka.add_argument(
        "-o",
        "--output",
        choices=("json", "raw"),
        default="json",
        help="a value is a JSON object (json), or the line as programs wrote it (raw)",
    )
    kafka.add_argument(
        "--compression", choices=("zstd", "lz4", "none"), default="zstd", help="of records (zstd)"
    )
    kafka.add_argument("--tls", action="store_true", help="connect by TLS; --ca and --cert do so")
    kafka.add_argument(
        "--ca", metavar="FILE", help="authorities that verify brokers (default: the system's)"
    )
    kafka.add_argument("--cert", metavar="FILE", help="our certificate")
    kafka.add_argument("--cert-key", metavar="FILE", help="the key of our certificate")
    kafka.add_argument(
        "--sasl",
        choices=("plain", "scram-sha-256", "scram-sha-512"),
        help="how to log in (plain)",
    )
    kafka.add_argument(
        "--login-file",
        metavar="FILE",
        help="log in with user:password in this file (default: $LOGPIPELINE_SINK_LOGIN)",
    )
    kafka.add_argument(
        "--property",
        action="append",
        metavar="NAME=VALUE",
        help="a property of librdkafka, such as batch.size=500000 (may be repeated)",
    )
    kafka.add_argument(
        "--property-file",
        action="append",
        metavar="FILE",
        help="a file of properties that are secret, one a line (may be repeated)",
    )
    kafka.add_argument(
        "--timeout", default="30s", metavar="SPAN", help="how long a batch may take (30s)"
    )


def _of_a_product(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    loki = add_action(
        kinds,
        "loki",
        "push the lines to Grafana Loki",
        "Push the lines with the labels host, namespace, pod and container. A path other than\n"
        "Loki's own can be given in the address.",
        "logpipeline sink loki grafana --url https://loki.example.net --label job=shop",
    )
    otlp = add_action(
        kinds,
        "otlp",
        "export the lines to OpenTelemetry",
        "Export the lines by OTLP over HTTP, in JSON. A path other than /v1/logs can be given in\n"
        "the address.",
        "logpipeline sink otlp telemetry --url http://127.0.0.1:4318",
    )
    opensearch = add_action(
        kinds,
        "opensearch",
        "create the lines in OpenSearch or Elasticsearch",
        "Create each line as a document under an id of its own, so that it is there once.",
        "logpipeline sink opensearch search --url https://search.example.net:9200 --index logs",
    )
    clickhouse = add_action(
        kinds,
        "clickhouse",
        "insert the lines into ClickHouse",
        "Insert each batch with its name as deduplication token.",
        "logpipeline sink clickhouse sql --url https://sql.example.net:8443 --table shop.logs",
    )
    for kind in (loki, otlp, opensearch, clickhouse):
        _common(kind)
        _http(kind)
    loki.add_argument(
        "--label", action="append", metavar="NAME=VALUE", help="a further label (may be repeated)"
    )
    opensearch.add_argument(
        "--index", required=True, metavar="NAME", help="the index, alias or data stream"
    )
    clickhouse.add_argument("--table", required=True, metavar="NAME", help="the table: shop.logs")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the consumer, whose position is kept")
    add_target(parser)
    parser.add_argument(
        "--batch",
        type=count,
        default=MESSAGES_DEFAULT,
        metavar="N",
        help=f"write up to N messages at once ({MESSAGES_DEFAULT})",
    )
    parser.add_argument("--group", action="store_true", help="share the work with other sinks")
    parser.add_argument("--member", default="", metavar="NAME", help="our name in the group")
    parser.add_argument(
        "--on-error",
        choices=("stop", "retry", "dead-letter"),
        default="stop",
        help="what to do with a message that the system refuses: stop there (the default), try "
        "again, or store it as a dead letter. A system that is away or busy is tried again",
    )
    parser.add_argument(
        "--tries",
        type=count,
        default=0,
        metavar="N",
        help="how often a batch is tried (default: the consumer's maxDeliver, else no limit)",
    )
    add_start(parser)
    parser.add_argument("--partitions", metavar="LIST", help="read only these: 0-3,7")
    parser.add_argument("--count", type=count, metavar="N", help="exit after N messages")
    parser.add_argument(
        "--until-caught-up", action="store_true", help="exit when no message is left to write"
    )
    parser.add_argument(
        "--reset",
        action="store_true",
        help="first, after confirmation, forget the position of NAME",
    )
    add_yes(parser)


def _http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", required=True, metavar="URL", help="where to send requests")
    parser.add_argument(
        "--header",
        action="append",
        metavar="HEADER",
        help="a header to send, such as 'X-Tenant: shop' (may be repeated)",
    )
    parser.add_argument(
        "--header-file",
        action="append",
        metavar="FILE",
        help="a file of headers that are secret, one a line (may be repeated)",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="log in with the token in this file (default: $LOGPIPELINE_SINK_TOKEN)",
    )
    parser.add_argument(
        "--login-file",
        metavar="FILE",
        help="log in with user:password in this file (default: $LOGPIPELINE_SINK_LOGIN)",
    )
    parser.add_argument(
        "--ca", metavar="FILE", help="authorities that verify the server (default: the system's)"
    )
    parser.add_argument(
        "--timeout", default="30s", metavar="SPAN", help="how long a request may take (30s)"
    )


SINK = Command(
    name="sink",
    help="copy the lines of the streams into another system",
    description="""\
Copy the lines of the streams into another system, as consumer NAME. A batch is acknowledged when
the system has it. When it is not known whether it has, the same batch is sent again under the same
name; docs/consuming.md says which systems then store it once. A system that is slow or away is
waited for. The login comes from a file or the environment, never from the command line.""",
    example="logpipeline sink http archive --url https://logs.example.net/ingest",
    add=_sink,
    run="commands.sink:run",
    extra="query",
)

"""Options of the sink for Kafka, as librdkafka's properties."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer

from logpipeline_cli.errors import UsageError
from logpipeline_cli.sinks.http_client import LOGIN_VARIABLE, read_secret, timeout_s_of
from logpipeline_cli.sinks.kafka_records import Shape, shape_of

# Ours: what is promised of a batch depends on them.
_OWN = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transaction.timeout.ms",
        "transactional.id",
    }
)
_PROPERTY = re.compile(r"([a-z0-9._]+)=(.*)")
_SECRET = re.compile(r"password|secret|key\.pem|oauthbearer\.config")
_BROKERS = re.compile(r"[^\s,@/]+:\d{1,5}(,[^\s,@/]+:\d{1,5})*")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """Where lines go and how. *properties* include the login; *name* is the consumer's; a batch
    takes *timeout_s* at most; *is_reset*: forget which lines the topic has.
    """

    brokers: str
    name: str
    shape: Shape
    timeout_s: float
    is_reset: bool
    properties: Mapping[str, str | int] = field(default_factory=dict, repr=False)


def kafka_options(args: argparse.Namespace) -> KafkaOptions:
    """Return the options of a command's arguments, with the login from a file or the environment.

    Raises:
        UsageError: one of them is wrong.
    """
    if not _BROKERS.fullmatch(args.brokers):
        raise UsageError("--brokers: give addresses such as a.example.net:9092,b.example.net:9092")
    properties: dict[str, str | int] = {
        "bootstrap.servers": args.brokers,
        "client.id": f"logpipeline-{args.name}",
        **_security(args),
        "compression.type": args.compression,
    }
    for text in args.property or ():
        name, value = _property("--property", text)
        if _SECRET.search(name):
            raise UsageError(
                f"--property {name}: a secret does not stand on the command line, where others see "
                "it: give it by --property-file or --login-file"
            )
        properties[name] = value
    for path in args.property_file or ():
        properties |= dict(_properties_in(path))
    options = KafkaOptions(
        brokers=args.brokers,
        name=args.name,
        shape=shape_of(args.topic, args.key, args.output),
        timeout_s=timeout_s_of(args),
        is_reset=args.reset,
        properties=properties,
    )
    try:
        # It checks names, values and files; it connects in its own time, which is not now.
        Producer({**properties, "log_level": 0}).close()
    except KafkaException as error:
        raise UsageError(f"sink kafka: {error.args[0].str()}") from error
    return options


def _security(args: argparse.Namespace) -> dict[str, str]:
    login = os.environ.get(LOGIN_VARIABLE, "")
    if args.login_file:
        login = read_secret("--login-file", args.login_file)
    user, colon, password = login.partition(":")
    if login and not colon:
        raise UsageError(f"the login (--login-file, ${LOGIN_VARIABLE}) is not user:password")
    if args.sasl and not login:
        raise UsageError(f"--sasl: give the login by --login-file or ${LOGIN_VARIABLE}")
    is_tls = args.tls or args.ca or args.cert or args.cert_key
    files = {"ca": args.ca, "certificate": args.cert, "key": args.cert_key}
    found = {f"ssl.{name}.location": path for name, path in files.items() if path}
    for option, path in (("--ca", args.ca), ("--cert", args.cert), ("--cert-key", args.cert_key)):
        if path:
            # The client does not say which file it is.
            read_secret(option, path)
    if login:
        found["sasl.mechanism"] = (args.sasl or "plain").upper()
        found["sasl.username"], found["sasl.password"] = user, password
    protocol = ("SASL_" if login else "") + ("SSL" if is_tls else "PLAINTEXT")
    return {"security.protocol": protocol, **found}


def _properties_in(path: str) -> Iterator[tuple[str, str]]:
    for line in read_secret("--property-file", path).splitlines():
        if line.strip() and not line.startswith("#"):
            yield _property(f"--property-file {path}", line)


def _property(where: str, text: str) -> tuple[str, str]:
    # The text is not quoted: it may be a secret.
    if (found := _PROPERTY.fullmatch(text.strip())) is None:
        raise UsageError(f"{where}: give a property of librdkafka, such as batch.size=500000")
    if found[1] in _OWN:
        raise UsageError(f"{where}: {found[1]} is set by the sink")
    return found[1], found[2]

"""fshipper's environment variables: with them, and without -f, `ship` and `collect` work as its
producer and consumer.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from logpipeline.nats.options import NatsOptions
from logpipeline_cli.errors import CliError
from logpipeline_cli.local.parts import PARENT_VARIABLE

if TYPE_CHECKING:
    from logpipeline_collector.fshipper.config import Pattern
    from logpipeline_shipper.fshipper import OneFile


DEFAULT = "nats://127.0.0.1:4222"

SHIP = ("SHIPPER_FILE", "SHIPPER_SUBJECT", "SHIPPER_PARTITIONS")
COLLECT = (
    "SHIPPER_SUBJECT", "SHIPPER_PARTITIONS", "SHIPPER_READ_PARTITIONS", "SHIPPER_DIRECTORY",
    "SHIPPER_OUTPUT", "SHIPPER_STREAM_TARGET",
)  # fmt: skip
PARTITIONS_MAX = 1024
BACKOFF_MAX_S = 0.5

Environment = Mapping[str, str]


def nats_of(environment: Mapping[str, str], url: str | None = None) -> NatsOptions:
    """Return the connection options in *environment*; *url* takes precedence over its servers."""

    def file(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    servers = url or environment.get("NATS_URL") or DEFAULT
    return NatsOptions(
        servers=tuple(servers.split(",")),
        creds_file=file("NATS_CREDS"),
        ca_file=file("NATS_CA"),
        cert_file=file("NATS_CERTIFICATE"),
        key_file=file("NATS_KEY"),
        # On core NATS, what others publish while we are away is lost.
        backoff_max_s=BACKOFF_MAX_S,
    )


def is_meant(
    args: argparse.Namespace,
    environment: Environment,
    names: tuple[str, ...],
    options: Mapping[str, str],
) -> bool:
    """Return whether a command is configured by fshipper's variables: -f is not given, and one of
    *names* is set.

    *options* are those that need a resource, by their names in *args*.

    Raises:
        CliError: neither is given, or the two contradict each other.
    """
    given = [name for name in names if environment.get(name)]
    if args.file:
        # `up` passes all settings to the components that it starts; variables of the user's shell
        # do not count.
        if given and PARENT_VARIABLE not in environment:
            raise CliError(
                f"-f and {', '.join(given)} contradict each other; leave one of them out"
            )
        return False
    if not given:
        raise CliError(f"give -f FILE, or set fshipper's variables: {', '.join(names)}, NATS_URL")
    for name, option in options.items():
        if getattr(args, name):
            raise CliError(f"{option} needs a resource: give -f FILE, and unset {given[0]}")
    return True


def server_of(environment: Environment, url: str | None) -> NatsOptions:
    """Return the connection options.

    Raises:
        CliError: no server is named, or a value is wrong.
    """
    servers = url or environment.get("NATS_URL")
    if not servers:
        raise CliError("no NATS server is known: set NATS_URL, or give --nats URL")
    for server in servers.split(","):
        _check_url(server)
    for name in ("NATS_CREDS", "NATS_CERTIFICATE", "NATS_KEY", "NATS_CA"):
        if environment.get(name):
            _check_readable(name, Path(environment[name]))
    if environment.get("NATS_CREDS") and find_spec("nkeys") is None:
        raise CliError("NATS_CREDS needs another package: pip install 'logpipeline[nkeys]'")
    if bool(environment.get("NATS_CERTIFICATE")) != bool(environment.get("NATS_KEY")):
        raise CliError("NATS_CERTIFICATE and NATS_KEY go together: set both, or none")
    return nats_of(environment, servers)


def one_file(environment: Environment, host: str | None) -> OneFile:
    """Return the file to ship; *host* takes precedence over ``HOSTNAME``.

    Raises:
        CliError: a variable is missing or wrong.
    """
    from logpipeline_shipper.fshipper import OneFile

    file = Path(_needed(environment, "SHIPPER_FILE"))
    if file.is_dir():
        raise CliError(f"SHIPPER_FILE {file} is a folder; name a file in it")
    if file.exists():
        if not file.is_file():
            raise CliError(f"SHIPPER_FILE {file} is not a regular file; a pipe cannot be followed")
        _check_readable("SHIPPER_FILE", file)
    return OneFile(
        file=file,
        subject=_subject(environment, "SHIPPER_SUBJECT"),
        partitions=_partitions(environment),
        host=host or environment.get("HOSTNAME") or socket.gethostname(),
    )


def read_partitions(environment: Environment) -> tuple[int, ...]:
    """Return the partitions to read.

    Raises:
        CliError: they are not numbers below ``SHIPPER_PARTITIONS``.
    """
    text = environment.get("SHIPPER_READ_PARTITIONS") or "0"
    numbers = [part.strip() for part in text.split(",")]
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise CliError(f"SHIPPER_READ_PARTITIONS {text!r}: give numbers with commas, such as 0,1,2")
    wanted = tuple(dict.fromkeys(map(int, numbers)))
    count = max(_partitions(environment), 1) if environment.get("SHIPPER_PARTITIONS") else None
    for number in wanted:
        if number >= (count or PARTITIONS_MAX):
            raise CliError(
                f"SHIPPER_READ_PARTITIONS names partition {number}, but there are "
                f"{count or PARTITIONS_MAX} at most, numbered from 0"
            )
    return wanted


def output(environment: Environment) -> tuple[str, str, Path, Pattern]:
    """Return the subject and the target to read, the folder and the pattern of files to write.

    Raises:
        CliError: a variable is missing or wrong.
    """
    from logpipeline_collector.fshipper.config import BadOutput, Pattern

    try:
        pattern = Pattern.of(_needed(environment, "SHIPPER_OUTPUT"))
    except BadOutput as error:
        raise CliError(str(error)) from error
    target = environment.get("SHIPPER_STREAM_TARGET")
    return (
        _subject(environment, "SHIPPER_SUBJECT"),
        _subject(environment, "SHIPPER_STREAM_TARGET") if target else "",
        Path(_needed(environment, "SHIPPER_DIRECTORY")),
        pattern,
    )


def _needed(environment: Environment, name: str) -> str:
    value = environment.get(name)
    if not value:
        raise CliError(f"{name} is not set; set it, or give -f FILE")
    return value


def _subject(environment: Environment, name: str) -> str:
    subject = _needed(environment, name)
    tokens = subject.split(".")
    is_plain = subject.isprintable() and not any(letter in subject for letter in " *>")
    if not is_plain or not all(tokens) or subject.startswith("$"):
        raise CliError(f"{name} {subject!r}: give a subject without wildcards, such as shipper")
    return subject


def _partitions(environment: Environment) -> int:
    text = environment.get("SHIPPER_PARTITIONS") or "0"
    if not (text.isascii() and text.isdigit()) or int(text) > PARTITIONS_MAX:
        raise CliError(f"SHIPPER_PARTITIONS {text!r}: give a number from 0 to {PARTITIONS_MAX}")
    return int(text)


def _check_url(server: str) -> None:
    from urllib.parse import urlsplit

    from logpipeline.nats.options import with_scheme, without_secret

    try:
        url = urlsplit(with_scheme(server.strip()))
        is_good = bool(url.hostname) and url.scheme in ("nats", "tls")
        is_good = is_good and (url.port is None or url.port > 0)
    except ValueError:
        is_good = False
    if not is_good:
        raise CliError(f"{without_secret(server)!r} is not a NATS URL; give nats://host:4222")


def _check_readable(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise CliError(f"{name} {path} cannot be read: {error.strerror}") from error

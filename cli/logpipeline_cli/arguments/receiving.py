"""Arguments of `receive`, which has a set of options for each kind."""

from __future__ import annotations

import argparse

from logpipeline_cli.arguments.parser import Command, add_action, add_http, count


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        required=True,
        help="the folder to write to; only one receiver, and no other program, writes there",
    )
    parser.add_argument(
        "--rotate-at",
        metavar="SIZE",
        default="64Mi",
        help="rename a file to NAME.1 when it has grown to this size (64Mi)",
    )
    parser.add_argument(
        "--keep",
        type=count,
        metavar="N",
        default=10,
        help="keep so many rotated files of each name, and remove the oldest one beyond, "
        "shipped or not (10)",
    )
    add_http(parser)


def _output(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "-o",
        "--output",
        choices=("raw", "json"),
        default=default,
        help=f"lines as they were received, or as JSON objects of their fields ({default})",
    )


def _tls(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--tls-cert", metavar="FILE", help=what)
    parser.add_argument("--tls-key", metavar="FILE", help="its key, unless it is in the same file")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="take only clients with a certificate of this CA"
    )


def _syslog(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    _output(parser, "raw")
    for transport in ("udp", "tcp", "tls"):
        parser.add_argument(
            f"--{transport}",
            metavar="HOST:PORT",
            help=f"listen for {transport.upper()} here, as in 0.0.0.0:514",
        )
    _tls(parser, "the certificate of --tls (PEM)")
    parser.add_argument(
        "--name",
        metavar="TEMPLATE",
        default="{host}/{app}.log",
        help="the file of a message, of {host}, {app}, {sender}, {facility} and {severity} "
        "({host}/{app}.log); {host} is what the message says, else the sender's address",
    )
    parser.add_argument(
        "--message-bytes",
        metavar="SIZE",
        default="64Ki",
        help="cut a longer message, and say so at its end (64Ki)",
    )
    parser.add_argument(
        "--connections",
        type=count,
        metavar="N",
        default=1000,
        help="close connections beyond so many at once (1000)",
    )
    parser.add_argument(
        "--delimiter",
        choices=("lf", "nul"),
        default="lf",
        help="what ends a message without a count in TCP and TLS (lf); Python's SysLogHandler "
        "sends nul",
    )


def _journald(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    _output(parser, "json")
    parser.add_argument(
        "--directory",
        metavar="DIR",
        help="read the journal files of this folder (default: the journal of this machine)",
    )
    parser.add_argument(
        "--unit",
        action="append",
        default=[],
        metavar="UNIT",
        help="only entries of this systemd unit (may be repeated; default: all)",
    )
    parser.add_argument(
        "--chroot",
        metavar="FOLDER",
        help="run the journalctl of the system below this folder, such as that of a node in a "
        "pod; --directory is then a folder of that system",
    )


def _otlp(parser: argparse.ArgumentParser) -> None:
    _common(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:4318",
        help="where to serve POST /v1/logs (127.0.0.1:4318)",
    )
    _tls(parser, "serve HTTPS with this certificate (PEM)")
    parser.add_argument(
        "--name",
        metavar="TEMPLATE",
        default="{service}.log",
        help="the file of a log record; {service} is the resource's service.name ({service}.log)",
    )


def _kinds(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    _syslog(
        add_action(
            kinds,
            "syslog",
            "receive syslog by UDP, TCP and TLS",
            "Receive syslog (RFC 5424 and RFC 3164) by UDP, TCP and TLS, and append it to a file\n"
            "for each host and application. Messages by TCP and TLS are framed by counts or by\n"
            "line feeds.",
            f"{parser.prog} syslog --to /var/spool/syslog --udp 0.0.0.0:514 --tcp 0.0.0.0:514",
        )
    )
    _journald(
        add_action(
            kinds,
            "journald",
            "receive the systemd journal, each entry once",
            "Follow the systemd journal with journalctl, and append each entry once to\n"
            "journal.log. The position is kept beside the lines, in the same durable step.",
            f"{parser.prog} journald --to /var/spool/journal",
        )
    )
    _otlp(
        add_action(
            kinds,
            "otlp",
            "receive OpenTelemetry's logs over HTTP",
            "Receive logs in OpenTelemetry's protocol (POST /v1/logs, protobuf or JSON), and\n"
            "answer once they are durable. It needs `pip install 'logpipeline[otlp]'`.",
            f"{parser.prog} otlp --to /var/spool/otlp --listen 0.0.0.0:4318",
        )
    )


COMMANDS = (
    Command(
        name="receive",
        help="append logs that are no files to files, for a shipper",
        description="Append logs that are no files to local files, durably, so that a shipper\n"
        "ships them as it ships every file.",
        example="logpipeline receive syslog --to /var/spool/syslog --udp 0.0.0.0:514",
        add=_kinds,
        run="commands.receive:run",
        extra="otlp",
    ),
)

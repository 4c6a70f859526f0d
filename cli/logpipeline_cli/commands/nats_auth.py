"""``logpipeline nats-auth``: write users and accounts for your own nats-server."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from logpipeline.authority import user_of_host
from logpipeline.spec import load
from logpipeline.subjects import BadHost, check_host
from logpipeline_cli.errors import EXIT_OK, CliError, UsageError
from logpipeline_cli.local.users import Logins, private

CONFIG = "accounts.conf"


def run(args: argparse.Namespace) -> int:
    """Write the accounts for the server's configuration, and the files of each user."""
    pipeline = load(Path(args.file))
    folder = Path(args.out)
    try:
        shippers = {user_of_host(host): (check_host(host),) for host in args.host}
    except BadHost as error:
        raise UsageError(f"--host: {error}") from None
    try:
        logins = Logins(pipeline, folder, streams=args.account, nodes=f"{args.account}_NODES")
        accounts = logins.accounts(shippers)
        private(folder / CONFIG, _text(accounts))
    except OSError as error:
        raise CliError(
            f"{folder} cannot be written: {error.strerror}; give another --out"
        ) from None
    print(f"{folder / CONFIG}: include it in the server's configuration, and reload the server")
    for user in (*logins.others, *shippers):
        print(f"{logins.folder(user)}: user, password; inboxPrefix: {logins.inbox(user)}")
    return EXIT_OK


def _text(accounts: object) -> str:
    # The server's configuration format accepts JSON as a value.
    return f"accounts: {json.dumps(accounts, indent=2, ensure_ascii=False)}\n"

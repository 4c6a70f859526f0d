"""Asks a table in a bucket again and again, in a process that tells where it hangs."""

from __future__ import annotations

import faulthandler
import subprocess
import sys
from pathlib import Path

import own_modules
from logpipeline_cli.tables import duck
from logpipeline_spark.table.s3 import S3Options, S3Storage
from tables.made import logs
from tables.s3 import BUCKET, REGION, S3Server

# Many times what all queries of a test take on a small machine.
HANGS_AFTER_S = 270


def ask(server: S3Server, prefix: str, times: int) -> list[int]:
    """Return how many lines each of so many queries of the table at *prefix* found.

    Raises:
        subprocess.CalledProcessError: one of them did not end; where it stood is on stderr.
    """
    words = [prefix, server.endpoint, str(server.folder), str(times)]
    command = own_modules.command("tables.bucket_queries", *words)
    environment = own_modules.environment()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return [int(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Be that process."""
    prefix, endpoint, folder, times = sys.argv[1:]
    # The lock of Python may be what is waited for: this needs none.
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    keys = Path(folder)
    options = S3Options(endpoint, REGION, keys / "access", keys / "secret")
    storage = S3Storage(BUCKET, prefix, options)
    for _ in range(int(times)):
        with duck.opened(storage, logs(storage)) as connection:
            print(connection.sql("SELECT line, seq, host FROM lines").to_arrow_table().num_rows)


if __name__ == "__main__":
    main()

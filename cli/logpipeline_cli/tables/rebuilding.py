"""``logpipeline table rebuild``: prints what it can rebuild of a lost state, asks for confirmation,
and rebuilds it.
"""

from __future__ import annotations

import argparse

from logpipeline_cli.exits import EXIT_FAILED, EXIT_OK
from logpipeline_cli.output import agreed
from logpipeline_spark.formats.log import Logs
from logpipeline_spark.job.rebuild import Rebuild
from logpipeline_spark.table.storage import Storage
from logpipeline_spark.table.writer import PATIENCE_S


def rebuild(args: argparse.Namespace, storage: Storage, logs: Logs) -> int:
    """Make the state of the table that *args* mean anew, if a person agrees.

    Raises:
        CliError: a confirmation is needed, and there is no terminal to ask at.
        Refused: the table does not allow it, or a job writes it.
    """
    made = Rebuild(storage, logs)
    plan = made.plan()
    if plan is None:
        print(f"Table {storage.url} has its state: nothing is to be done.")
        return EXIT_OK
    print("\n".join(plan.sentences()))
    if args.dry_run:
        return EXIT_OK
    if not agreed("Go on from there?", yes=args.yes):
        print("Nothing was changed.")
        return EXIT_FAILED
    print(f"Looking for {PATIENCE_S:.0f} seconds whether a job writes the table.", flush=True)
    made.carry_out(plan)
    print("The state was made anew: the next job goes on from it.")
    return EXIT_OK

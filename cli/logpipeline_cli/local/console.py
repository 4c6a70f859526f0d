"""The console of the pipeline that `up` runs: in the same process, and never a reason for the
pipeline to end.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from logpipeline.layout import Layout
from logpipeline_cli.errors import explain
from logpipeline_cli.target import find_target

log = logging.getLogger(__name__)

# The port may become free, and the server come back.
AGAIN_AFTER_S = 5.0


async def keep_console(
    layout: Layout, *, host: str, port: int, name: str, stop: asyncio.Event
) -> None:
    """Serve the console of the pipeline *name* in *layout* at *host* and *port* until *stop* is
    set. What keeps it from being served is logged once, and tried again.
    """
    # Imported only where it is wanted: the packages of the page are optional.
    from logpipeline_cli.console.access import new_token
    from logpipeline_cli.console.server import serve

    def started(address: str) -> None:
        # Not a record of the log: the address holds the token.
        print(f"The console of {name}: {address}", flush=True)

    # The same all the time, so that open pages go on once the page is served again.
    problem, token = "", new_token()
    while not stop.is_set():
        try:
            target = find_target(file=None, data=str(layout.data), nats=None)
            await serve(
                target, host=host, port=port, names=(), started=started, token=token, until=stop
            )
        except Exception as error:
            why = explain(error)
            if isinstance(error, OSError):
                why = f"{why}; free the address, or give another with --console HOST:PORT"
            if why is None:
                log.exception("the console failed, and is started again; the pipeline runs on")
            elif why != problem:
                log.error(
                    "the console is not served, and is tried again; the pipeline runs on",
                    extra={"at": f"{host}:{port}", "why": why},
                )
            problem = why or ""
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_AFTER_S):
                    await stop.wait()

"""What pods print in tests: lines that the oracle can tell apart, and a ledger of them on the node.

It runs in a pod as `python -c <this file>`, so it needs no image of its own, and nothing of the
other test modules.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from logpipeline_demo.ledger import Ledger
from logpipeline_demo.lines import LineMaker, SourceKey

LEDGERS = "/ledgers"
BLOCK_LINES = 20
# containerd cuts at 16 KiB, so that one of these is a P and an F line.
LONG_PAYLOAD_BYTES = 20_000


@dataclass(slots=True)
class Stream:
    """One of a container's two streams: a source of its own, since only that has an order."""

    ledger: Ledger
    maker: LineMaker
    descriptor: int
    number: int
    next_seq: int = 0

    def write(self, count: int, *, long: bool) -> int:
        """Write *count* lines, the last of them *long*, and return how many bytes that were."""
        first, time_ns = self.next_seq, time.time_ns()
        lines = [self._line(seq) for seq in range(first, first + count - long)]
        if long:
            lines.append(self._long_line(first + count - 1, LONG_PAYLOAD_BYTES))
        block = b"".join(line + b"\n" for line in lines)
        self.ledger.attempt(
            self.number,
            first=first,
            count=count,
            time_ns=time_ns,
            size=len(block),
            crc=zlib.crc32(block),
        )
        self.ledger.flush()
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]
        self.next_seq += count
        self.ledger.written(self.number, self.next_seq)
        self.ledger.flush()
        return len(block)

    def _line(self, seq: int) -> bytes:
        line = self.maker.line(seq)
        # A container runtime takes that byte away, and it is not the pipeline that is to blame.
        return self._long_line(seq, len(line)) if line.endswith(b"\r") else line

    def _long_line(self, seq: int, size: int) -> bytes:
        self.ledger.long_line(self.number, seq, size)
        return self.maker.long_line(seq, size)


def main() -> int:
    """Print until there are enough lines, or until SIGTERM, and return the asked exit code."""
    options = _options()
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    pod, container = os.environ["LINES_POD"], options.container
    log = f"{os.environ['LINES_NAMESPACE']}/{pod}/{container}"
    run = str(time.time_ns())
    path = Path(LEDGERS) / f"{pod}.{container}.{run}"
    with Ledger(path, seed=options.seed) as ledger:
        streams = []
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            if name in options.streams.split(","):
                key = SourceKey(os.environ["LINES_HOST"], f"{log}/{name}.{run}")
                maker = LineMaker(options.seed, key, "plain")
                streams.append(Stream(ledger, maker, descriptor, ledger.source(key, "plain")))
        ledger.flush()
        _print(streams, options, ending)
    return int(options.exit_code)


def _print(streams: list[Stream], options: argparse.Namespace, ending: threading.Event) -> None:
    printed = blocks = size = 0
    while (not options.lines or printed < options.lines) and not ending.is_set():
        stream = streams[blocks % len(streams)]
        blocks += 1
        is_long = bool(options.long_every) and blocks % options.long_every == 0
        size += stream.write(options.block, long=is_long)
        printed += options.block
        ending.wait(options.pause)
        if options.stop_after_bytes and size >= options.stop_after_bytes:
            break


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--container", default="main")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--lines", type=int, default=0, help="0: until SIGTERM")
    parser.add_argument("--block", type=int, default=BLOCK_LINES, help="lines in one write")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds after each block")
    parser.add_argument("--streams", default="stdout,stderr")
    parser.add_argument("--long-every", type=int, default=0, help="a long line in every such block")
    parser.add_argument("--stop-after-bytes", type=int, default=0)
    parser.add_argument("--exit-code", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

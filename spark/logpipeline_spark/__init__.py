"""Tables from the streams, with Spark."""

import os

# Arrow's allocator gives freed memory back to the system after 10 ms, and the system clears each
# page that is asked for again: up to a half of what merging files costs. So freed memory is kept
# for some seconds. The allocator reads this, in milliseconds, when Arrow is loaded.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")

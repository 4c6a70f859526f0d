"""The program of a driver that is submitted to a cluster (`spark-submit driver.py table run …`):
the command `logpipeline` with its arguments. In the image it lies at /opt/logpipeline/driver.py.
"""

from __future__ import annotations

import sys

from logpipeline_cli.main import main

sys.exit(main())

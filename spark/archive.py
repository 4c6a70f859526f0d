"""What a driver runs that was submitted to a cluster (`spark-submit archive.py archive run …`): the
command, with its words. In the image it lies at /opt/logpipeline/archive.py.
"""

from __future__ import annotations

import sys

from logpipeline_cli.main import main

sys.exit(main())

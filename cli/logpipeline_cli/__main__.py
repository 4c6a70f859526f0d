"""``python -m logpipeline_cli``: the same as the command ``logpipeline``."""

from __future__ import annotations

import sys

from logpipeline_cli.main import main

if __name__ == "__main__":
    sys.exit(main())

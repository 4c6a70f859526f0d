"""``python -m logpipeline_operator``."""

from logpipeline_operator.main import main

raise SystemExit(main())

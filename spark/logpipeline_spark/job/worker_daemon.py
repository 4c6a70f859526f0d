"""The process from which Spark forks its Python workers. It imports what tasks need once, so that
each worker starts with it.
"""

from __future__ import annotations

import importlib
import runpy

TASKS = "logpipeline_spark.job.task"

if __name__ == "__main__":
    importlib.import_module(TASKS)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)

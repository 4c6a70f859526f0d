"""The process that Spark forks its Python workers from: what tasks need is loaded here, once, and
not again in each worker.
"""

from __future__ import annotations

import importlib
import runpy

TASKS = "logpipeline_spark.job.task"

if __name__ == "__main__":
    importlib.import_module(TASKS)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)

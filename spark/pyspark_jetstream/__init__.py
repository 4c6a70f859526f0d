"""Makes ``spark.read.format("jetstream")`` work wherever this package is installed: Spark looks for
``DefaultSource`` in every module whose name begins with ``pyspark_``.
"""

from logpipeline_spark.source.datasource import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]

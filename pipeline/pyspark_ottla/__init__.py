"""Entry point for Spark, which imports every package whose name starts with `pyspark_`, and
registers the data source of this package.

`format("ottla")` is therefore available wherever this package is installed, in SQL and in
spark-submit too, without a call. `ottla.pipeline.register` registers the format in a session, and
also commits the progress of the session's streams.
"""

from ottla.pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

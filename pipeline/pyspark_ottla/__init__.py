"""What Spark looks for: it loads the data source of every package with a name like this one.

So `format("ottla")` is there wherever this is installed, in SQL and in spark-submit too, without a
line of code.  `ottla.pipeline.register` does the same for a session, and has its streams seen.
"""

from ottla.pipeline.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]

"""Topics as Spark DataFrames, and pipelines to run as they are.

Importing this imports neither pyspark nor pyarrow: `ottla doctor spark` must work where they lack.
"""

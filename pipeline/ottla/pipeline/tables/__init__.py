"""Topics as Iceberg and Delta tables, by Spark.

table_archive.py   archives a topic into a table, each record once
batch_position.py  the position of a table after a batch of a stream (pure)
"""

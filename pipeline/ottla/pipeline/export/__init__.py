"""Topics as tables without Spark.

export.py             exports a topic, each record once: start here
table_position.py     positions of a table in its topic, and gaps (pure)
table_columns.py      the columns of a table (pure)
json_values.py        JSON values as typed columns (pure)
value_schema.py       schemas of JSON values, from Spark's DDL (pure)
table_sink.py         the interface of places that rows are written to
parquet_layout.py     encodings of the columns of a file (pure)
parquet_file.py       writes one Parquet file in row groups
parquet_directory.py  a directory of Parquet files, with its position
directory_merge.py    replaces files of a directory by one with the same rows
iceberg_table.py      an Iceberg table, with its position
delta_table.py        a Delta table, with its position
topic_scan.py         a live topic as a table for SQL
"""

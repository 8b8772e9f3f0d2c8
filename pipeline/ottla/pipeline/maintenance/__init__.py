"""Maintenance of exported tables: merges small files, expires snapshots, removes unused files.

maintenance.py            options and result, and the merge of some files into one
iceberg_maintenance.py    maintains an Iceberg table
delta_maintenance.py      maintains a Delta table
directory_maintenance.py  maintains a directory of Parquet files
"""

"""Spark columns that contain records whose schemas are in a schema registry.

worker_registry.py  registries of a process, and records of any format as plain values
registry_columns.py columns that are read and written with a registry: start here
"""

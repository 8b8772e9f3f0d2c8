"""Commands of the data pipeline on Spark.

pipeline.py            `ottla pipeline`
pipeline_common.py     arguments that its verbs share
pipeline_start.py      checks before a JVM starts, and the wait for it
pipeline_run.py        runs a pipeline of the user's own
pipeline_archive.py    archives topics
pipeline_compact.py    compacts an archive
pipeline_telemetry.py  rolls client telemetry up
pipeline_lag.py        lag of a query
pipeline_zip.py        a zip of the Python sources, for a cluster
"""

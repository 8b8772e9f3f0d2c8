"""Common parts of all pipelines.

session.py       starts Spark for a command, and stops it
quiet_exit.py    the end of a program without stack traces of Java and py4j
spark_errors.py  Spark's errors as one line (pure)
package_zip.py   a zip of Ottla's modules, for executors on which they are not installed
progress.py      figures of a query's batches (pure)
watching.py      watches queries, and stops them between two batches
transforms.py    DataFrame functions that several commands use
ddl.py           finds mistakes in a schema without a JVM (pure)
own_code.py      a user's own pipeline file
"""

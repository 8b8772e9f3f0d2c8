"""What runs a pipeline, whichever it is.

session.py       starts Spark for a command, and ends it
spark_errors.py  what Spark says, in one sentence (pure)
package_zip.py   our modules for executors that lack them
progress.py      what a query's batches come to (pure)
watching.py      follows queries, and ends them between two batches
transforms.py    DataFrame functions that all front ends share
ddl.py           mistakes in a schema, found without a JVM (pure)
own_code.py      a user's own pipeline file
"""

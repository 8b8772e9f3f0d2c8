"""An archive of the state of a cluster, for support without access to the cluster.

bundle.py         `ottla bundle`: start here
sections.py       the files of the archive, and their content
plain_values.py   results of requests as JSON, without secrets (pure)
"""

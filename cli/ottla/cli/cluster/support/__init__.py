"""An archive of the state of a cluster, for a person who helps from afar.

bundle.py         `ottla bundle`: start here
sections.py       the files of the archive, and their content
plain_values.py   results of requests as JSON, without secrets (pure)
"""

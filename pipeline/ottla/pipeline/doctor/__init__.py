"""The check that a machine can run pipelines.

doctor.py        derives faults and remedies from the facts (pure)
spark_versions.py  versions of Spark and its libraries that work together (pure)
doctor_facts.py  collects the facts of the machine
doctor_trial.py  runs a small query, with a timeout
doctor_reach.py  connects to all brokers from a worker
"""

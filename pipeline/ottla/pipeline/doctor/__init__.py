"""Whether a machine can run pipelines.

doctor.py        whether a machine can run all this (pure)
doctor_facts.py  looks at the machine
doctor_trial.py  tries a small query, bounded in time
doctor_reach.py  asks from a worker which brokers answer
"""

"""Permanent removal of brokers from a cluster.

cordon.py       `ottla broker cordon`: no new replicas for a broker
unregister.py   `ottla broker unregister`: the last step alone
remove.py       `ottla broker remove`: move the replicas away, wait for the stop, unregister
"""

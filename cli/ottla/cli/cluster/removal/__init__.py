"""Permanent removal of brokers from a cluster.

cordon.py       `ottla broker cordon`: prevents new replicas on a broker
unregister.py   `ottla broker unregister`: deletes the registration of a broker
remove.py       `ottla broker remove`: moves replicas, waits for the stop, unregisters
"""

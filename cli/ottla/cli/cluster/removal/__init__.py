"""Permanent removal of brokers from a cluster.

unregister.py   `ottla broker unregister`: the last step alone
remove.py       `ottla broker remove`: move the replicas away, wait for the stop, unregister
removal_plan.py decides which replicas must move first, and what prevents a removal (pure)
"""

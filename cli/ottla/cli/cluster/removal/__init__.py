"""Take brokers out of a cluster for good.

unregister.py   `ottla broker unregister`: the last step alone
remove.py       `ottla broker remove`: move the replicas away, wait for the stop, unregister
removal_plan.py decides what must move first, and what makes a removal impossible (pure)
"""

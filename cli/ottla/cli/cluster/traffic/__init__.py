"""Live traffic of a cluster.

top.py             `ottla top`: start here
traffic_samples.py counters of all brokers at one time
traffic_rates.py   rates between two samples (pure)
"""

"""Benchmark of one machine with 1, 2, 4 … brokers.

broker_load.py   load on one broker, as a process of its own
host_scale.py    rates, CPU and memory by the number of brokers
"""

"""Loads of share group consumers (KIP-932), and the cost of many share groups to a broker.

raw_consumers.py   consumers that speak ShareFetch over raw sockets
java_consumers.py  Kafka's ShareConsumerPerformance tool
share_paths.py     the code paths of the gate, see gate_paths.py
share_scale.py     memory and event-loop pauses of very many share partitions
"""

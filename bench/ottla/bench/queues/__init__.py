"""Consumers of share groups (KIP-932) as loads, and what many share groups cost a broker.

raw_consumers.py   consumers that speak ShareFetch over raw sockets
java_consumers.py  Kafka's ShareConsumerPerformance tool
share_paths.py     the code paths of the gate, see gate_paths.py
share_scale.py     memory and event-loop holds of very many share partitions
"""

"""Floods of requests by an unauthenticated client, and the latency of another client during each
flood, for Ottla and Apache Kafka.

__main__.py   starts both servers, floods one after the other, and prints a table: start here
senders.py    the floods: TLS KeyUpdates, tiny TLS records, unfinished frames, idle connections
tls_records.py  TLS records that no library sends
bystander.py  a client that sends requests steadily and records their latencies
joins.py      time that a broker needs to join a controller with many idle connections
"""

"""Comparisons with Apache Kafka, and benchmarks of the effect of one load on another.

comparison.py          alternating rounds, medians, spreads, ratios, verdicts (pure): start here
turns.py               rounds until a deadline, with progress
beside_kafka.py        `ottla bench beside`: its rows and the two servers
kafka_server.py        Apache Kafka from a directory of jars
kafka_cluster.py       Apache Kafka as a cluster of controllers and brokers
transactions_beside.py `ottla bench transactions`
transaction_loads.py   the loads of `ottla bench transactions`
security.py            `ottla bench security`: costs of TLS, handshakes and ACLs
security_rows.py       the rows of `ottla bench security`
security_servers.py    the servers of `ottla bench security`
compaction_beside.py   `ottla bench compaction`: cost to a producer and a tailing consumer
compaction_wait.py     waits until a broker has compacted a topic
cleaner_passes.py      records per second of the log cleaner's passes
paced_load.py          a steady producer and a tailing consumer, as a process
"""

"""Benchmarks that run against any Kafka-compatible broker.

commands.py         `ottla bench`: runs a benchmark and prints its result: start here
processes.py        CPU seconds and memory of local processes, from /proc
result.py           figures of one run
tables.py           tables of figures
helper_process.py   a load in a process of its own during a measurement
topics.py           topics of one run, deleted at its end
load.py             produce, consume and end-to-end load, driven by librdkafka
requests.py         small requests over raw sockets
groups.py           offset commits, and rebalances of many members
scrape.py           cost of Prometheus scrapes to a broker
clients.py          compares Ottla's client with other clients, which take turns
client_work.py      the work that is compared, in a process of its own for each client
aio_cost.py         compares `ottla.client.aio` with `ottla.client`
clusters.py         startup, failover, replication and heartbeats of a local cluster
local_cluster.py    a local cluster: `ottla up` in a process
many_partitions.py  failover of 1,000 partitions
storage.py          appends, recovery, and a broker with many partitions
cold_backlog.py     slowdown of other clients by a consumer that reads a backlog from disk
authorizer.py       authorization decisions in this process
exports.py          rows a second of `ottla export`, raw and JSON
own_metrics_beside_sdk.py  a node's own metrics as OTLP, by Ottla and by OpenTelemetry's SDK
gate.py             CPU instructions of short code paths, compared with bench/gate.json
gate_paths.py       the code paths of the gate
instructions.py     CPU instructions of a broker per request, counted under callgrind

floor/           a broker beside the smallest program with the same system calls
kafka/           comparisons with Apache Kafka
performance/     the rows of docs/performance.md
scale/           one machine with several brokers
programs/        loads of other makers: Kafka's performance tools, franz-go
moves/           slowdown of a producer while partitions move
queues/          consumers of share groups, and many share groups
faults/          a steady load for a cluster under faults
tier/            tiered storage: uploads and reads of segments
client_metrics/  clients that push metrics
spark/           benchmarks in Spark
floods/          floods by an unauthenticated client: memory, and latency of another client
"""

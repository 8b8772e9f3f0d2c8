"""Benchmarks that run against any Kafka-compatible broker, side by side.

commands.py    `ottla bench`: what each benchmark runs, and how a result is printed
arguments.py   their parsers, each with its own options
processes.py   what local processes cost: CPU seconds and memory, from /proc
result.py      one measured run as figures
load.py        produce, consume and end-to-end load, driven by librdkafka
steady.py      a steady load that remembers every answer, for while the cluster is being hurt
ledger.py      the file of those answers
audit.py       is every acknowledged record there, once and in order
timeline.py    what clients saw, second by second: table, picture, longest gaps
clusters.py    what needs a cluster of its own: start, failover, replication, heartbeats
many_partitions.py  the failover of 1,000 partitions
storage.py     appends, recovery, and a broker of many partitions
cold_backlog.py   a consumer of a cold backlog beside a producer and a tailing consumer
compaction_beside.py  a compaction beside a producer and a tailing consumer, and paced_load.py both
compaction_wait.py until a broker has compacted a topic
cleaner_passes.py records per second of the log cleaner's passes
log_moves.py      a log of 2 GB moves to another directory beside its producer
local_cluster.py  that cluster: `ottla up` in a process, asked and hurt
authorizer.py  decisions by access control entries, in this process
security.py    what TLS, handshakes and entries cost, beside Kafka
security_rows.py     its rows, and security_servers.py the servers
floods/        floods of strangers: what a bystander waits, and the memory, beside Kafka
requests.py    small requests over raw sockets: what one request costs a broker
gate.py          instructions of fifteen short paths, against a committed table
gate_paths.py    the paths
own_metrics_beside_sdk.py  a node's own metrics as OTLP, by us and by OpenTelemetry's SDK
instructions.py  instructions of a broker per request, counted under callgrind
beside_kafka.py  Ottla beside Apache Kafka: the rows, in alternating rounds
comparison.py    medians, spreads, ratio, and whether a gap counts
performance.py   every row of docs/performance.md: measured in sittings, and kept
performance_rows.py    the rows and their goals
conditions.py          quotas and sizes of logs that some of them need
performance_page.py    the tables of the page, and performance_plots.py its pictures
kafka_cluster.py Apache Kafka as a cluster of controllers and brokers
kafka_server.py  Apache Kafka from a directory of jars
clients.py     our client beside others on the same work, in turns
client_work.py that work, one client a process
scrape.py      what Prometheus costs a broker
telemetry.py   clients that report: are pushes lost, what does one cost
telemetry_beside.py  what they cost all others: a steady producer, with and without them
telemetry_crowd.py   those clients, and telemetry_payload.py what they push
steady_produce.py    that producer, a process of its own
topics.py            the topics of one run, deleted at its end
groups.py      what groups cost their coordinator: commits, and a rebalance of many members
spark_commands.py  what is measured in Spark, by name
spark_reads.py     how fast Spark reads topics: ours and others in turns
spark_round_trip.py  records of all kinds through Spark, compared with what another client reads
spark_mix.py       those records
spark_confluent.py confluent-kafka's consumer as a data source, to compare
spark_session.py   a Spark that knows all of them
spark_faults.py    brokers and Spark drivers die: did every record arrive once
spark_faults_driver.py  the driver that dies, and what it is judged by
"""

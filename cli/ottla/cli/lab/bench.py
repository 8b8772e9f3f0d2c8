"""`ottla bench`: one verb for each benchmark, with only the options of that benchmark.

`OPTIONS` declares each option once. A benchmark in `BENCHES` names its options and the defaults
that it changes.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ottla.bench.commands import run
from ottla.cli.options import Option, option
from ottla.cli.verbs import verb

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Bench(NamedTuple):
    """Declaration of a benchmark: its summary, the names of its options, and default values that
    differ from the common ones."""

    summary: str
    options: str
    defaults: Mapping[str, Any] = {}


def size(text: str) -> int:
    """Parse a size such as 1000, 16k or 1m, and return the number of bytes. Raises ValueError if
    the text has another form."""
    unit = UNITS.get(text[-1:].lower(), 0)
    return int(text[:-1]) * unit if unit else int(text)


def number(text: str) -> int:
    """Parse the positive integer value of an option. Raises ArgumentTypeError if the number is
    below 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return int(text)


OPTIONS: dict[str, Option] = {
    "bootstrap": option(
        "--bootstrap-server --bootstrap HOST:PORT",
        "address of a broker (default: %(default)s)",
        default="localhost:9092",
    ),
    "metrics": option(
        "--metrics HOST:PORT",
        "address of the broker's /metrics (default: %(default)s)",
        default="localhost:9404",
    ),
    "topic": option(
        "--topic NAME",
        "topic, created if it does not exist, and kept (default: a new one, deleted at the end)",
    ),
    "filled-topic": option(
        "--topic NAME",
        "topic that holds the records, and is kept (default: a new one, filled first and deleted "
        "at the end)",
    ),
    "topics": option(
        "--topic NAME,…",
        "topics, created if they do not exist, and kept (default: a new one, deleted at the end)",
    ),
    "prefix": option(
        "--topic NAME",
        "first part of the topics' names; they are kept (default: a new one, and the topics are "
        "deleted at the end)",
    ),
    "keep": option("--keep", "keep the new topics (default: delete them at the end)"),
    "partitions": option(
        "--partitions N", "partitions of a new topic (default: %(default)s)", type=int, default=1
    ),
    "replicas": option(
        "--replication-factor N",
        "replicas of a new topic's partitions (default: the cluster's)",
        type=int,
    ),
    "count": option("--count -c N", "number of records (default: %(default)s)", type=number),
    "spark-count": option(
        "--count -c N", "number of records of each topic (default: 200 MB of them)", type=number
    ),
    "requests": option("--count -c N", "number of requests (default: %(default)s)", type=number),
    "bytes": option(
        "--record-bytes SIZE",
        "size of a record's value, in bytes or such as 1k (default: %(default)s)",
        type=size,
        default=1000,
    ),
    "batch": option(
        "--batch-bytes SIZE",
        "size of a batch, in bytes or such as 16k (default: %(default)s)",
        type=size,
        default=131072,
    ),
    "codec": option(
        "--codec NAME",
        "codec of the batches: none, gzip, snappy, lz4 or zstd (default: %(default)s)",
        default="none",
    ),
    "acks": option(
        "--acks",
        "replicas that acknowledge a batch (default: %(default)s)",
        choices=("0", "1", "all"),
        default="all",
    ),
    "linger": option(
        "--linger-ms MS",
        "time to fill a batch, in milliseconds (default: %(default)s)",
        type=float,
        default=5.0,
    ),
    "kind": option(
        "--kind",
        "kind of the requests (default: %(default)s)",
        choices=("produce", "fetch", "metadata"),
        default="produce",
    ),
    "connections": option(
        "--connections N", "number of connections (default: %(default)s)", type=int, default=10
    ),
    "group": option(
        "--connections N",
        "number of connections, each a member's (default: %(default)s)",
        type=int,
        default=100,
    ),
    "reporters": option(
        "--connections N",
        "number of clients that report (default: %(default)s)",
        type=int,
        default=1000,
    ),
    "members": option("--members", "a member of the group for each connection"),
    "heartbeat": option(
        "--heartbeat-ms MS",
        "interval between a member's heartbeats, in milliseconds (default: %(default)s)",
        type=int,
        default=100,
    ),
    "in-flight": option(
        "--in-flight N",
        "requests in flight on each connection (default: %(default)s)",
        type=int,
        default=1,
    ),
    "rate": option(
        "--rate N", "records per second (default: %(default)s)", type=int, default=20000
    ),
    "until": option(
        "--seconds S", "duration of the load, in seconds (default: until Ctrl-C)", type=float
    ),
    "seconds": option(
        "--seconds S",
        "duration of the load, in seconds (default: %(default)s)",
        type=float,
        default=60.0,
    ),
    "entries": option(
        "--entries N",
        "number of ACLs (default: %(default)s)",
        type=number,
        default=10000,
    ),
    "rounds": option(
        "--rounds N", "number of rounds (default: %(default)s)", type=number, default=5
    ),
    "few-rounds": option(
        "--rounds N",
        "number of rounds after the one that warms up (default: %(default)s)",
        type=number,
        default=3,
    ),
    "kafka": option(
        "--kafka DIR",
        "directory with the jars of Apache Kafka: org.apache.kafka:kafka_2.13:4.4.0 and "
        "kafka-tools:4.4.0 as dependencies of a pom.xml, copied there by 'mvn "
        "dependency:copy-dependencies -DoutputDirectory=DIR' (default: none, required)",
        type=Path,
        required=True,
    ),
    "performance": option(
        "--groups GROUP,…",
        "groups of rows (default: %(default)s)",
        default="requests,throughput,latency,memory,lifecycle,admin,queues,client",
    ),
    "queue-records": option(
        "--queue-records N",
        "number of records of each row of the group 'queues' (default: %(default)s)",
        type=number,
        default=400000,
    ),
    "kafka-jars": option(
        "--kafka DIR",
        "directory with the jars of Apache Kafka, as for 'beside'; without it nothing is "
        "measured, and --page is made from the files in --out (default: none)",
        type=Path,
    ),
    "topology": option(
        "--topology",
        "one controller and broker, or three of each (default: %(default)s)",
        choices=("one", "three"),
        default="one",
    ),
    "form": option(
        "--form LABEL=PYTHON ...",
        "a further column: Ottla as this interpreter has it installed; may be repeated (default: "
        "only the interpreter that runs this)",
    ),
    "out": option(
        "--out DIR",
        "directory of the results, a file for each group and topology (default: none, required)",
        type=Path,
        required=True,
    ),
    "page": option(
        "--page FILE",
        "page whose tables are made from the files in --out, pictures beside it (default: none)",
        type=Path,
    ),
    "kafka-too": option(
        "--kafka DIR",
        "directory with the jars of Apache Kafka, as for 'beside' (default: without Kafka)",
        type=Path,
    ),
    "brokers": option(
        "--brokers N",
        "brokers of Ottla's cluster, 1 beside Kafka (default: %(default)s)",
        type=number,
        default=1,
    ),
    "broker-counts": option(
        "--brokers N,…",
        "numbers of brokers to measure, each in a new cluster (default: %(default)s)",
        default="1,2,4,8",
    ),
    "rows": option(
        "--rows ROW,…",
        "rows to compare (default: %(default)s)",
        default="produce,fetch,e2e,produce-requests,fetch-requests,metadata-requests",
    ),
    "singles": option(
        "--singles N", "number of records of e2e (default: %(default)s)", type=number, default=1000
    ),
    "row-requests": option(
        "--requests N",
        "number of requests of each row of requests (default: %(default)s)",
        type=number,
        default=20000,
    ),
    "timeout": option(
        "--timeout S",
        "time after which no further row starts, in seconds; complete rounds are reported "
        "(default: %(default)s)",
        type=float,
        default=1800.0,
    ),
    "handshake-seconds": option(
        "--handshake-seconds S",
        "duration of each row of handshakes, in seconds (default: %(default)s)",
        type=float,
        default=2.0,
    ),
    "server-set": option("--set KEY=VALUE ...", "setting of both servers; may be repeated"),
    "ledger": option(
        "--ledger FILE", "file that keeps every answer (default: a temporary one)", type=Path
    ),
    "set": option("--set KEY=VALUE ...", "setting of the librdkafka producer; may be repeated"),
    "produce-rate": option(
        "--produce-rate N",
        "requests per second of a producer that runs during phases with and without pushes "
        "(default: no producer)",
        type=int,
    ),
    "svg": option("--svg FILE", "file for a picture of the answers", type=Path),
    "jars": option(
        "--jars DIR",
        "directory with the jars of Spark's own connector, to compare (default: none)",
        type=Path,
    ),
    "master": option("--master URL", "Spark's master (default: %(default)s)", default="local[2]"),
    "pid": option(
        "--pid PID ...",
        "local broker process whose CPU and memory are measured; may be repeated",
        type=int,
    ),
    "format": option(
        "--format",
        "format of the figures (default: %(default)s)",
        choices=("table", "json"),
        default="table",
    ),
}

_TARGET = "bootstrap topic keep partitions replicas"
_SPARK = "bootstrap prefix keep replicas spark-count codec jars master rounds format"
BENCHES: dict[str, Bench] = {
    "produce": Bench(
        "throughput of a producer, and latency from send to acknowledgement",
        f"{_TARGET} count bytes batch codec acks linger pid format",
        {"count": 1000000},
    ),
    "consume": Bench(
        "throughput of a consumer that reads a topic from its beginning",
        "bootstrap filled-topic keep partitions replicas count bytes batch codec pid format",
        {"count": 1000000},
    ),
    "e2e": Bench(
        "latency of single records from producer to consumer",
        f"{_TARGET} count bytes acks pid format",
        {"count": 1000},
    ),
    "clients": Bench(
        "Ottla's client beside confluent-kafka and aiokafka: throughput and CPU",
        "bootstrap prefix keep count rounds format",
        {"count": 200000},
    ),
    "requests": Bench(
        "rate and latency of small requests over raw sockets",
        f"{_TARGET} requests kind connections in-flight pid format",
        {"count": 100000},
    ),
    "commits": Bench(
        "rate and latency of offset commits of one group",
        f"{_TARGET} requests group members in-flight pid format",
        {"count": 100000},
    ),
    "rebalance": Bench(
        "duration of a group's first and second rebalance",
        "bootstrap group heartbeat rounds format",
    ),
    "authorizer": Bench(
        "microseconds of one authorization decision over ACLs, in this process",
        "entries rounds format",
    ),
    "scrape": Bench(
        "duration and size of /metrics, and its delay of other requests",
        "bootstrap metrics rounds format",
    ),
    "steady": Bench(
        "a steady load, and an audit of every acknowledged record",
        "bootstrap topics keep partitions replicas rate until bytes batch codec acks linger set "
        "ledger svg format",
    ),
    "telemetry": Bench(
        "many clients that push metrics (KIP-714): lost pushes, and their cost",
        "bootstrap prefix keep reporters seconds produce-rate pid format",
    ),
    "beside": Bench(
        "Ottla beside Apache Kafka, in alternating rounds: medians, spread and ratio",
        "kafka rows few-rounds count bytes batch codec acks linger partitions singles "
        "row-requests connections in-flight server-set timeout format",
        {"count": 200000},
    ),
    "floor": Bench(
        "a broker beside the smallest C program that makes the same system calls",
        "few-rounds format",
    ),
    "scale": Bench(
        "one machine with 1, 2, 4 and 8 brokers: rates, CPU and memory",
        "broker-counts row-requests rounds format",
        {"requests": 200000, "rounds": 3},
    ),
    "performance": Bench(
        "every row of docs/performance.md, Ottla and Apache Kafka in turns, and that page",
        "kafka-jars performance topology form few-rounds queue-records out page timeout",
        {"timeout": 1200.0},
    ),
    "security": Bench(
        "cost of TLS, handshakes, ACLs and a mix with transactions, with Kafka in turns",
        "kafka few-rounds count handshake-seconds row-requests connections in-flight entries "
        "timeout format",
        {"count": 200000, "timeout": 440.0},
    ),
    "transactions": Bench(
        "transactional produce beside idempotent, and duration of commits, with Kafka in turns",
        "kafka-too brokers seconds rounds timeout format",
        {"seconds": 2.0, "timeout": 330.0},
    ),
    "start": Bench("duration of 'ottla up' with 3 + 3 nodes, and their memory", "rounds format"),
    "failover": Bench(
        "time without a leader after a broker's and a controller's death, and of 1,000 partitions",
        "rounds format",
    ),
    "replication": Bench("acks=1 and acks=all with one and three replicas", "rounds format"),
    "heartbeat": Bench("delay of heartbeats of an idle and of a busy broker", "rounds format"),
    "broker-move": Bench(
        "delay of a producer while 2 GB of another topic move to other brokers", "rounds format"
    ),
    "log-move": Bench(
        "delay of a producer while 2 GB of its partition move to another log directory",
        "rounds format",
    ),
    "tier-transfer": Bench(
        "uploads, and reads of 500 MB a round from an object store limited to 100 MB/s",
        "rounds format",
    ),
    "cold": Bench("delay of a producer beside a consumer of a cold backlog", "rounds format"),
    "compaction": Bench(
        "delay of a producer and of a tailing consumer beside a compaction", "rounds format"
    ),
    "instructions": Bench("instructions of a broker per request (callgrind)", "rounds format"),
    "append": Bench("one append to a log, of batches of 1, 16 and 1024 KiB", "rounds format"),
    "recovery": Bench(
        "check of logs after a kill, with one and two recovery threads", "rounds format"
    ),
    "partitions": Bench(
        "one broker of 2,000 and of 10,000 partitions: made, stopped, killed, started",
        "rounds format",
    ),
    "spark": Bench(
        "throughput of Spark's reads by Ottla's source and by others", f"{_SPARK} partitions"
    ),
    "spark-partitions": Bench("Spark's reads of 1, 4, 16 and 64 partitions", _SPARK),
    "spark-round-trip": Bench(
        "records of all kinds as Spark and another client read them",
        "count partitions master",
        {"count": 5000000},
    ),
    "spark-faults": Bench(
        "exactly-once delivery through Spark while brokers and drivers die", "rounds format"
    ),
}


def _options_of(bench: Bench) -> Iterator[Option]:
    for name in bench.options.split():
        names, settings = OPTIONS[name]
        long = next((one for one in names if one.startswith("--")), names[0])
        key = settings.get("dest", long.lstrip("-").replace("-", "_"))
        own = {"default": bench.defaults[key]} if key in bench.defaults else {}
        yield Option(names, {**settings, **own})


VERBS = tuple(
    verb(name, bench.summary, run, *_options_of(bench)) for name, bench in BENCHES.items()
)

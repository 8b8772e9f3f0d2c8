"""The parsers of `ottla bench`: one for each benchmark, with its own options and no others.

An option is declared once in `OPTIONS`; a benchmark in `BENCHES` names the options it uses, and the
defaults that are its own.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class Option(NamedTuple):
    """An option as argparse declares it; `help` may name the default as %(default)s."""

    names: tuple[str, ...]
    declared: Mapping[str, Any]


class Bench(NamedTuple):
    """A benchmark: its one line, its options by name, and the defaults that are its own."""

    summary: str
    options: str
    defaults: Mapping[str, Any] = {}


def _option(*names: str, **declared: Any) -> Option:
    return Option(names, declared)


def size(text: str) -> int:
    """Return a number of bytes such as 1000, 16k or 1m.  Raises ValueError for another text."""
    unit = UNITS.get(text[-1:].lower(), 0)
    return int(text[:-1]) * unit if unit else int(text)


def number(text: str) -> int:
    """Return a number.  Raises ArgumentTypeError if it is below 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return int(text)


OPTIONS: dict[str, Option] = {
    "bootstrap": _option(
        "--bootstrap-server",
        "--bootstrap",
        metavar="HOST:PORT",
        default="localhost:9092",
        help="address of a broker (default: %(default)s)",
    ),
    "metrics": _option(
        "--metrics",
        metavar="HOST:PORT",
        default="localhost:9404",
        help="address of the broker's /metrics (default: %(default)s)",
    ),
    "topic": _option(
        "--topic",
        metavar="NAME",
        help="topic, created where it is missing, and kept (default: a new one, deleted at the "
        "end)",
    ),
    "filled-topic": _option(
        "--topic",
        metavar="NAME",
        help="topic that holds the records, and is kept (default: a new one, filled first and "
        "deleted at the end)",
    ),
    "topics": _option(
        "--topic",
        metavar="NAME,…",
        help="topics, created where they are missing, and kept (default: a new one, deleted at "
        "the end)",
    ),
    "prefix": _option(
        "--topic",
        metavar="NAME",
        help="first part of the topics' names; they are kept (default: a new one, and the topics "
        "are deleted at the end)",
    ),
    "keep": _option(
        "--keep", action="store_true", help="keep the new topics (default: delete them at the end)"
    ),
    "partitions": _option(
        "--partitions",
        type=int,
        metavar="N",
        default=1,
        help="partitions of a new topic (default: %(default)s)",
    ),
    "replicas": _option(
        "--replication-factor",
        type=int,
        metavar="N",
        help="replicas of a new topic's partitions (default: the cluster's)",
    ),
    "count": _option(
        "--count", "-c", type=number, metavar="N", help="number of records (default: %(default)s)"
    ),
    "spark-count": _option(
        "--count",
        "-c",
        type=number,
        metavar="N",
        help="number of records of each topic (default: 200 MB of them)",
    ),
    "requests": _option(
        "--count", "-c", type=number, metavar="N", help="number of requests (default: %(default)s)"
    ),
    "bytes": _option(
        "--record-bytes",
        type=size,
        metavar="SIZE",
        default=1_000,
        help="size of a record's value, in bytes or such as 1k (default: %(default)s)",
    ),
    "batch": _option(
        "--batch-bytes",
        type=size,
        metavar="SIZE",
        default=131_072,
        help="size of a batch, in bytes or such as 16k (default: %(default)s)",
    ),
    "codec": _option(
        "--codec",
        metavar="NAME",
        default="none",
        help="codec of the batches: none, gzip, snappy, lz4 or zstd (default: %(default)s)",
    ),
    "acks": _option(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="replicas that acknowledge a batch (default: %(default)s)",
    ),
    "linger": _option(
        "--linger-ms",
        type=float,
        metavar="MS",
        default=5.0,
        help="time to fill a batch, in milliseconds (default: %(default)s)",
    ),
    "kind": _option(
        "--kind",
        choices=("produce", "fetch", "metadata"),
        default="produce",
        help="kind of the requests (default: %(default)s)",
    ),
    "connections": _option(
        "--connections",
        type=int,
        metavar="N",
        default=10,
        help="number of connections (default: %(default)s)",
    ),
    "group": _option(
        "--connections",
        type=int,
        metavar="N",
        default=100,
        help="number of connections, each a member's (default: %(default)s)",
    ),
    "reporters": _option(
        "--connections",
        type=int,
        metavar="N",
        default=1_000,
        help="number of clients that report (default: %(default)s)",
    ),
    "members": _option(
        "--members", action="store_true", help="a member of the group for each connection"
    ),
    "heartbeat": _option(
        "--heartbeat-ms",
        type=int,
        metavar="MS",
        default=100,
        help="interval between a member's heartbeats, in milliseconds (default: %(default)s)",
    ),
    "in-flight": _option(
        "--in-flight",
        type=int,
        metavar="N",
        default=1,
        help="requests in flight on each connection (default: %(default)s)",
    ),
    "rate": _option(
        "--rate",
        type=int,
        metavar="N",
        default=20_000,
        help="records per second (default: %(default)s)",
    ),
    "until": _option(
        "--seconds",
        type=float,
        metavar="S",
        help="duration of the load, in seconds (default: until Ctrl-C)",
    ),
    "seconds": _option(
        "--seconds",
        type=float,
        metavar="S",
        default=60.0,
        help="duration of the load, in seconds (default: %(default)s)",
    ),
    "entries": _option(
        "--entries",
        type=number,
        metavar="N",
        default=10_000,
        help="number of access control entries (default: %(default)s)",
    ),
    "rounds": _option(
        "--rounds",
        type=number,
        metavar="N",
        default=5,
        help="number of rounds (default: %(default)s)",
    ),
    "few-rounds": _option(
        "--rounds",
        type=number,
        metavar="N",
        default=3,
        help="number of rounds after the one that warms up (default: %(default)s)",
    ),
    "kafka": _option(
        "--kafka",
        type=Path,
        metavar="DIR",
        required=True,
        help="directory with the jars of Apache Kafka: org.apache.kafka:kafka_2.13:4.3.0 and "
        "kafka-tools:4.3.0 as dependencies of a pom.xml, copied there by "
        "'mvn dependency:copy-dependencies -DoutputDirectory=DIR' (default: none, required)",
    ),
    "performance": _option(
        "--groups",
        metavar="GROUP,…",
        default="requests,throughput,latency,memory,lifecycle,admin,client",
        help="groups of rows (default: %(default)s)",
    ),
    "kafka-jars": _option(
        "--kafka",
        type=Path,
        metavar="DIR",
        help="directory with the jars of Apache Kafka, as for 'beside'; without it nothing is "
        "measured, and --page is made of what --out holds (default: none)",
    ),
    "topology": _option(
        "--topology",
        choices=("one", "three"),
        default="one",
        help="one controller and broker, or three of each (default: %(default)s)",
    ),
    "form": _option(
        "--form",
        action="append",
        default=[],
        metavar="LABEL=PYTHON",
        help="a further column: Ottla as this interpreter has it installed; may be repeated "
        "(default: only the interpreter that runs this)",
    ),
    "out": _option(
        "--out",
        type=Path,
        metavar="DIR",
        required=True,
        help="directory of what is measured, a file for each group and topology (default: none, "
        "required)",
    ),
    "page": _option(
        "--page",
        type=Path,
        metavar="FILE",
        help="page whose measured part is made of what --out holds, pictures beside it "
        "(default: none)",
    ),
    "kafka-too": _option(
        "--kafka",
        type=Path,
        metavar="DIR",
        help="directory with the jars of Apache Kafka, as for 'beside' (default: without Kafka)",
    ),
    "brokers": _option(
        "--brokers",
        type=number,
        metavar="N",
        default=1,
        help="brokers of Ottla's cluster, 1 beside Kafka (default: %(default)s)",
    ),
    "rows": _option(
        "--rows",
        metavar="ROW,…",
        default="produce,fetch,e2e,produce-requests,fetch-requests,metadata-requests",
        help="rows to compare (default: %(default)s)",
    ),
    "singles": _option(
        "--singles",
        type=number,
        metavar="N",
        default=1_000,
        help="number of records of e2e (default: %(default)s)",
    ),
    "row-requests": _option(
        "--requests",
        type=number,
        metavar="N",
        default=20_000,
        help="number of requests of each row of requests (default: %(default)s)",
    ),
    "timeout": _option(
        "--timeout",
        type=float,
        metavar="S",
        default=1_800.0,
        help="time after which no other row begins, in seconds; complete rounds are reported "
        "(default: %(default)s)",
    ),
    "handshake-seconds": _option(
        "--handshake-seconds",
        type=float,
        metavar="S",
        default=2.0,
        help="duration of each row of handshakes, in seconds (default: %(default)s)",
    ),
    "server-set": _option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of both servers; may be repeated",
    ),
    "ledger": _option(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="file that keeps every answer (default: a temporary one)",
    ),
    "set": _option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the librdkafka producer; may be repeated",
    ),
    "produce-rate": _option(
        "--produce-rate",
        type=int,
        metavar="N",
        help="requests per second of a producer that runs during phases with and without pushes "
        "(default: no producer)",
    ),
    "svg": _option("--svg", type=Path, metavar="FILE", help="file for a picture of the answers"),
    "jars": _option(
        "--jars",
        type=Path,
        metavar="DIR",
        help="directory with the jars of Spark's own connector, to compare (default: none)",
    ),
    "master": _option(
        "--master", metavar="URL", default="local[2]", help="Spark's master (default: %(default)s)"
    ),
    "pid": _option(
        "--pid",
        type=int,
        action="append",
        default=[],
        metavar="PID",
        help="local broker process whose CPU and memory are measured; may be repeated",
    ),
    "format": _option(
        "--format",
        choices=("table", "json"),
        default="table",
        help="format of the figures (default: %(default)s)",
    ),
}
"""By the names that `BENCHES` uses; options of one spelling differ in meaning or default."""

_TARGET = "bootstrap topic keep partitions replicas"
_SPARK = "bootstrap prefix keep replicas spark-count codec jars master rounds format"

BENCHES: dict[str, Bench] = {
    "produce": Bench(
        "throughput of a producer, and latency from send to acknowledgement",
        f"{_TARGET} count bytes batch codec acks linger pid format",
        {"count": 1_000_000},
    ),
    "consume": Bench(
        "throughput of a consumer that reads a topic from its beginning",
        "bootstrap filled-topic keep partitions replicas count bytes batch codec pid format",
        {"count": 1_000_000},
    ),
    "e2e": Bench(
        "latency of single records from producer to consumer",
        f"{_TARGET} count bytes acks pid format",
        {"count": 1_000},
    ),
    "clients": Bench(
        "Ottla's client beside confluent-kafka and aiokafka: throughput and CPU",
        "bootstrap prefix keep count rounds format",
        {"count": 200_000},
    ),
    "requests": Bench(
        "rate and latency of small requests over raw sockets",
        f"{_TARGET} requests kind connections in-flight pid format",
        {"count": 100_000},
    ),
    "commits": Bench(
        "rate and latency of offset commits of one group",
        f"{_TARGET} requests group members in-flight pid format",
        {"count": 100_000},
    ),
    "rebalance": Bench(
        "duration of a group's first and second rebalance",
        "bootstrap group heartbeat rounds format",
    ),
    "authorizer": Bench(
        "one decision by access control entries, in this process: microseconds",
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
        "kafka rows few-rounds count bytes batch codec acks linger partitions singles row-requests "
        "connections in-flight server-set timeout format",
        {"count": 200_000},
    ),
    "performance": Bench(
        "every row of docs/performance.md, Ottla and Apache Kafka in turns, and that page",
        "kafka-jars performance topology form few-rounds out page timeout",
        {"timeout": 1_200.0},
    ),
    "security": Bench(
        "cost of TLS, of handshakes and of access control entries, with Kafka in turns",
        "kafka few-rounds count handshake-seconds row-requests connections in-flight entries "
        "timeout format",
        {"count": 200_000, "timeout": 440.0},
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
    "log-move": Bench(
        "delay of a producer while 2 GB of its partition move to another log directory",
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
        {"count": 5_000_000},
    ),
    "spark-faults": Bench(
        "exactly-once delivery through Spark while brokers and drivers die", "rounds format"
    ),
}


def declare_benches(parser: argparse.ArgumentParser) -> None:
    """Declare a parser for each benchmark."""
    benches = parser.add_subparsers(dest="what", required=True, metavar="BENCH")
    for name, bench in BENCHES.items():
        own = benches.add_parser(name, help=bench.summary, description=bench.summary)
        for option in bench.options.split():
            names, declared = OPTIONS[option]
            own.add_argument(*names, **declared)
        own.set_defaults(**bench.defaults)

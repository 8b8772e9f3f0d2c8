"""Load that uses what large installations use together: TLS, a login, ACLs, quotas, a compacted
topic, and transactions.

A producer writes keyed records in transactions of a tenth of a second. A consumer reads committed
records. Both connect with TLS 1.3 and log in as a user who has ACLs and quotas. The quotas are too
high to be reached. Segments are small, so that the log cleaner runs during the load.
"""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ottla.bench.kafka.beside_kafka import wait_until_led
from ottla.bench.kafka.security_servers import (
    PASSWORD,
    PLAINTEXT,
    TLS_USERS,
    USER,
    SecurityServer,
)
from ottla.bench.kafka.transaction_loads import TransactionLoad, produce_in_transactions
from ottla.bench.load import Load, library, make_topic
from ottla.bench.performance.conditions import UNREACHED_QUOTAS, set_quotas
from ottla.bench.processes import cpu_seconds
from ottla.model.quotas.quota_limits import USER as USER_TYPE
from ottla.model.quotas.quota_limits import QuotaEntity

TOPIC, GROUP, TRANSACTIONAL_IDS = "security-mix", "ottla-bench-mix", "ottla-bench-"
PARTITIONS = 6
KEYS = 10_000
SEGMENT_BYTES = 1 << 20
MIX_S, TRANSACTION_S = 5.0, 0.1
POLL_S, CONSUME_AT_ONCE = 0.1, 500
PATIENCE_S = 60.0


def prepare_mix(server: SecurityServer) -> None:
    """Create the compacted topic, and the user's ACLs and quotas. Clients of the plain listener
    are super users.

    Raises RefusedError if the server refuses the quotas.
    """
    bootstrap = server.addresses[PLAINTEXT]
    load = Load(bootstrap=bootstrap, topic=TOPIC, partitions=PARTITIONS, replication_factor=1)
    make_topic(load)
    wait_until_led(load)
    module = library("confluent_kafka.admin")
    admin = module.AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    changes = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.1",
    }
    entries = [
        module.ConfigEntry(key, value, incremental_operation=module.AlterConfigOpType.SET)
        for key, value in changes.items()
    ]
    resource = module.ConfigResource(module.ResourceType.TOPIC, TOPIC, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)
    types, patterns = module.ResourceType, module.ResourcePatternType
    allowed = [
        (types.TOPIC, TOPIC, patterns.LITERAL),
        (types.GROUP, GROUP, patterns.LITERAL),
        (types.TRANSACTIONAL_ID, TRANSACTIONAL_IDS, patterns.PREFIXED),
    ]
    acls = [
        module.AclBinding(
            *one, f"User:{USER}", "*", module.AclOperation.ALL, module.AclPermissionType.ALLOW
        )
        for one in allowed
    ]
    for future in admin.create_acls(acls).values():
        future.result(PATIENCE_S)
    set_quotas(bootstrap, UNREACHED_QUOTAS, QuotaEntity(USER_TYPE, False, USER))


def measure_mix(server: SecurityServer, ca: Path) -> Mapping[str, float]:
    """Run the producer and the consumer. Returns committed records per second, the duration of a
    commit in ms, and the server's CPU microseconds for each record."""
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(ca),
    }
    load = TransactionLoad(
        bootstrap=server.addresses[TLS_USERS],
        topic=TOPIC,
        partitions=PARTITIONS,
        seconds=MIX_S,
        key_count=KEYS,
        login=login,
    )
    with _reading(load.bootstrap, login):
        before = cpu_seconds(server.pids)
        result = produce_in_transactions(load, TRANSACTION_S)
        used = cpu_seconds(server.pids) - before
    figures = result.figures()
    return {
        "per_second": result.count / result.seconds,
        "broker_cpu_us_each": 1e6 * used / result.count,
        # If a load is too short for a commit to be counted, it has no latency.
        "commit_p50_ms": figures.get("latency_p50_ms", 0.0),
        "commit_p99_ms": figures.get("latency_p99_ms", 0.0),
    }


@contextmanager
def _reading(bootstrap: str, login: Mapping[str, str]) -> Iterator[None]:
    """Let a consumer read committed records on a thread of its own until the end of the block."""
    consumer = library("confluent_kafka").Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
            "log_level": 3,
            **login,
        }
    )
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            consumer.consume(CONSUME_AT_ONCE, timeout=POLL_S)

    consumer.subscribe([TOPIC])
    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read)
        try:
            yield
        finally:
            is_over.set()
            reader.result()
            consumer.close()

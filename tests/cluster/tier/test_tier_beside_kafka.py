"""Tiered storage beside Kafka: log starts, offsets of both tiers, reads, retention and refusals.

Each test has the outcomes of Kafka 4.4.0. The few differences have their reasons beside them, and
docs/reference/compatibility.md names them for users.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release. A plug-in that is
compiled for the test copies Kafka's segments. With OTTLA_TESTS=full, Ottla also runs without jars.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer

import ottla.testing
from ottla.bench.kafka.kafka_server import java_program, open_kafka
from ottla.model.errors import ErrorCode
from ottla.model.settings.storage.tiered_topics import NOT_ENABLED
from tests.cluster.tier.tier_client import TierClient

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
    ),
]

JARS = "OTTLA_KAFKA_JARS"
PLUGIN = Path(__file__).with_name("DirectoryStorage.java")
OTTLA, KAFKA = "ottla", "kafka"
SYSTEM_ENABLE = "remote.log.storage.system.enable"
METADATA = "rlmm.config.remote.log.metadata.topic."
SETTINGS = {
    SYSTEM_ENABLE: "true",
    f"{METADATA}num.partitions": "1",
    f"{METADATA}replication.factor": "1",
    f"{METADATA}min.isr": "1",
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
COMPILE_TIMEOUT_S = 120.0

BATCH_RECORDS, SEGMENT_RECORDS = 10, 20
"""Records of a batch, and of a full segment: a third batch does not fit into segment.bytes."""
VALUE = b"x" * 40_000
SEGMENT_BYTES = 1 << 20
BATCH_MS = 1_000
FIRST_MS = int(time.time() * 1_000) - 60_000
"""Timestamp of the first record. Batches are BATCH_MS apart, and records 1 ms."""
SMALL_SEGMENTS = {
    "segment.bytes": str(SEGMENT_BYTES),
    "flush.messages": "1",
    "file.delete.delay.ms": "0",
}
"""With `flush.messages`, each batch is durable before the next one. Otherwise Ottla could fill the
first segment of a log beyond segment.bytes, while the log's directory is not durable."""
TIERED = {**SMALL_SEGMENTS, "remote.storage.enable": "true", "retention.ms": "-1"}
TWO_LOCAL = {**TIERED, "local.retention.bytes": str(SEGMENT_BYTES)}
"""With ten batches, three of four copied segments are deleted locally. The active segment and one
other remain: without either, less than local.retention.bytes would remain."""
NONE_LOCAL = {**TIERED, "local.retention.ms": "1"}
ABORTED = (1, 5, 9)
"""Transactions that are aborted, of ten with a batch each."""
READ_COMMITTED = 1
E = ErrorCode
OUT_OF_RANGE = (E.OFFSET_OUT_OF_RANGE, False, -1, -1, ())
Create = Callable[..., str]


@contextmanager
def open_system(name: str, directory: Path, settings: Mapping[str, str]) -> Iterator[TierClient]:
    """Run a system with settings, and yield its client."""
    given = os.environ.get(JARS)
    if not given and (name == KAFKA or os.environ.get("OTTLA_TESTS") != "full"):
        pytest.skip(f"LOUD: {JARS} is not set; tiers were NOT compared with those of Kafka")
    store = directory / "store"
    store.mkdir()
    is_enabled = SYSTEM_ENABLE in settings
    if name == OTTLA:
        own = {"remote.log.storage.uri": f"file://{store}"} if is_enabled else {}
        with ottla.testing.cluster(settings={**settings, **own}) as cluster:
            yield TierClient(OTTLA, cluster.bootstrap, store)
        return
    assert given
    own = plugin_settings(Path(given), directory / "classes", store) if is_enabled else {}
    with open_kafka(Path(given), directory, {**settings, **own}) as server:
        yield TierClient(KAFKA, server.bootstrap, store)


def plugin_settings(jars: Path, classes: Path, store: Path) -> dict[str, str]:
    """Compile the plug-in. Returns Kafka's settings for it."""
    words = [f"{java_program(os.environ)}c", "-cp", f"{jars}/*", "-d", str(classes), str(PLUGIN)]
    subprocess.run(words, check=True, timeout=COMPILE_TIMEOUT_S)
    return {
        "remote.log.storage.manager.class.name": PLUGIN.stem,
        "remote.log.storage.manager.class.path": f"{classes}/",
        "rsm.config.dir": str(store),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    }


@pytest.fixture(scope="module", params=[OTTLA, KAFKA])
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TierClient]:
    """Client of a running system."""
    with open_system(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as client:
        yield client


@pytest.fixture
def create(system: TierClient, request: pytest.FixtureRequest) -> Create:
    """Create the topic of a test, append batches, and return its name."""

    def create(settings: dict[str, str], batch_count: int = 10, *, first_ms: int = FIRST_MS) -> str:
        name: str = request.node.originalname.removeprefix("test_")
        assert system.create(name, settings) == (E.NONE, "")
        append(system, name, batch_count, first_ms=first_ms)
        return name

    return create


def append(system: TierClient, topic: str, count: int, *, first_ms: int = FIRST_MS) -> None:
    """Append a number of batches."""
    for at in range(count):
        system.append(topic, BATCH_RECORDS, first_ms=first_ms + at * BATCH_MS, value=VALUE)


def test_special_offsets(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL, 0)
    system.wait_for(topic, 0, 0, -1, -1, 0)
    append(system, topic, 1)
    system.wait_for(topic, 0, 0, -1, 0, 10)
    append(system, topic, 9)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    system.wait_for_copies(topic, 4)
    found = {each: system.offset(topic, each) for each in range(-6, 0)}
    offsets = {-1: 100, -2: 0, -3: 99, -4: 60, -5: 79, -6: 80}
    assert found == {each: (E.NONE, offset, 0) for each, offset in offsets.items()}
    too_old = {-3: 6, -4: 7, -5: 8, -6: 10, -7: 11}
    for each, version in too_old.items():
        assert system.offset(topic, each, version) == (E.UNSUPPORTED_VERSION, -1, -1)


def test_special_offsets_of_other_topics(system: TierClient, create: Create) -> None:
    topic = create(SMALL_SEGMENTS, 5)
    system.wait_for(topic, 0, 0, -1, -1, 50)
    assert system.delete_records(topic, 30) == (E.NONE, 30)
    system.wait_for(topic, 30, 30, -1, -1, 50)
    assert system.alter(topic, {"remote.storage.enable": "true"}) == (E.NONE, "")
    # Kafka's local start is behind the log start if records were deleted before copies began.
    system.wait_for(topic, 30, 0 if system.name == KAFKA else 30, 39, 40, 50)
    assert system.alter(topic, {"local.retention.bytes": "1"}) == (E.NONE, "")
    system.wait_for(topic, 30, 40, 39, 40, 50)
    assert system.fetch(topic, 29) == OUT_OF_RANGE
    assert system.fetch(topic, 30) == (E.NONE, True, 30, 50, ())


def test_reads_of_both_tiers(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    for offset in (0, 5, 19, 20, 59, 60, 79, 80, 99):
        assert system.fetch(topic, offset) == (E.NONE, True, 0, 100, ())
    for offset in (-1, 101):
        assert system.fetch(topic, offset) == OUT_OF_RANGE
    times = {-5: 0, 0: 0, 5: 5, 10: 10, 1_000: 10, 3_009: 39, 3_010: 40, 5_010: 60, 7_000: 70}
    for after_ms, offset in {**times, 9_009: 99}.items():
        assert system.offset(topic, FIRST_MS + after_ms) == (E.NONE, offset, 0)
    assert system.offset(topic, FIRST_MS + 9_010) == (E.NONE, -1, -1)


def test_deleted_records(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    assert system.delete_records(topic, 30) == (E.NONE, 30)
    system.wait_for(topic, 30, 60, 79, 80, 100)
    system.wait_for_copies(topic, 3)
    assert system.fetch(topic, 29) == OUT_OF_RANGE
    assert system.fetch(topic, 30) == (E.NONE, True, 30, 100, ())
    assert system.offset(topic, FIRST_MS) == (E.NONE, 30, 0)
    assert system.delete_records(topic, 10) == (E.NONE, 30)
    assert system.delete_records(topic, 101) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert system.delete_records(topic, 70) == (E.NONE, 70)
    system.wait_for(topic, 70, 70, 79, 80, 100)
    system.wait_for_copies(topic, 1)
    assert system.fetch(topic, 69) == OUT_OF_RANGE
    assert system.offset(topic, FIRST_MS) == (E.NONE, 70, 0)
    assert system.delete_records(topic, -1) == (E.NONE, 100)
    wait_without_copies(system, topic, 100, 100, 79, -1, 100)
    # Kafka finds the active segment's last record, which is below the log start.
    latest = (E.NONE, 99, 0) if system.name == KAFKA else (E.NONE, -1, -1)
    assert system.offset(topic, -3) == latest
    append(system, topic, 6, first_ms=FIRST_MS + 10 * BATCH_MS)
    system.wait_for(topic, 100, 120, 139, 140, 160)
    system.wait_for_copies(topic, 2)


def wait_without_copies(system: TierClient, topic: str, *expected: int) -> None:
    """Wait until a topic has the expected offsets, and its copied segments are deleted. Kafka still
    names the last offset that was ever copied as the last copied one; Ottla then names none."""
    system.wait_for_copies(topic, 0)
    start, local, tiered, *later = expected
    system.wait_for(topic, start, local, tiered if system.name == KAFKA else -1, *later)


def test_retention_by_size(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    assert system.alter(topic, {"retention.bytes": str(2 * SEGMENT_BYTES)}) == (E.NONE, "")
    system.wait_for(topic, 40, 60, 79, 80, 100)
    system.wait_for_copies(topic, 2)
    assert system.fetch(topic, 39) == OUT_OF_RANGE
    assert system.fetch(topic, 40) == (E.NONE, True, 40, 100, ())
    assert system.alter(topic, {"retention.bytes": str(SEGMENT_BYTES)}) == (E.NONE, "")
    system.wait_for(topic, 60, 60, 79, 80, 100)
    system.wait_for_copies(topic, 1)
    smallest: dict[str, str | None] = {"retention.bytes": "1", "local.retention.bytes": "1"}
    assert system.alter(topic, smallest) == (E.NONE, "")
    wait_without_copies(system, topic, 80, 80, 79, 80, 100)


def test_retention_by_time(system: TierClient, create: Create) -> None:
    hour_ms = 3_600_000
    topic = create(TWO_LOCAL, 4, first_ms=FIRST_MS - 100 * hour_ms)
    append(system, topic, 6)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    assert system.alter(topic, {"retention.ms": str(50 * hour_ms)}) == (E.NONE, "")
    system.wait_for(topic, 40, 60, 79, 80, 100)
    system.wait_for_copies(topic, 2)
    shortest: dict[str, str | None] = {"retention.ms": "1000", "local.retention.ms": "1000"}
    assert system.alter(topic, shortest) == (E.NONE, "")
    wait_without_copies(system, topic, 100, 100, 99, -1, 100)


def test_all_records_copied(system: TierClient, create: Create) -> None:
    topic = create(NONE_LOCAL, 9)
    system.wait_for(topic, 0, 90, 89, -1, 90)
    assert system.fetch(topic, 89) == (E.NONE, True, 0, 90, ())
    assert system.offset(topic, FIRST_MS + 8_009) == (E.NONE, 89, 0)
    assert system.offset(topic, FIRST_MS + 8_010) == (E.NONE, -1, -1)
    append(system, topic, 1, first_ms=FIRST_MS + 9 * BATCH_MS)
    system.wait_for(topic, 0, 100, 99, -1, 100)


def test_copies_disabled(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    code, message = system.alter(topic, {"remote.log.copy.disable": "true"})
    assert code is E.INVALID_CONFIG
    assert message.startswith("When `remote.log.copy.disable` is set to true, the `local.retention")
    same: dict[str, str | None] = {"local.retention.bytes": "-2"}
    assert system.alter(topic, {**same, "remote.log.copy.disable": "true"}) == (E.NONE, "")
    append(system, topic, 4, first_ms=FIRST_MS + 10 * BATCH_MS)
    system.wait_for(topic, 0, 60, 79, 80, 140)
    assert system.fetch(topic, 0) == (E.NONE, True, 0, 140, ())
    system.wait_for_copies(topic, 4)
    assert system.alter(topic, {"retention.bytes": str(2 * SEGMENT_BYTES)}) == (E.NONE, "")
    wait_without_copies(system, topic, 80, 80, 79, 80, 140)
    again: dict[str, str | None] = {"remote.log.copy.disable": "false", "retention.bytes": "-1"}
    assert system.alter(topic, again) == (E.NONE, "")
    system.wait_for(topic, 80, 80, 119, 120, 140)


def test_tier_of_a_topic_disabled(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL)
    system.wait_for(topic, 0, 60, 79, 80, 100)
    for text in ("false", None):
        code, message = system.alter(topic, {"remote.storage.enable": text})
        assert code is E.INVALID_CONFIG
        assert message.startswith("It is invalid to disable remote storage without deleting")
    off: dict[str, str | None] = {
        "remote.storage.enable": "false",
        "remote.log.delete.on.disable": "true",
    }
    assert system.alter(topic, off) == (E.NONE, "")
    system.wait_for(topic, 60, 60, -1, -1, 100)
    system.wait_for_copies(topic, 0)
    assert system.fetch(topic, 59) == OUT_OF_RANGE
    assert system.fetch(topic, 60) == (E.NONE, True, 60, 100, ())
    assert system.offset(topic, FIRST_MS) == (E.NONE, 60, 0)
    assert system.alter(topic, {"remote.storage.enable": "true"}) == (E.NONE, "")
    system.wait_for(topic, 60, 60, 79, 80, 100)
    # Kafka does not copy again what it has once copied, although these copies are deleted.
    system.wait_for_copies(topic, 0 if system.name == KAFKA else 1)


def test_aborted_transactions_of_both_tiers(system: TierClient, create: Create) -> None:
    topic = create(TWO_LOCAL, 0)
    producer = Producer(
        {
            "bootstrap.servers": system.bootstrap,
            "transactional.id": "writer",
            "linger.ms": 1_000,
            "batch.size": SEGMENT_BYTES,
        }
    )
    producer.init_transactions()
    for number in range(10):
        producer.begin_transaction()
        for at in range(BATCH_RECORDS - 1):  # The last record of each transaction is its marker.
            producer.produce(topic, VALUE, timestamp=FIRST_MS + number * BATCH_MS + at)
        producer.flush()
        if number in ABORTED:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    system.wait_for(topic, 0, 60, 79, 80, 100)
    starts = [number * BATCH_RECORDS for number in ABORTED]
    for offset in range(0, 100, BATCH_RECORDS):
        segment = offset - offset % SEGMENT_RECORDS
        aborted = tuple(start for start in starts if segment <= start < segment + SEGMENT_RECORDS)
        assert system.fetch(topic, offset, READ_COMMITTED) == (E.NONE, True, 0, 100, aborted)


def test_refused_topics(system: TierClient) -> None:
    limited = {**TIERED, "retention.ms": "1000", "retention.bytes": "1000"}
    closed = {**TIERED, "remote.log.copy.disable": "true"}
    more, not_all = "Value must not be more than", "Value must not be -1 as"
    rows: list[tuple[dict[str, str], str]] = [
        ({**TIERED, "cleanup.policy": "compact"}, "Remote log storage only supports topics"),
        ({**TIERED, "cleanup.policy": "compact,delete"}, "Remote log storage only supports topics"),
        ({**TIERED, "cleanup.policy": ""}, ""),
        ({**limited, "local.retention.bytes": "2000"}, more),
        ({**limited, "local.retention.bytes": "-1"}, not_all),
        ({**limited, "local.retention.ms": "2000"}, more),
        ({**limited, "local.retention.ms": "-1"}, not_all),
        ({**limited, "local.retention.ms": "-2"}, ""),
        ({**limited, "local.retention.ms": "2000", "remote.storage.enable": "false"}, ""),
        ({**closed, "local.retention.ms": "1000"}, "When `remote.log.copy.disable`"),
        ({**closed, "local.retention.bytes": "1000"}, "When `remote.log.copy.disable`"),
        ({**closed, "local.retention.ms": "-1"}, ""),
        ({"remote.log.copy.disable": "true", "remote.log.delete.on.disable": "true"}, ""),
        ({**limited, "remote.copy.lag.ms": "2000"}, "Value must not exceed local.retention.ms"),
        ({**limited, "remote.copy.lag.bytes": "2000"}, "Value must not exceed local.retention.by"),
        ({**limited, "remote.copy.lag.bytes": "1000", "remote.copy.lag.ms": "-1"}, ""),
        ({"remote.copy.lag.ms": "2000", "local.retention.ms": "1000"}, ""),
    ]
    found = [
        (settings, *system.create(f"t{at}", settings)) for at, (settings, _) in enumerate(rows)
    ]
    for (settings, code, message), (_, sentence) in zip(found, rows, strict=True):
        assert code is (E.INVALID_CONFIG if sentence else E.NONE), settings
        assert sentence in message, settings


def test_refused_changes(system: TierClient) -> None:
    rows: list[tuple[dict[str, str], dict[str, str | None], str]] = [
        ({"cleanup.policy": "compact"}, {"remote.storage.enable": "true"}, "Remote log storage"),
        (TIERED, {"cleanup.policy": "compact"}, "Remote log storage only supports topics"),
        (TIERED, {"retention.ms": "1000", "local.retention.ms": "2000"}, "Value must not be more"),
        (TIERED, {"remote.storage.enable": None}, "It is invalid to disable remote storage"),
    ]
    for number, (before, change, sentence) in enumerate(rows):
        topic = f"changed{number}"
        assert system.create(topic, before) == (E.NONE, "")
        code, message = system.alter(topic, change)
        assert code is E.INVALID_CONFIG, change
        assert sentence in message, change


def test_no_topic_is_tiered_without_the_system(system: TierClient, tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": "1"}
    with open_system(system.name, tmp_path, settings) as other:
        assert other.create("t", TIERED) == (E.INVALID_CONFIG, NOT_ENABLED)
        assert other.create("t", {}) == (E.NONE, "")
        refused = other.alter("t", {"remote.storage.enable": "true"})
        assert refused == (E.INVALID_CONFIG, NOT_ENABLED)
        assert other.alter("t", {"local.retention.ms": "1"}) == (E.NONE, "")

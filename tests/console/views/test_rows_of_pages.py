"""Pages of moves, compaction, transactions, the quorum and clients, from answers of brokers."""

from typing import Any
from uuid import UUID

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from ottla.client.admin_parts.admin_brokers import (
    BrokerDescription,
    ClusterDescription,
    LogDirDescription,
    ReplicaOnDisk,
)
from ottla.client.admin_parts.admin_cleaner import CleanerDescription, CleaningPass, LogCleaning
from ottla.client.admin_parts.admin_cluster import FeatureLevels, QuorumDescription, QuorumReplica
from ottla.client.admin_parts.admin_configs import ConfigEntry
from ottla.client.admin_parts.admin_replicas import ActiveProducer, Reassignment
from ottla.client.admin_parts.admin_telemetry import PushedMetrics, TailedMetrics
from ottla.client.admin_parts.admin_topics import PartitionDescription, TopicDescription
from ottla.client.admin_parts.admin_transactions import (
    TransactionDescription,
    TransactionListing,
)
from ottla.console.sheets import PlotPart, Sheet, TablePart
from ottla.console.views.moves import copied_part, moves
from ottla.console.views.quorum import quorum
from ottla.console.views.storage.compaction import compaction
from ottla.console.views.telemetry import client
from ottla.console.views.transactions import of_topic, transactions
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, ProducerId, TopicPartition
from ottla.model.settings.resources import ConfigSource
from tests.console.console_fixture import NOW_MS, FakeAdmin, open_browser, page_request

ORDERS = TopicPartition("orders", 0)
HOSTILE = "<svg onload=alert(1)>\x1b"


def sheet_of(view: Any) -> Sheet:
    sheet = view.context["sheet"]
    assert isinstance(sheet, Sheet)
    return sheet


def tables(view: Any) -> dict[str, list[list[Any]]]:
    """Return the values of all tables, by title."""
    return {
        one.title: [[cell.value for cell in row] for row in one.rows]
        for one in sheet_of(view).parts
        if isinstance(one, TablePart)
    }


def ottla_admin(**calls: Any) -> FakeAdmin:
    """Return an admin client of a cluster with the broker 1."""

    async def describe_features() -> dict[str, object]:
        return {"ottla.version": object()}

    async def describe_cluster(**_: object) -> ClusterDescription:
        brokers = (BrokerDescription(NodeId(1), "127.0.0.1", 1, None),)
        return ClusterDescription("id", NodeId(1), brokers)

    return FakeAdmin(
        describe_features=describe_features, describe_cluster=describe_cluster, **calls
    )


def test_the_copied_part_of_a_move_follows_from_sizes() -> None:
    assert copied_part({1: 100, 2: 25, 3: 75}, (2, 3)) == 0.5
    assert copied_part({1: 100, 2: 200}, (2,)) == 1.0  # A copy may have an older, larger log.
    assert copied_part({2: 25}, (2,)) is None
    assert copied_part({}, ()) == 1.0


async def test_an_upgrade_is_finalized_at_levels_that_all_brokers_support() -> None:
    finalized = {"ottla.version": 1, "metadata.version": 30}
    changed: list[dict[str, int]] = []

    async def describe_features(node: int | None = None) -> dict[str, FeatureLevels]:
        newest = 33 if node == 1 else 32
        return {
            "ottla.version": FeatureLevels(finalized["ottla.version"], 0, 1),
            "metadata.version": FeatureLevels(finalized["metadata.version"], 7, newest),
        }

    async def describe_cluster(**_: object) -> ClusterDescription:
        brokers = tuple(BrokerDescription(NodeId(node), "127.0.0.1", node, None) for node in (1, 2))
        return ClusterDescription("id", NodeId(1), brokers)

    async def update_features(levels: dict[str, int], **_: object) -> None:
        changed.append(levels)
        finalized.update(levels)

    admin = FakeAdmin(
        describe_features=describe_features,
        describe_cluster=describe_cluster,
        update_features=update_features,
    )
    async with open_browser(admin) as browser:
        html = await browser.get("/features")
        assert "metadata.version to 32" in html
        where = "/features/upgrades/finalize"
        html = await browser.act(where, {"confirm": "finalize"})
        assert changed == [{"metadata.version": 32}]
        assert "metadata.version to" not in html
        assert (await browser.post(where, {"confirm": "finalize"})).status_code == 409


async def test_moves_show_what_was_copied_and_what_waits() -> None:
    async def list_reassignments() -> dict[TopicPartition, Reassignment]:
        return {ORDERS: Reassignment((NodeId(1), NodeId(2)), (NodeId(2),), (NodeId(1),))}

    async def describe_log_dirs(node: NodeId, _places: object) -> list[LogDirDescription]:
        size = 400 if node == 1 else 100
        replicas = {ORDERS: ReplicaOnDisk(size, Offset(0), is_future=False)}
        return [LogDirDescription("/d", ErrorCode.NONE, None, None, replicas)]

    async def describe_configs(*_: object, **__: object) -> dict[str, Any]:
        def entry(value: str) -> ConfigEntry:
            return ConfigEntry(value, ConfigSource.CLUSTER, is_read_only=False, is_sensitive=False)

        return {
            "ottla.balance.plan": entry("orders:0:1>2;orders:1:1>2"),
            "ottla.balance.rate.max": entry("5000000"),
        }

    admin = ottla_admin(
        list_reassignments=list_reassignments,
        describe_log_dirs=describe_log_dirs,
        describe_configs=describe_configs,
    )
    moving, waiting = tables(await moves(page_request(admin)))["Moves"]
    assert moving[:2] == ["orders", 0]
    assert moving[5:] == [0.25, 400, "balance"]
    assert waiting[1:] == [1, "1", "2", "1", "waits for its turn", None, "balance"]


async def test_compaction_shows_the_dirtiest_log_first() -> None:
    def log(dirty: int, last: CleaningPass | None, state: str = "idle") -> LogCleaning:
        return LogCleaning(
            state=state, reason=HOSTILE, retry_in_ms=None, is_wanted=False, clean_bytes=100,
            cleanable_bytes=dirty, first_dirty_offset=Offset(0), end_offset=Offset(9), last=last,
        )  # fmt: skip

    async def describe_cleaner(node: NodeId) -> CleanerDescription:
        saved = CleaningPass(NOW_MS - 5_000, 250, 1_000, 400, 10, 4)
        return CleanerDescription(
            node=node, now_ms=NOW_MS, thread_count=1, pass_count=1, failure_count=0,
            died_worker_count=0, read_bytes=1_000, written_bytes=400,
            logs={ORDERS: log(100, saved), TopicPartition("users", 0): log(300, None, "failed")},
        )  # fmt: skip

    admin = ottla_admin(describe_cleaner=describe_cleaner)
    first, second = tables(await compaction(page_request(admin)))["Compacted logs"]
    assert (first[0], first[3], first[4], first[9]) == ("users", "failed", 0.75, None)
    assert (second[0], second[4], second[8], second[9]) == ("orders", 0.5, 250, 600)
    async with open_browser(admin) as browser:
        assert "<svg" not in await browser.get("/compaction")


async def test_only_the_open_transactions_of_a_page_are_described() -> None:
    described: list[str] = []

    async def list_transactions(**_: object) -> list[TransactionListing]:
        return [
            TransactionListing(
                transactional_id=f"{HOSTILE}{number:05}",
                producer_id=ProducerId(number),
                state="Ongoing" if number % 50 == 0 else "CompleteCommit",
                coordinator=NodeId(1),
            )
            for number in range(10_000)
        ]

    async def describe_transaction(name: str) -> TransactionDescription:
        described.append(name)
        return TransactionDescription(
            transactional_id=name, coordinator=NodeId(1), state="Ongoing",
            producer_id=ProducerId(0), producer_epoch=0, timeout_ms=60_000,
            start_ms=NOW_MS - 1_000, partitions=frozenset({ORDERS}),
        )  # fmt: skip

    admin = ottla_admin(
        list_transactions=list_transactions, describe_transaction=describe_transaction
    )
    rows = tables(await transactions(page_request(admin)))["Transactional ids"]
    assert len(rows) == 100
    assert len(described) == 2
    assert rows[0][4:] == [NOW_MS - 1_000, 60_000, 1]
    async with open_browser(admin) as browser:
        assert "<svg" not in await browser.get("/transactions")


async def test_a_transaction_without_a_coordinator_hangs_and_can_be_aborted() -> None:
    aborted: list[tuple[TopicPartition, ActiveProducer]] = []
    lost = ActiveProducer(ProducerId(7), 0, 3, NOW_MS - 1_000, 0, Offset(40))
    idle = ActiveProducer(ProducerId(6), 0, 3, NOW_MS - 1_000, 0, None)
    known = ActiveProducer(ProducerId(8), 0, 3, NOW_MS - 1_000, 0, Offset(50))

    async def describe_topic(name: str) -> TopicDescription:
        row = PartitionDescription(0, NodeId(1), Epoch(0), (NodeId(1),), (NodeId(1),), ())
        return TopicDescription(name, ZERO_UUID, False, (row,))

    async def describe_producers(_places: object) -> dict[TopicPartition, list[ActiveProducer]]:
        return {ORDERS: [idle, lost, known]}

    async def list_transactions(**_: object) -> list[TransactionListing]:
        return [
            TransactionListing(
                transactional_id="billing", producer_id=ProducerId(8), state="Ongoing",
                coordinator=NodeId(1),
            )
        ]  # fmt: skip

    async def describe_transaction(name: str) -> TransactionDescription:
        return TransactionDescription(
            transactional_id=name, coordinator=NodeId(1), state="Ongoing",
            producer_id=ProducerId(8), producer_epoch=0, timeout_ms=60_000, start_ms=NOW_MS,
            partitions=frozenset({ORDERS}),
        )  # fmt: skip

    async def abort_transaction(at: TopicPartition, producer: ActiveProducer) -> None:
        aborted.append((at, producer))

    admin = ottla_admin(
        describe_topic=describe_topic,
        describe_producers=describe_producers,
        list_transactions=list_transactions,
        describe_transaction=describe_transaction,
        abort_transaction=abort_transaction,
    )
    view = await of_topic(page_request(admin, path={"topic": "orders"}))
    first, second, third = tables(view)["Producers"]
    assert (first[1], first[6], first[7]) == (40, None, "open, and no coordinator knows it")
    assert (second[1], second[6], second[7]) == (50, "billing", "open")
    assert (third[1], third[7]) == (None, "no transaction")
    async with open_browser(admin) as browser:
        where = "/transactions-of/orders/0"
        answer = await browser.post(f"{where}/50/abort", {"confirm": "orders"})
        assert answer.status_code == 409  # its coordinator ends it
        assert aborted == []
        await browser.act(f"{where}/40/abort", {"confirm": "orders"})
    assert aborted == [(ORDERS, lost)]


async def test_the_quorum_names_a_silent_voter() -> None:
    def voter(node: int, end: int, fetched_ms: int) -> QuorumReplica:
        return QuorumReplica(NodeId(node), ZERO_UUID, Offset(end), fetched_ms, fetched_ms)

    async def ask_quorum() -> QuorumDescription:
        voters = (voter(101, 500, NOW_MS), voter(102, 480, NOW_MS - 60_000), voter(103, 500, -1))
        return QuorumDescription(NodeId(101), Epoch(7), Offset(500), voters, (), {})

    async def describe_features() -> dict[str, object]:
        return {}

    admin = FakeAdmin(ask_quorum=ask_quorum, describe_features=describe_features)
    view = await quorum(page_request(admin))
    rows = tables(view)["Voters"]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        (101, "leader", 0),
        (102, "voter", 20),
        (103, "voter", 0),
    ]
    async with open_browser(admin) as browser:
        html = await browser.get("/quorum")
    assert "controller 102 has not been heard of for" in html
    assert "not available on this cluster" in html  # snapshots of Apache Kafka


def push(at_ms: int, latency: float, errors: float) -> PushedMetrics:
    def gauge(name: str, unit: str, value: float) -> Metric:
        points = [NumberDataPoint(as_double=value, time_unix_nano=at_ms * 1_000_000)]
        return Metric(name=name, unit=unit, gauge=Gauge(data_points=points))

    metrics = [
        gauge("org.apache.kafka.producer.request.latency.avg", "ms", latency),
        gauge("org.apache.kafka.producer.record.error.rate", "", errors),
        gauge(HOSTILE, "", 1),
    ]
    data = MetricsData(
        resource_metrics=[ResourceMetrics(scope_metrics=[ScopeMetrics(metrics=metrics)])]
    )
    return PushedMetrics(
        NodeId(1), UUID(int=1), "shop", "librdkafka", "2.12", "10.0.0.1", at_ms,
        data.SerializeToString(),
    )  # fmt: skip


async def test_the_metrics_of_a_client_are_plotted() -> None:
    async def tail_client_metrics(_node: NodeId, **_: object) -> TailedMetrics:
        corrupt = push(NOW_MS, 0, 0)._replace(otlp=b"\xff\xff")
        return TailedMetrics(3, 0, (push(NOW_MS + 5, 30, 2), push(NOW_MS, 10, 0), corrupt))

    admin = ottla_admin(tail_client_metrics=tail_client_metrics)
    view = await client(page_request(admin, path={"client": "shop"}))
    plots = {one.title: one for one in sheet_of(view).parts if isinstance(one, PlotPart)}
    latency = plots["Latency and waiting times"]
    assert latency.unit == "seconds"
    assert latency.times_ms == (NOW_MS, NOW_MS + 5)
    ((name, values),) = latency.series
    assert name == "org.apache.kafka.producer.request.latency.avg"
    assert values == (0.01, 0.03)
    assert plots["Errors and retries"].series[0][1] == (0.0, 2.0)
    async with open_browser(admin) as browser:
        html = await browser.get("/telemetry/shop")
    assert "<svg" not in html
    assert "Pushes that cannot be decoded" in html

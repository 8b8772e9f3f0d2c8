"""Administration of a running cluster, by real clients and by `ottla`."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition

from ottla.cli.cluster.cluster_file import log_file_of
from ottla.client.network.cluster import open_cluster
from ottla.model.errors import ErrorCode
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixtures, in conftest.py
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture(scope="module")
def cluster(plan_module_cluster: Callable[..., Processes]) -> Processes:
    """Three brokers that every test of this module shares."""
    processes = plan_module_cluster(
        brokers=3,
        default_replication_factor="3",
        auto_leader_rebalance_enable="false",
        log_levels="ottla.broker.groups:WARN",
    )
    processes.start()
    return processes


@pytest.fixture
def confluent(cluster: Processes) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def ottla(cluster: Processes, *words: str) -> Any:
    """Return the JSON output of a command."""
    return json.loads(cluster.ottla(*words, "--format=json").stdout)


def refused(cluster: Processes, *words: str) -> str:
    """Return the one sentence of a command that is refused."""
    said: str = cluster.ottla(*words, code=1).stderr
    return said


def create(cluster: Processes, topic: str, partitions: int = 1) -> None:
    cluster.ottla("topic", "create", topic, "-p", str(partitions))


def produce(
    cluster: Processes,
    topic: str,
    count: int,
    *,
    value: bytes = b"v",
    partition: int = 0,
    timestamp_ms: int = 0,
    **settings: Any,
) -> list[str]:
    """Write records one by one; return the names of the errors."""
    errors: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(error.name())

    settings = {"linger.ms": 0, "batch.num.messages": 1, **settings}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for index in range(count):
        producer.produce(
            topic,
            value,
            partition=partition,
            timestamp=timestamp_ms + index if timestamp_ms else 0,
            on_delivery=delivered,
        )
    assert producer.flush(60) == 0
    return errors


def earliest(confluent: AdminClient, topic: str, partition: int = 0) -> int:
    at = TopicPartition(topic, partition)
    found: int = confluent.list_offsets({at: OffsetSpec.earliest()})[at].result(60).offset
    return found


# Looking at replicas and resources


def test_every_replica_is_found_in_a_directory_with_its_size(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    create(cluster, "sized", 2)
    assert produce(cluster, "sized", 10, value=b"x" * 100) == []
    for broker in kafka.describe_log_dirs({"sized": [0, 1]}):
        (directory,) = broker["log_dirs"]
        assert directory["log_dir"] == str(cluster.node(f"broker {broker['broker']}").dir)
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        sizes = {
            row["partition_index"]: row["partition_size"]
            for row in directory["topics"][0]["partitions"]
        }
        assert sizes[0] > 1_000
        assert sizes[1] == 0


def test_an_idempotent_producer_is_described_by_each_replica(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    create(cluster, "numbered")
    settings: dict[str, Any] = {
        "enable.idempotence": True,
        "batch.num.messages": 10_000,
        "linger.ms": 50,
    }
    assert produce(cluster, "numbered", 7, **settings) == []
    at = KafkaTopicPartition("numbered", 0)
    for replica in (None, 1, 2, 3):
        (producer,) = kafka.describe_producers([at], broker_id=replica)[at].active_producers
        assert producer.last_sequence == 6
        assert producer.producer_epoch == 0


def test_resources_with_settings_are_listed(cluster: Processes, kafka: KafkaAdminClient) -> None:
    create(cluster, "listed")
    found = kafka.list_config_resources()
    assert "listed" in found["topic"]
    assert found["broker"] == found["broker_logger"] == ["1", "2", "3"]


# Settings


def topic_setting(confluent: AdminClient, topic: str, key: str) -> Any:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return confluent.describe_configs([resource])[resource].result(60)[key]


def test_a_topics_setting_follows_broker_and_cluster_and_tells_its_source(
    cluster: Processes, confluent: AdminClient
) -> None:
    create(cluster, "sourced")
    sources = [topic_setting(confluent, "sourced", "retention.ms").source]
    cluster.ottla("config", "set", "--cluster", "log.retention.ms=5000000", "--yes")
    try:
        found = topic_setting(confluent, "sourced", "retention.ms")
        sources.append(found.source)
        assert found.value == "5000000"
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            "sourced",
            incremental_configs=[
                ConfigEntry("retention.ms", "7", incremental_operation=AlterConfigOpType.SET)
            ],
        )
        confluent.incremental_alter_configs([resource])[resource].result(60)
        found = topic_setting(confluent, "sourced", "retention.ms")
        sources.append(found.source)
        assert [(s.value, s.source) for s in found.synonyms.values()] == [
            ("7", ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
            # As in Kafka there is no default: log.retention.ms has none.
            ("5000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value),
        ]
    finally:
        cluster.ottla("config", "set", "--cluster", "--unset", "log.retention.ms")
    assert sources == [
        ConfigSource.DEFAULT_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
    ]


@pytest.mark.parametrize(
    "entity", [("--topic", "bounded"), ("--cluster",)], ids=["topic", "cluster"]
)
def test_a_smaller_bound_of_a_batch_holds_without_a_restart_and_until_it_is_taken_back(
    cluster: Processes, entity: tuple[str, ...]
) -> None:
    key = "max.message.bytes" if entity[0] == "--topic" else "message.max.bytes"
    cluster.ottla("topic", "create", "bounded", "-p", "1", "--if-not-exists")
    large = b"x" * 5_000
    assert produce(cluster, "bounded", 1, value=large) == []
    cluster.ottla("config", "set", *entity, f"{key}=1000")
    try:
        # The leader follows the controller, which has answered already.
        cluster.wait_for(
            lambda: produce(cluster, "bounded", 1, value=large) == ["MSG_SIZE_TOO_LARGE"], "refusal"
        )
    finally:
        cluster.ottla("config", "set", *entity, "--unset", key)
    cluster.wait_for(lambda: produce(cluster, "bounded", 1, value=large) == [], "larger bound")


def test_a_shorter_retention_is_applied_at_once(cluster: Processes, confluent: AdminClient) -> None:
    """Kafka applies it with its next check (`log.retention.check.interval.ms`, five minutes)."""
    cluster.ottla("topic", "create", "emptied", "-p", "1", "-c", "retention.ms=-1")
    assert produce(cluster, "emptied", 10, timestamp_ms=1_700_000_000_000) == []
    assert earliest(confluent, "emptied") == 0
    cluster.ottla("config", "set", "--topic", "emptied", "retention.ms=1000", "--yes")
    cluster.wait_for(lambda: earliest(confluent, "emptied") == 10, "an empty topic", 10)


def test_the_old_request_replaces_all_settings_of_a_topic(
    cluster: Processes, confluent: AdminClient
) -> None:
    """AlterConfigs (33): each setting that it does not name returns to its default."""
    create(cluster, "replaced")
    cluster.ottla(
        "topic", "alter", "replaced", "-c", "segment.ms=1000", "-c", "retention.ms=5", "--yes"
    )
    wanted = ConfigResource(ConfigResource.Type.TOPIC, "replaced", {"retention.ms": "9"})
    with pytest.warns(DeprecationWarning):
        confluent.alter_configs([wanted])[wanted].result(60)

    def has_only_what_was_named() -> bool:
        # The broker that is asked may learn of a change after the one that forwarded it.
        found = ottla(cluster, "config", "get", "--topic", "replaced")
        own = {row["key"]: row["value"] for row in found if row["source"] == "topic"}
        return own == {"retention.ms": "9"}

    cluster.wait_for(has_only_what_was_named, "the replaced settings")


def test_settings_are_shown_checked_set_and_compared(cluster: Processes) -> None:
    create(cluster, "shown")
    create(cluster, "plain")
    change = ("config", "set", "--topic", "shown", "cleanup.policy+=compact", "segment.ms=9")
    expected = [
        {"key": "cleanup.policy", "was": "delete", "now": "delete,compact"},
        {"key": "segment.ms", "was": "604800000", "now": "9"},
    ]
    assert ottla(cluster, *change, "--dry-run") == expected
    assert ottla(cluster, "config", "diff", "--topic", "shown", "--topic", "plain") == []
    assert ottla(cluster, *change, "--yes") == expected
    assert ottla(cluster, "config", "diff", "--topic", "shown", "--topic", "plain") == [
        {"key": "cleanup.policy", "shown": "delete,compact", "plain": "delete"},
        {"key": "segment.ms", "shown": "9", "plain": "604800000"},
    ]
    (row,) = ottla(cluster, "config", "get", "--topic", "shown", "segment.ms")
    assert (row["value"], row["source"], row["default"]) == ("9", "topic", "604800000")
    assert [one["source"] for one in row["set_by"]] == ["topic"]
    (row,) = ottla(cluster, "config", "get", "--broker", "2", "node.id")
    assert (row["value"], row["source"], row["read_only"]) == ("2", "file", True)


def test_groups_and_subscriptions_to_metrics_have_settings_that_every_broker_tells(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    session = "consumer.session.timeout.ms"
    assert ottla(cluster, "config", "set", "--group", "steady", f"{session}=50000") == [
        {"key": session, "was": "45000", "now": "50000"}
    ]
    assert ottla(cluster, "config", "diff", "--group", "steady") == [
        {"key": session, "value": "50000", "default": "45000", "source": "group"}
    ]
    subscribe = ("config", "set", "--client-metrics", "lag", "metrics=a.,b.", "match=client_id=x.*")
    assert [row["was"] for row in ottla(cluster, *subscribe)] == ["", ""]
    listed = kafka.list_config_resources()
    assert (listed["group"], listed["client_metrics"]) == (["steady"], ["lag"])
    for entity, key in ((("--group", "steady"), session), (("--client-metrics", "lag"), "metrics")):
        cluster.ottla("config", "set", *entity, "--unset", key)
    (row,) = ottla(cluster, "config", "get", "--group", "steady", session)
    assert (row["value"], row["source"]) == ("45000", "default")
    assert "group.consumer.max.session" in refused(
        cluster, "config", "set", "--group", "steady", f"{session}=99000"
    )


def test_a_brokers_loggers_say_more_until_their_level_is_reset(cluster: Processes) -> None:
    """The extra lines are in the broker's own log: the offsets that a new coordinator loads."""
    create(cluster, "talked-about")
    position = TopicPartition("talked-about", 0, 1)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "talked-about"})
    cluster.wait_for(lambda: consumer.commit(offsets=[position], asynchronous=False), "a commit")
    consumer.close()
    (group,) = [row for row in ottla(cluster, "group", "list") if row["group"] == "talked-about"]
    brokers = [str(one) for one in (1, 2, 3) if one != group["coordinator"]]
    logs = [log_file_of("broker", cluster.node(f"broker {one}")) for one in brokers]

    def has_said() -> bool:
        lines = (line for log in logs for line in log.read_text().splitlines())
        return any(" INFO " in line and " ottla.broker.groups" in line for line in lines)

    for one in brokers:
        level = ("config", "set", "--loggers", one, "ottla.broker.groups=INFO")
        assert [(row["was"], row["now"]) for row in ottla(cluster, *level)] == [("WARN", "INFO")]
    assert not has_said()
    coordinator = str(group["coordinator"])
    (row,) = ottla(cluster, "config", "get", "--loggers", coordinator, "ottla.broker.groups")
    assert row["value"] == "WARN"
    cluster.ottla("broker", "drain", coordinator, "--yes")
    cluster.ottla("broker", "drain", coordinator, "--undo")
    cluster.wait_for(has_said, "what groups say", 10)
    for one in brokers:
        cluster.ottla("config", "set", "--loggers", one, "--unset", "ottla.broker.groups")
    cluster.ottla("topic", "elect")
    sentence = "Logger nonsense does not exist"
    assert sentence in refused(cluster, "config", "set", "--loggers", "2", "nonsense=INFO")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topic", "nowhere", "retention.ms=1"], " topic list'"),
        (["--cluster", "retention.ms=1"], "Unknown broker config name"),
        (["--cluster", "node.id=1"], "set it in the broker's file"),
        (["--broker", "9", "max.connections=5"], " broker list'"),
        (["--cluster", "log.segment.bytes=5"], "must be an integer of at least 1048576"),
        (["--cluster", "retention.ms"], "KEY=VALUE"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_in_one_sentence(
    cluster: Processes, words: list[str], said: str
) -> None:
    message = refused(cluster, "config", "set", *words)
    assert said in message
    assert message.count("\n") == 1


# Topics


def test_a_topic_grows_by_or_to_a_count(cluster: Processes) -> None:
    create(cluster, "grown", 2)
    by = ("topic", "add-partitions", "grown", "--by", "2")
    assert ottla(cluster, *by, "--dry-run") == [{"topic": "grown", "was": 2, "partitions": 4}]
    assert len(cluster.replicas("grown")) == 2
    assert ottla(cluster, *by) == [{"topic": "grown", "was": 2, "partitions": 4}]
    assert len(cluster.replicas("grown")) == 4
    assert "would not be an increase" in refused(
        cluster, "topic", "add-partitions", "grown", "--to", "3"
    )


def test_a_topic_is_trimmed_to_an_offset_a_time_or_its_end(
    cluster: Processes, confluent: AdminClient
) -> None:
    create(cluster, "trimmed", 2)
    now_ms = time.time_ns() // 1_000_000
    produce(cluster, "trimmed", 10, timestamp_ms=now_ms - 7_200_000)
    produce(cluster, "trimmed", 10, timestamp_ms=now_ms - 1_000_000)
    trim = ("topic", "trim", "trimmed")
    assert "--partition (0 to 1)" in refused(cluster, *trim, "--before=3")
    assert "committed ends before 20" in refused(cluster, *trim, "--before=21", "-p0")
    assert "topic 'trimmed' has 2 partitions" in refused(cluster, *trim, "--all", "-p2")

    (row,) = ottla(cluster, *trim, "--before=3", "-p0", "--dry-run")
    assert (row["was_start"], row["start"], row["end"]) == (0, 3, 20)
    assert earliest(confluent, "trimmed") == 0
    cluster.ottla(*trim, "--before=3", "-p0", "--yes")
    assert earliest(confluent, "trimmed") == 3
    cluster.ottla(*trim, "--before-time=1h", "--yes")
    assert earliest(confluent, "trimmed") == 10
    (row,) = ottla(cluster, *trim, "--all", "--yes")
    assert row["offsets_deleted"] == 10
    assert earliest(confluent, "trimmed") == 20
    assert ottla(cluster, *trim, "--all", "--yes") == []


def test_a_compacted_topic_is_not_trimmed(cluster: Processes) -> None:
    """Kafka's POLICY_VIOLATION: a compacted log may not lose the newest record of a key."""
    cluster.ottla("topic", "create", "kept", "-p", "1", "-c", "cleanup.policy=compact")
    cluster.ottla("config", "set", "--topic", "kept", "cleanup.policy=delete", "--yes")
    assert produce(cluster, "kept", 3) == []
    cluster.ottla("config", "set", "--topic", "kept", "cleanup.policy=compact", "--yes")
    assert "cleanup.policy+=delete" in refused(cluster, "topic", "trim", "kept", "--all", "--yes")


def elect_everywhere(cluster: Processes) -> ElectLeadersResponse:
    async def body() -> ElectLeadersResponse:
        async with open_cluster(parse_bootstrap(cluster.bootstrap)) as view:
            request = ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000)
            return await view.request(request, ElectLeadersResponse)

    return trio.run(body)


def test_leadership_goes_back_to_the_first_replicas(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    """For all partitions (null), the response omits those that needed no election, as Kafka's
    does."""
    create(cluster, "led", 6)
    first = {partition: replicas[0] for partition, replicas in cluster.replicas("led").items()}
    assert cluster.leaders("led") == first
    assert ottla(cluster, "topic", "elect") == []

    def move_away() -> list[int]:
        cluster.ottla("broker", "drain", "2", "--force", "--yes")
        cluster.ottla("broker", "drain", "2", "--undo")
        cluster.wait_healthy()
        return [one for one, leader in cluster.leaders("led").items() if leader != first[one]]

    moved = move_away()
    assert moved == [one for one, broker in first.items() if broker == 2]
    dry = ottla(cluster, "topic", "elect", "led", "--dry-run")
    assert [(row["partition"], row["leader"]) for row in dry] == [(one, 2) for one in moved]
    done = ottla(cluster, "topic", "elect", "led")
    assert [(row["partition"], row["leader"]) for row in done] == [(one, 2) for one in moved]
    assert cluster.leaders("led") == first

    moved = move_away()
    elected = {
        row.partition_id: row.error_code
        for topic in elect_everywhere(cluster).replica_election_results
        if topic.topic == "led"
        for row in topic.partition_result
    }
    assert elected == dict.fromkeys(moved, 0)
    assert cluster.leaders("led") == first
    again = kafka.elect_leaders(PREFERRED, {"led": [0]}, raise_errors=False)
    (row,) = again.replica_election_results[0].partition_result
    assert row.error_code == ErrorCode.ELECTION_NOT_NEEDED


def test_a_replica_that_is_away_is_not_elected_and_an_unclean_election_wants_names(
    cluster: Processes,
) -> None:
    create(cluster, "away", 3)
    (partition,) = [one for one, nodes in cluster.replicas("away").items() if nodes[0] == 3]
    cluster.end("broker 3")
    try:
        said = refused(cluster, "topic", "elect", "away", "-p", str(partition))
        assert f"away-{partition}: its first replica, broker 3, is not in sync" in said
        assert "name the topics" in refused(cluster, "topic", "elect", "--unclean")
        assert ottla(cluster, "topic", "elect", "away", "--unclean") == []
    finally:
        cluster.start("broker 3")
        cluster.wait_healthy()


def test_partitions_of_an_unknown_topic_cannot_be_elected(confluent: AdminClient) -> None:
    unknown = TopicPartition("nowhere", 0)
    result = confluent.elect_leaders(ElectionType.PREFERRED, [unknown]).result(60)
    assert result[unknown].name() == "UNKNOWN_TOPIC_OR_PART"


# Features


def test_a_feature_is_lowered_only_when_that_is_said(
    cluster: Processes, kafka: KafkaAdminClient
) -> None:
    """KIP-584: upgrade types UPGRADE 1, SAFE_DOWNGRADE 2; INVALID_UPDATE_VERSION otherwise."""
    name = "eligible.leader.replicas.version"

    def level() -> Any:
        """As the broker that was asked to change it has it."""
        return kafka.describe_features(True)[name].get("finalized", (0, 0))[1]

    assert level() == 1
    with pytest.raises(Exception, match=r"(?i)InvalidUpdateVersion"):
        kafka.update_features({name: (1, 0)})
    kafka.update_features({name: (2, 0)})
    assert level() == 0
    kafka.update_features({name: (1, 1)})
    assert level() == 1

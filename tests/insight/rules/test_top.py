"""The answer "top": the busiest clients, topics, partitions and brokers, as tables."""

from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.insight.explanation import Conclusion, Explanation
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.traffic_driver import TrafficSample
from ottla.insight.rules.top import ROWS_MAX, explain_top
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.messages.describe_node_response import NodeClientTraffic, NodeTopicTraffic


def traffic(topic: str, *, bytes_in: int = 0, fetches: int = 0) -> NodeTopicTraffic:
    return NodeTopicTraffic(
        topic=topic,
        bytes_in=bytes_in,
        bytes_out=0,
        messages_in=0,
        produce_requests=0,
        fetch_requests=fetches,
    )


def sample(at_s: float, *topics: NodeTopicTraffic, requests: int = 0) -> TrafficSample:
    return TrafficSample(
        at_s=at_s, figures={1: {"requests.answered": requests}}, topics={1: list(topics)}
    )


def usage(client_id: str, key: str, rate: float) -> QuotaUsage:
    return QuotaUsage(NodeId(1), key, "", client_id, 1e9, rate, 0)


def client(client_id: str, *, bytes_in: int = 0, requests: int = 1) -> NodeClientTraffic:
    return NodeClientTraffic(
        user="al", client_id=client_id, requests=requests, bytes_in=bytes_in, bytes_out=0, used_ns=0
    )


def explained(before: TrafficSample, after: TrafficSample, by: str = "") -> Explanation:
    return explain_top(ClusterFacts(now_ms=0, traffic=(before, after)), {"by": by})


def rows_of(found: Explanation, name: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = found.as_json["tables"][name]
    return rows


def test_topics_and_clients_are_sorted_by_bytes_or_by_requests() -> None:
    before = sample(0.0, traffic("large"), traffic("chatty"))
    after = sample(2.0, traffic("large", bytes_in=4_000), traffic("chatty", fetches=60))
    after.clients = {1: [client("loader", bytes_in=9_000), client("poller", requests=800)]}
    after.quotas = [
        usage("loader", "producer_byte_rate", 50.0),
        usage("poller", "request_percentage", 7.0),
    ]
    for by, topics, clients in (
        ("bytes", ["large", "chatty"], ["loader", "poller"]),
        ("requests", ["chatty", "large"], ["poller", "loader"]),
    ):
        found = explained(before, after, by)
        assert [row["topic"] for row in rows_of(found, "topics")] == topics
        assert [row["client id"] for row in rows_of(found, "clients")] == clients
        assert [row["client id"] for row in rows_of(found, "quotas")] == clients
        assert found.verdict is Conclusion.CLEAR
    assert rows_of(found, "topics")[1]["bytes in per second"] == 2_000


def test_growing_partitions_are_shown_and_rows_are_bounded() -> None:
    places = [TopicPartition("t", number) for number in range(2 * ROWS_MAX)]
    before, after = sample(0.0), sample(1.0)
    before.sizes = dict.fromkeys(places, 100)
    after.sizes = {at: 100 + at.partition for at in places}
    found = explained(before, after)
    rows = rows_of(found, "partitions")
    assert len(rows) == ROWS_MAX
    assert rows[0] == {
        "topic": "t",
        "partition": 2 * ROWS_MAX - 1,
        "bytes in per second": 2 * ROWS_MAX - 1,
        "bytes": 100 + 2 * ROWS_MAX - 1,
    }


def test_brokers_that_report_nothing_make_the_verdict_unknown() -> None:
    after = sample(1.0)
    after.failures[2] = "no answer in 3 s"
    found = explained(sample(0.0), after)
    assert found.verdict is Conclusion.UNKNOWN
    assert found.unknown == ("traffic of broker 2: no answer in 3 s",)

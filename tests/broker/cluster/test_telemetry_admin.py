"""Reporting clients and their latest pushes, through ottla's own admin messages."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.broker.metrics.telemetry_admin import INSTANCES_MAX, TelemetryAdminApi
from ottla.broker.metrics.telemetry_tail import TelemetryTail
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.instances import ClientInstances
from ottla.telemetry.clients.subscriptions import ClientTraits
from ottla.wire.messages.describe_client_instances_request import DescribeClientInstancesRequest
from ottla.wire.messages.describe_client_instances_response import DescribeClientInstancesResponse
from ottla.wire.messages.tail_client_metrics_request import TailClientMetricsRequest
from ottla.wire.messages.tail_client_metrics_response import TailClientMetricsResponse

FIRST_ID = 1_000
"""First client instance id; ids below a hundred are unassigned."""


class Broker:
    """Some clients, and their pushes."""

    def __init__(self) -> None:
        self.instances = ClientInstances(fresh_id=lambda: UUID(int=7), payload_bytes_max=100)
        self.instances.on_subscriptions({"s": {"metrics": "a,b", "interval.ms": "1000"}})
        self.tail = TelemetryTail()
        self.api = TelemetryAdminApi(node_id=NodeId(3), instances=self.instances, tail=self.tail)

    def enter(self, number: int, client_id: str | None, *, at_ms: int = 0) -> int:
        answer = self.instances.get_subscriptions(
            traits(number, client_id), connection_id=number, now_ms=at_ms
        )
        return answer.instance.effective.subscription_id

    def describe(self, **asked: Any) -> DescribeClientInstancesResponse:
        context = cast(Any, SimpleNamespace(arrived_ms=10_000))
        return self.api.describe_instances(context, DescribeClientInstancesRequest(**asked))

    def tailed(self, **asked: Any) -> TailClientMetricsResponse:
        context = cast(Any, SimpleNamespace(arrived_ms=10_000))
        return self.api.tail(context, TailClientMetricsRequest(**asked))


def traits(number: int, client_id: str | None) -> ClientTraits:
    return ClientTraits(UUID(int=number), client_id, "librdkafka", "2.13", "10.0.0.9", 4711)


def test_a_client_is_described_with_all_that_it_was_asked_and_has_done() -> None:
    broker = Broker()
    subscription_id = broker.enter(FIRST_ID, "app", at_ms=4_000)
    broker.instances.push(
        traits(FIRST_ID, "app"),
        connection_id=FIRST_ID,
        subscription_id=subscription_id,
        is_terminating=True,
        codec=0,
        payload_bytes=60,
        now_ms=7_000,
    )

    answer = broker.describe()

    (found,) = answer.instances
    assert (answer.node_id, answer.more) == (3, False)
    assert (found.client_instance_id, found.client_id) == (UUID(int=FIRST_ID), "app")
    assert (found.client_software_name, found.client_software_version) == ("librdkafka", "2.13")
    assert (found.client_source_address, found.client_source_port) == ("10.0.0.9", 4711)
    assert (found.subscription_id, found.push_interval_ms) == (subscription_id, 1_000)
    assert found.metrics == ["a", "b"]
    assert (found.last_get_ms_ago, found.last_push_ms_ago) == (6_000, 3_000)
    assert (found.push_count, found.push_bytes) == (1, 60)
    assert (found.last_error_code, found.terminating) == (ErrorCode.NONE, True)


def test_what_a_client_has_not_done_yet_has_no_time() -> None:
    broker = Broker()
    broker.enter(FIRST_ID, None)

    (found,) = broker.describe().instances

    assert (found.client_id, found.last_push_ms_ago, found.push_count) == (None, -1, 0)


def test_many_clients_are_described_page_by_page() -> None:
    broker = Broker()
    numbers = [FIRST_ID + (index * 7) % 25 for index in range(25)]
    for number in numbers:
        broker.enter(number, "app")

    pages, after = [], UUID(int=0)
    while True:
        answer = broker.describe(after=after, limit=10)
        pages.append([one.client_instance_id.int for one in answer.instances])
        # A client that pushes between two pages is neither listed twice nor left out.
        broker.enter(FIRST_ID + 3, "app")
        if not answer.more:
            break
        after = answer.instances[-1].client_instance_id

    assert list(map(len, pages)) == [10, 10, 5]
    assert [number for page in pages for number in page] == sorted(numbers)


def test_a_response_has_at_most_one_page() -> None:
    broker = Broker()
    for index in range(INSTANCES_MAX + 1):
        broker.enter(FIRST_ID + index, "app")
    answer = broker.describe(limit=1_000_000)
    assert (len(answer.instances), answer.more) == (INSTANCES_MAX, True)
    assert len(broker.describe(limit=-1).instances) == 1


def test_pushed_metrics_are_returned_unchanged() -> None:
    broker = Broker()
    instance_id = UUID(int=FIRST_ID)
    labels = ClientLabels(instance_id, "app", "User:a", "librdkafka", "2.13", "10.0.0.9", 3)
    broker.tail.offer([LabelledPush(labels, 1_700_000_000_123, b"otlp")])

    for client in (None, "app", uuid_to_text(instance_id)):
        answer = broker.tailed(cursor=0, client=client)
        (found,) = answer.pushes
        assert (answer.node_id, answer.cursor, answer.missed) == (3, 2, 0)
        assert (found.client_instance_id, found.client_id) == (instance_id, "app")
        assert (found.client_software_name, found.client_source_address) == (
            "librdkafka",
            "10.0.0.9",
        )
        assert (found.received_ms, found.metrics) == (1_700_000_000_123, b"otlp")
    assert broker.tailed(cursor=0, client="else").pushes == []
    assert broker.tailed().pushes == []

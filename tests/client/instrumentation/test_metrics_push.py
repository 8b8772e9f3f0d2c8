"""The task that reports a client's metrics: in virtual time, against a broker that is scripted."""

from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest
import trio
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from ottla.client.instrumentation.metrics_push import (
    LAST_PUSH_PATIENCE_S,
    ReportingClient,
    open_metrics_push,
)
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.telemetry.client_metrics import ClientKind
from ottla.client.telemetry.metric_points import MetricPoint, total
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID
from ottla.telemetry.clients.unpack import unpack
from ottla.wire.codec_types import Message
from ottla.wire.compression import Codec
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

R = TypeVar("R", bound=Message)
Answer = Message | Exception | Callable[[], Awaitable[Message]]

ID = UUID(int=(7 << 64) + (1 << 31))
INTERVAL_S = 10.0


def wants(*prefixes: str, **other: Any) -> GetTelemetrySubscriptionsResponse:
    fields: dict[str, Any] = {
        "client_instance_id": ID,
        "subscription_id": 5,
        "push_interval_ms": int(INTERVAL_S * 1_000),
        "requested_metrics": list(prefixes),
        "accepted_compression_types": [99, Codec.LZ4, Codec.GZIP],
        "telemetry_max_bytes": 1_000_000,
        "delta_temporality": True,
    }
    return GetTelemetrySubscriptionsResponse(**(fields | other))


class ScriptedCluster(Cluster):
    """Returns given subscriptions in order, and then accepts every push."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__([("nowhere", 1)])
        self.answers = deque(answers)
        self.asked: list[tuple[float, Message]] = []
        self.is_open = True
        self.refresh_count = 0
        self.is_used.set()

    @property
    def has_connection(self) -> bool:
        return self.is_open

    async def version_of(self, api_key: int, node: int | None = None) -> int:
        await trio.lowlevel.checkpoint()
        return 0

    async def refresh_versions(self) -> None:
        await trio.lowlevel.checkpoint()
        self.refresh_count += 1

    async def request(
        self,
        message: Message,
        response: type[R],
        *,
        node: int | None = None,
        version: int | None = None,
    ) -> R:
        await trio.lowlevel.checkpoint()
        self.asked.append((trio.current_time(), message))
        answer: Answer = self.answers.popleft() if self.answers else PushTelemetryResponse()
        if isinstance(answer, Exception):
            raise answer
        found = answer if isinstance(answer, Message) else await answer()
        assert isinstance(found, response)
        return found

    @property
    def pushes(self) -> list[PushTelemetryRequest]:
        return [one for _, one in self.asked if isinstance(one, PushTelemetryRequest)]

    @property
    def asked_at_s(self) -> list[tuple[float, str]]:
        began = self.asked[0][0]
        return [(round(at - began, 3), type(one).__name__[:3]) for at, one in self.asked]


class OneSum:
    """A source with one sum."""

    def __init__(self) -> None:
        self.value = 0
        self.attributes = {"group_id": "g"}

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        yield total("org.apache.kafka.producer.record.send.total", self.value)


def sums(push: PushTelemetryRequest) -> dict[str, float]:
    data = MetricsData.FromString(unpack(push.metrics, push.compression_type))
    return {
        metric.name.rpartition("producer.")[2]: metric.sum.data_points[0].as_int
        for part in data.resource_metrics
        for metric in part.scope_metrics[0].metrics
        if metric.HasField("sum")
    }


async def until(cluster: ScriptedCluster, count: int) -> None:
    with trio.fail_after(1_000_000):
        while len(cluster.asked) < count:
            await trio.sleep(0.1)


def reporting(cluster: Cluster, *, is_enabled: bool = True) -> Any:
    return open_metrics_push(cluster, ClientKind.PRODUCER, is_enabled=is_enabled)


async def test_sums_are_pushed_as_deltas_each_interval(autojump_clock: Any) -> None:
    cluster, source = ScriptedCluster(wants("*")), OneSum()
    async with reporting(cluster) as push:
        push.report(source, lambda: source.attributes)
        source.value = 5
        await until(cluster, 2)
        source.value = 7
        await until(cluster, 3)
        source.value = 8
    assert cluster.asked_at_s == [
        (0.0, "Get"),
        (10.0, "Pus"),
        (20.0, "Pus"),
        (pytest.approx(20.0, abs=0.2), "Pus"),
    ]
    assert [sums(one)["record.send.total"] for one in cluster.pushes] == [5, 2, 1]
    assert [one.terminating for one in cluster.pushes] == [False, False, True]
    assert {one.client_instance_id for one in cluster.pushes} == {ID}
    assert {one.subscription_id for one in cluster.pushes} == {5}
    assert {one.compression_type for one in cluster.pushes} == {Codec.LZ4}


async def test_only_what_is_asked_for_is_pushed(autojump_clock: Any) -> None:
    cluster = ScriptedCluster(wants("org.apache.kafka.producer.connection."))
    async with reporting(cluster) as push:
        push.report(OneSum())
        await until(cluster, 2)
    assert set(sums(cluster.pushes[0])) == {"connection.creation.total"}


async def test_no_one_is_asked_before_the_client_is_connected(autojump_clock: Any) -> None:
    cluster = ScriptedCluster(wants())
    cluster.is_used = trio.Event()
    async with reporting(cluster):
        await trio.sleep(1_000)
        assert cluster.asked == []
        cluster.is_used.set()
        await until(cluster, 1)


async def test_a_cluster_without_subscription_costs_one_request_an_interval(
    autojump_clock: Any,
) -> None:
    cluster = ScriptedCluster(*[wants(push_interval_ms=300_000)] * 10)
    async with reporting(cluster):
        await trio.sleep(1_000)
    assert [at for at, _ in cluster.asked_at_s] == [0, 300, 600, 900]
    ids = [cast(GetTelemetrySubscriptionsRequest, one).client_instance_id
           for _, one in cluster.asked]  # fmt: skip
    assert ids == [ZERO_UUID, ID, ID, ID]
    assert cluster.pushes == [], "nothing is wanted, at the end neither"


async def test_what_is_refused_is_reported_with_the_next_push(autojump_clock: Any) -> None:
    cluster, source = (
        ScriptedCluster(
            wants("*"),
            PushTelemetryResponse(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
            wants("*", subscription_id=6),
        ),
        OneSum(),
    )
    async with reporting(cluster) as push:
        push.report(source)
        source.value = 5
        await until(cluster, 4)
    assert cluster.asked_at_s[:4] == [(0.0, "Get"), (10.0, "Pus"), (10.0, "Get"), (20.0, "Pus")]
    assert [sums(one)["record.send.total"] for one in cluster.pushes[:2]] == [5, 5]
    assert cluster.pushes[1].subscription_id == 6


async def test_what_was_lost_on_its_way_is_not_reported_twice(autojump_clock: Any) -> None:
    cluster, source = ScriptedCluster(wants("*"), ConnectionLostError("gone"), wants("*")), OneSum()
    async with reporting(cluster) as push:
        push.report(source)
        source.value = 5
        await until(cluster, 2)
        source.value = 6
        await until(cluster, 4)
    assert [sums(one)["record.send.total"] for one in cluster.pushes[:2]] == [5, 1]


async def test_a_change_of_temporality_begins_at_the_clients_start(autojump_clock: Any) -> None:
    cluster, source = (
        ScriptedCluster(
            wants("*"),
            PushTelemetryResponse(),
            PushTelemetryResponse(error_code=ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
            wants("*", delta_temporality=False),
        ),
        OneSum(),
    )
    async with reporting(cluster) as push:
        push.report(source)
        source.value = 5
        await until(cluster, 5)
    assert sums(cluster.pushes[2])["record.send.total"] == 5


async def test_a_broker_that_hangs_delays_the_end_by_half_a_second(autojump_clock: Any) -> None:
    async def hang() -> Message:
        await trio.sleep_forever()
        raise AssertionError

    cluster = ScriptedCluster(wants("*"), PushTelemetryResponse(), hang)
    async with reporting(cluster):
        await until(cluster, 2)
        ended_s = trio.current_time()
    assert trio.current_time() - ended_s <= LAST_PUSH_PATIENCE_S
    assert cluster.pushes[-1].terminating


async def test_the_last_push_follows_one_that_is_under_way(autojump_clock: Any) -> None:
    async def dawdle() -> Message:
        await trio.sleep(0.3)
        return PushTelemetryResponse()

    cluster = ScriptedCluster(wants("*"), dawdle)
    async with reporting(cluster):
        await until(cluster, 2)
    assert [one.terminating for one in cluster.pushes] == [False, True]


async def test_an_end_without_connection_is_immediate(autojump_clock: Any) -> None:
    cluster = ScriptedCluster(wants("*"))
    async with reporting(cluster):
        await until(cluster, 1)
        cluster.is_open = False
    assert cluster.pushes == []


async def test_an_error_of_the_application_leaves_with_the_last_push(autojump_clock: Any) -> None:
    cluster = ScriptedCluster(wants("*"))
    with pytest.raises(ZeroDivisionError):
        async with reporting(cluster):
            await until(cluster, 1)
            raise ZeroDivisionError
    assert [one.terminating for one in cluster.pushes] == [True]


@pytest.mark.parametrize(
    "trouble",
    [
        ConnectionLostError("gone"),
        RefusedError(ErrorCode.UNSUPPORTED_VERSION),
        RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED),
        ZeroDivisionError("a bug of ours"),
        GetTelemetrySubscriptionsResponse(error_code=ErrorCode.INVALID_CONFIG),
        wants("*", client_instance_id=ZERO_UUID),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_no_trouble_reaches_the_client(autojump_clock: Any, trouble: Answer) -> None:
    cluster = ScriptedCluster(trouble)
    async with reporting(cluster):
        await trio.sleep(60)
    assert len(cluster.asked) == 1, "asked again much later, if at all"


async def test_a_cluster_that_offers_telemetry_later_is_noticed(autojump_clock: Any) -> None:
    unsupported = RefusedError(ErrorCode.UNSUPPORTED_VERSION)
    cluster = ScriptedCluster(unsupported, unsupported, wants("*"))
    async with reporting(cluster):
        await until(cluster, 4)
        assert cluster.refresh_count == 2
    assert [at for at, _ in cluster.asked_at_s[:4]] == [0, 300, 600, 610]


async def test_the_instance_id_is_waited_for(autojump_clock: Any) -> None:
    async def dawdle() -> Message:
        await trio.sleep(2)
        return wants()

    client = ReportingClient()
    cluster = ScriptedCluster(ConnectionLostError("gone"), dawdle)
    async with reporting(cluster) as client._metrics_push:
        assert await client.client_instance_id(5) == ID
        assert await client.client_instance_id(0) == ID
        assert len(cluster.asked) == 2


async def test_an_instance_id_that_does_not_arrive_is_an_error(autojump_clock: Any) -> None:
    client = ReportingClient()
    with pytest.raises(ConfigError, match=r"enable\.metrics\.push"):
        await client.client_instance_id(5)
    async with reporting(
        ScriptedCluster(*[ConnectionLostError("gone")] * 100)
    ) as client._metrics_push:
        with pytest.raises(RefusedError) as refusal:
            await client.client_instance_id(5)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
    async with reporting(
        ScriptedCluster(RefusedError(ErrorCode.UNSUPPORTED_VERSION))
    ) as client._metrics_push:
        with pytest.raises(RefusedError) as refusal:
            await client.client_instance_id(5)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


async def test_a_client_that_does_not_report_measures_nothing(autojump_clock: Any) -> None:
    cluster = ScriptedCluster(wants("*"))
    async with reporting(cluster, is_enabled=False) as push:
        await trio.sleep(1_000)
    assert (push, cluster.measures, cluster.asked) == (None, None, [])

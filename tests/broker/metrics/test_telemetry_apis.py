"""Responses to clients that push telemetry, over a broker's connection without its socket."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.metrics.telemetry_apis import Done, TelemetryApis
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.node.admin.api_versions import ApiVersionsApi
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.response_queue import ResponseSlot
from ottla.telemetry.clients.instances import ClientInstance, ClientInstances
from ottla.telemetry.clients.subscriptions import ClientTraits
from ottla.wire.apis import API, API_VERSIONS, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest

INTERVAL_MS = 1_000
ZSTD = 4


class Broker:
    """Telemetry behind a dispatcher, which stores each push until the test gives its outcome."""

    def __init__(self, payload_bytes_max: int = 1_000) -> None:
        self.now_ms = 5_000
        self.is_offered = True
        self.taken: list[tuple[ClientInstance, int, bytes]] = []
        self.dones: list[Done] = []
        self.refuses_at_once = False
        self.dispatcher = Dispatcher()
        versions = ApiVersionsApi(
            metadata=MetadataCache(),
            served=lambda: self.dispatcher.api_keys,
            cluster_id="c",
            node_id=NodeId(1),
            offers_telemetry=lambda: self.is_offered,
        )
        self.dispatcher.register(API_VERSIONS, versions.handle)
        self.instances = ClientInstances(
            fresh_id=lambda: UUID(int=1_000), payload_bytes_max=payload_bytes_max
        )
        self.instances.on_subscriptions({"all": {"metrics": "*", "interval.ms": str(INTERVAL_MS)}})
        TelemetryApis(
            self.instances,
            payload_bytes_max=payload_bytes_max,
            take=self.take,
            is_offered=lambda: self.is_offered,
        ).register(self.dispatcher)

    def take(self, instance: ClientInstance, codec: int, payload: bytes, done: Done) -> None:
        self.taken.append((instance, codec, payload))
        self.dones.append(done)
        if self.refuses_at_once:
            done(ErrorCode.INVALID_RECORD)


class Client:
    """A connection to it, and the driver of that connection."""

    def __init__(self, broker: Broker, connection_id: int = 1, client_id: str = "shop") -> None:
        self.broker = broker
        self.client_id = client_id
        peer = Peer(
            connection_id=connection_id,
            listener_name="PLAINTEXT",
            peer_host="10.0.0.9",
            peer_port=40_000 + connection_id,
            local_host="10.0.0.1",
            local_port=9092,
        )
        self.connection = Connection(
            peer,
            broker.dispatcher,
            self,
            memory=RequestMemory(None),
            limits=ConnectionLimits(),
            now_ms=0,
        )

    def on_work(self, connection: Connection) -> None:
        pass

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        raise fault

    def give_up(self, connection: Connection, reason: str) -> None:
        raise AssertionError(f"given up: {reason}")

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        raise AssertionError("telemetry mutes no connection")

    def run(self, connection: Connection, slot: ResponseSlot, pending: Pending) -> None:
        raise AssertionError("telemetry is answered without a task")

    def send(self, request: Message, version: int = 0) -> None:
        header = encode_request_header(request.API_KEY, version, 1, self.client_id)
        data = b"".join(frame([header + encode(request, version)]))  # type: ignore[arg-type]
        self.connection.on_bytes(memoryview(bytearray(data)), self.broker.now_ms)

    def answer(self, request: Message, version: int = 0) -> Any:
        """Return the answer that has left; None while there is none."""
        output = self.connection.output
        data = b"".join(output.chunks)  # type: ignore[arg-type]
        output.on_sent(len(data))
        if not data:
            return None
        _, body_at = decode_response_header(request.API_KEY, version, data[4:])
        return decode(response_class(request.API_KEY), version, data[4:], body_at)

    def ask(self, request: Message, version: int = 0) -> Any:
        self.send(request, version)
        return self.answer(request, version)

    def get(self, client: UUID = ZERO_UUID) -> Any:
        return self.ask(GetTelemetrySubscriptionsRequest(client_instance_id=client))

    def push(self, of: Any, **changes: Any) -> PushTelemetryRequest:
        """Return a good push of the client that a Get answered, with some changes."""
        fields = {
            "client_instance_id": of.client_instance_id,
            "subscription_id": of.subscription_id,
            "compression_type": ZSTD,
            "metrics": b"payload",
            **changes,
        }
        return PushTelemetryRequest(**fields)


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_get_tells_everything_that_a_client_needs_to_push(broker: Broker) -> None:
    answer = Client(broker).get()
    assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
    assert answer.client_instance_id == UUID(int=1_000)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert answer.push_interval_ms == INTERVAL_MS
    assert answer.telemetry_max_bytes == 1_000
    assert answer.delta_temporality
    assert answer.requested_metrics == ["*"]


@pytest.mark.parametrize(
    ("software", "metrics"), [("kgo", [""]), ("apache-kafka-java", ["*"]), ("librdkafka", ["*"])]
)
def test_each_client_is_subscribed_to_everything_in_a_form_it_understands(
    broker: Broker, software: str, metrics: list[str]
) -> None:
    client = Client(broker)
    client.ask(ApiVersionsRequest(client_software_name=software, client_software_version="1.0"), 3)
    assert client.get().requested_metrics == metrics


def test_the_apis_are_listed_only_while_they_are_offered(broker: Broker) -> None:
    broker.is_offered = False
    client = Client(broker)
    assert listed_by(client) == {API_VERSIONS}
    broker.is_offered = True
    assert listed_by(client) == {API_VERSIONS} | {
        key for key, row in API.items() if row.is_optional
    }


def test_a_connection_that_was_never_offered_telemetry_is_refused_it(broker: Broker) -> None:
    broker.is_offered = False
    client = Client(broker)
    listed_by(client)
    got = client.get()
    assert got.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.ask(client.push(got)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not len(broker.instances)
    assert not client.connection.is_closed


def test_a_connection_that_was_offered_telemetry_is_asked_for_nothing_once_it_is_unwanted(
    broker: Broker,
) -> None:
    client = Client(broker)
    listed_by(client)
    got = client.get()
    broker.instances.on_subscriptions({})
    broker.is_offered = False
    assert client.ask(client.push(got)).error_code == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    again = client.get(got.client_instance_id)
    assert (again.error_code, again.requested_metrics) == (0, [])
    assert Client(broker, connection_id=2).get().error_code == ErrorCode.UNSUPPORTED_VERSION


def listed_by(client: Client) -> set[int]:
    return {row.api_key for row in client.ask(ApiVersionsRequest()).api_keys}


def test_a_push_is_answered_when_its_content_has_been_taken_in(broker: Broker) -> None:
    client = Client(broker)
    got = client.get()
    push = client.push(got)
    assert client.ask(push) is None
    ((instance, codec, payload),) = broker.taken
    assert (instance.id, codec, payload) == (got.client_instance_id, ZSTD, b"payload")
    broker.dones[0](None)
    assert client.answer(push).error_code == 0
    assert broker.instances.counts.exported == 1


def test_an_empty_push_is_accepted_and_reaches_no_exporter(broker: Broker) -> None:
    client = Client(broker)
    assert client.ask(client.push(client.get(), metrics=b"")).error_code == 0
    assert broker.taken == []


@pytest.mark.parametrize(
    ("failure", "throttle_ms"),
    [
        (ErrorCode.INVALID_RECORD, 0),
        (ErrorCode.TELEMETRY_TOO_LARGE, 0),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, INTERVAL_MS),
    ],
)
def test_unreadable_content_is_an_error_and_the_connection_survives(
    broker: Broker, failure: ErrorCode, throttle_ms: int
) -> None:
    client = Client(broker)
    push = client.push(client.get())
    client.send(push)
    broker.dones[0](failure)
    answer = client.answer(push)
    assert (answer.error_code, answer.throttle_time_ms) == (failure, throttle_ms)
    assert broker.instances.counts.failed == 1
    assert not client.connection.is_closed
    assert client.get().error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"client_instance_id": UUID(int=99)}, ErrorCode.INVALID_REQUEST),
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(1_001)}, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
def test_a_bad_push_gets_its_error_and_is_not_taken_in(
    broker: Broker, changes: dict[str, Any], code: ErrorCode
) -> None:
    client = Client(broker)
    answer = client.ask(client.push(client.get(), **changes))
    assert (answer.error_code, answer.throttle_time_ms) == (code, 0)
    assert broker.taken == []
    assert not client.connection.is_closed


def test_an_early_request_is_answered_with_its_remaining_wait(broker: Broker) -> None:
    client = Client(broker)
    push = client.push(client.get(), metrics=b"")
    assert client.ask(push).error_code == 0
    broker.now_ms += 400
    answer = client.ask(push)
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.throttle_time_ms == 600
    assert client.get(push.client_instance_id).throttle_time_ms == 600


def test_no_client_is_throttled_so_long_that_its_other_requests_stall() -> None:
    broker = Broker()
    broker.instances.on_subscriptions({"all": {"metrics": "*", "interval.ms": "3600000"}})
    client = Client(broker)
    push = client.push(client.get(), metrics=b"")
    assert client.ask(push).error_code == 0
    assert client.ask(push).throttle_time_ms == 1_000
    assert client.get(push.client_instance_id).throttle_time_ms == 1_000


def test_a_client_is_known_by_all_that_its_connection_says_of_it(broker: Broker) -> None:
    client = Client(broker)
    named = ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.16.1")
    assert client.ask(named, 3).error_code == 0
    got = client.get()
    (instance,) = broker.instances
    assert instance.traits == ClientTraits(
        got.client_instance_id, "shop", "librdkafka", "2.16.1", "10.0.0.9", 40_001
    )


def test_no_client_makes_a_broker_keep_a_name_without_end(broker: Broker) -> None:
    client = Client(broker, client_id="s" * 30_000)
    named = ApiVersionsRequest(
        client_software_name="n" * 1_000_000, client_software_version="v" * 1_000_000
    )
    assert client.ask(named, 3).error_code == 0
    client.get()
    (instance,) = broker.instances
    traits = instance.traits
    assert (traits.client_id, traits.software_name) == ("s" * 256, "n" * 256)
    assert client.connection.peer.software_version == "v" * 256


def test_a_client_that_names_no_software_or_none_that_is_legal_is_of_unknown_make(
    broker: Broker,
) -> None:
    client = Client(broker)
    named = ApiVersionsRequest(client_software_name="rm -rf", client_software_version="1")
    assert client.ask(named, 3).error_code == ErrorCode.INVALID_REQUEST
    client.get()
    (instance,) = broker.instances
    assert (instance.traits.software_name, instance.traits.software_version) == (
        "unknown",
        "unknown",
    )


def test_a_client_is_removed_with_its_connection_and_its_open_push_is_harmless(
    broker: Broker,
) -> None:
    client, other = Client(broker), Client(broker, connection_id=2)
    client.send(client.push(client.get()))
    client.connection.close()
    client.connection.close()
    assert len(broker.instances) == 0
    broker.dones[0](None)
    assert other.get().error_code == 0


def test_the_next_request_is_taken_up_while_a_push_is_unpacked_and_answered_after_it(
    broker: Broker,
) -> None:
    client = Client(broker)
    push = client.push(client.get())
    client.send(push)
    client.send(ApiVersionsRequest())
    assert client.connection.in_flight_count == 2
    assert client.answer(push) is None
    broker.dones[0](ErrorCode.INVALID_RECORD)
    # Both have left, in the order of the requests.
    output = b"".join(client.connection.output.chunks)  # type: ignore[arg-type]
    first_bytes = 4 + int.from_bytes(output[:4])
    assert output[4:first_bytes][-3:-1] == int(ErrorCode.INVALID_RECORD).to_bytes(2)
    assert len(output) > first_bytes


def test_the_next_request_is_taken_up_after_a_push_that_is_refused_at_once(
    broker: Broker,
) -> None:
    broker.refuses_at_once = True
    client = Client(broker)
    push = client.push(client.get())
    assert client.ask(push).error_code == ErrorCode.INVALID_RECORD
    assert client.ask(ApiVersionsRequest()).error_code == 0

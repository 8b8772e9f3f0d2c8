"""A cluster with users and ACLs, of processes, used by clients that no one here wrote."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import kafka.errors
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from ottla.cli.cluster.cluster_file import make_plan
from ottla.model.settings.security.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from ottla.model.settings.security.jaas import PLAIN_MODULE
from tests.cluster.conftest import Processes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

USERS = ("broker", "admin", "ann", "ben", "cat", "dan", "eve")
PASSWORD = "secret"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="broker" '
    f'password="{PASSWORD}" ' + " ".join(f'user_{user}="{PASSWORD}"' for user in USERS) + ";",
    AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
    SUPER_USERS: "User:broker;User:admin",
}
TIMEOUT_S = 60
REVOKED_S = 1.0
"""A revoked entry holds on open connections within this time of the admin's answer."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A controller and two brokers with an authorizer; brokers and admins are super users."""
    plan = make_plan(
        tmp_path_factory.mktemp("cluster"), host="127.0.0.1", port=0, controllers=1, brokers=2
    )
    plan.settings = SETTINGS
    plan.write_properties()
    processes = Processes(plan)
    try:
        processes.start()
        admin = AdminClient(login(processes, "admin"))
        topics = [NewTopic(f"shop-{name}", 1, 2) for name in ("orders", "bills", "mail")]
        for made in admin.create_topics(topics).values():
            made.result(TIMEOUT_S)
        yield processes
    finally:
        processes.stop_all()


def login(processes: Processes, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": processes.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **more,
    }


def kafka_python_login(processes: Processes, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": processes.bootstrap.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORD,
    }


def binding(
    user: str,
    operation: AclOperation,
    name: str,
    kind: ResourceType = ResourceType.TOPIC,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)


def grant(processes: Processes, *bindings: AclBinding) -> None:
    admin = AdminClient(login(processes, "admin"))
    for made in admin.create_acls(list(bindings)).values():
        made.result(TIMEOUT_S)


def revoke(processes: Processes, one: AclBinding) -> None:
    admin = AdminClient(login(processes, "admin"))
    wanted = AclBindingFilter(
        one.restype,
        one.name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )
    for gone in admin.delete_acls([wanted]).values():
        assert gone.result(TIMEOUT_S)


def sent(producer: Producer, topic: str) -> KafkaError | None:
    """Return why a record was not taken, None if it was."""
    found: list[KafkaError | None] = []
    producer.produce(topic, b"v", on_delivery=lambda error, message: found.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return found[0]


def code_of(call: Callable[[], Any]) -> int:
    """Return the code that a call of librdkafka fails with, 0 if it succeeds."""
    try:
        call()
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return 0


def first_error(consumer: Consumer) -> int:
    """Poll until there is an error, and return its code."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is not None:
            return int(message.error().code())
    pytest.fail("no error came")


def test_without_an_entry_nothing_is_allowed(secured: Processes) -> None:
    settings = login(secured, "ann")
    error = sent(Producer({**settings, "message.timeout.ms": 10_000}), "shop-orders")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**settings, "group.id": "g"})
    consumer.subscribe(["shop-orders"])
    assert first_error(consumer) in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
    )
    consumer.close()
    admin = AdminClient(settings)
    made = admin.create_topics([NewTopic("new", 1, 1)])["new"]
    assert code_of(lambda: made.result(TIMEOUT_S)) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([broker])[broker]
    assert code_of(lambda: described.result(TIMEOUT_S)) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert set(admin.list_topics(timeout=TIMEOUT_S).topics) == set()
    transactional = Producer({**settings, "transactional.id": "t"})
    assert (
        code_of(lambda: transactional.init_transactions(TIMEOUT_S))
        == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )


def test_kafka_python_gets_the_same_codes(secured: Processes) -> None:
    settings = kafka_python_login(secured, "ann")
    producer = kafka.KafkaProducer(**settings, max_block_ms=20_000)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("shop-orders", b"v").get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer("shop-orders", group_id="g", **settings)
    with pytest.raises(
        (kafka.errors.GroupAuthorizationFailedError, kafka.errors.TopicAuthorizationFailedError)
    ):
        for _ in range(100):
            consumer.poll(500)
    consumer.close(autocommit=False)


def test_what_is_allowed_by_a_prefix_works_but_where_it_is_denied(secured: Processes) -> None:
    grant(
        secured,
        binding("ben", AclOperation.ALL, "shop-", pattern=ResourcePatternType.PREFIXED),
        binding("ben", AclOperation.READ, "ben", ResourceType.GROUP),
        binding("ben", AclOperation.WRITE, "shop-bills", permission=AclPermissionType.DENY),
    )
    settings = login(secured, "ben")
    producer = Producer({**settings, "message.timeout.ms": 10_000})
    assert sent(producer, "shop-mail") is None
    error = sent(producer, "shop-bills")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer = Consumer({**settings, "group.id": "ben", "auto.offset.reset": "earliest"})
    consumer.subscribe(["shop-mail"])
    assert next_value(consumer) == b"v"
    consumer.commit(asynchronous=False)
    consumer.close()
    of_kafka_python = kafka.KafkaConsumer(
        "shop-mail",
        group_id=None,
        auto_offset_reset="earliest",
        **kafka_python_login(secured, "ben"),
    )
    assert next(of_kafka_python).value == b"v"
    of_kafka_python.close()


def next_value(consumer: Consumer) -> bytes | None:
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None
    value: bytes | None = message.value()
    return value


def test_a_super_user_needs_no_entry(secured: Processes) -> None:
    settings = login(secured, "admin")
    assert sent(Producer(settings), "shop-bills") is None
    found = AdminClient(settings).list_topics(timeout=TIMEOUT_S).topics
    assert {"shop-orders", "shop-bills", "shop-mail"} <= set(found)


def test_a_transaction_over_two_brokers_needs_what_its_producer_uses(secured: Processes) -> None:
    """Brokers request partitions and markers from each other as their login user."""
    topics = ("shop-orders", "shop-mail")
    grant(
        secured,
        binding("eve", AclOperation.WRITE, "eve", ResourceType.TRANSACTIONAL_ID),
        *(binding("eve", AclOperation.WRITE, topic) for topic in topics),
    )
    producer = Producer(login(secured, "eve", **{"transactional.id": "eve"}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for topic in topics:
        producer.produce(topic, b"in a transaction")
    producer.commit_transaction(TIMEOUT_S)
    reader = Consumer(
        login(
            secured,
            "admin",
            **{
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            },
        )
    )
    reader.subscribe(list(topics))
    found: list[str] = []
    while len(found) < len(topics):
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        if message.value() == b"in a transaction":
            found.append(message.topic())
    reader.close()
    assert sorted(found) == sorted(topics)


class Steady:
    """A producer and a consumer of a user that work until they are stopped, in threads."""

    def __init__(self, processes: Processes, user: str, topic: str) -> None:
        self.errors: list[tuple[float, str, int]] = []
        """Monotonic time, operation and error code of each."""
        self.written = self.read = 0
        self._is_over = threading.Event()
        self._topic = topic
        producing = login(processes, user, **{"linger.ms": 0, "message.timeout.ms": 10_000})
        consuming = login(processes, user, **{"group.id": user, "auto.offset.reset": "earliest"})
        self._threads = [
            threading.Thread(target=self._write, args=(Producer(producing),)),
            threading.Thread(target=self._read, args=(Consumer(consuming),)),
        ]

    def __enter__(self) -> "Steady":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)

    def _note(self, which: str, error: KafkaError | None) -> bool:
        if error is not None:
            self.errors.append((time.monotonic(), which, error.code()))
        return error is None

    def _write(self, producer: Producer) -> None:
        while not self._is_over.is_set():
            try:
                producer.produce(
                    self._topic, b"v", on_delivery=lambda error, message: self._on_sent(error)
                )
            except KafkaException as error:  # it knows by now
                self._note("produce", error.args[0])
            producer.flush(TIMEOUT_S)
            time.sleep(0.02)

    def _on_sent(self, error: KafkaError | None) -> None:
        self.written += self._note("produce", error)

    def _read(self, consumer: Consumer) -> None:
        consumer.subscribe([self._topic])
        while not self._is_over.is_set():
            message = consumer.poll(0.05)
            if message is not None:
                self.read += self._note("consume", message.error())
        consumer.close()

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, (self.written, self.read, self.errors[-3:])
            time.sleep(0.02)


def test_a_revoked_entry_holds_on_open_connections_and_for_no_one_else(
    secured: Processes,
) -> None:
    write = binding("cat", AclOperation.WRITE, "shop-orders")
    read = binding("cat", AclOperation.READ, "shop-orders")
    grant(
        secured,
        write,
        read,
        binding("cat", AclOperation.READ, "cat", ResourceType.GROUP),
        binding("dan", AclOperation.WRITE, "shop-orders"),
        binding("dan", AclOperation.READ, "shop-orders"),
        binding("dan", AclOperation.READ, "dan", ResourceType.GROUP),
    )
    with (
        Steady(secured, "cat", "shop-orders") as cat,
        Steady(secured, "dan", "shop-orders") as dan,
    ):
        cat.wait(lambda: cat.written > 10 and cat.read > 10)
        dan.wait(lambda: dan.written > 10 and dan.read > 10)
        # An entry holds with the answer at the broker that was asked, and a moment later at others.
        for one in (cat, dan):
            one.errors.clear()
        for one, which in ((write, "produce"), (read, "consume")):
            revoke(secured, one)
            revoked_at = time.monotonic()
            cat.wait(lambda which=which: any(each[1] == which for each in cat.errors))  # type: ignore[misc]
            noticed_at, _, code = next(each for each in cat.errors if each[1] == which)
            assert code == KafkaError.TOPIC_AUTHORIZATION_FAILED
            print(f"{which} was refused {noticed_at - revoked_at:.3f} s after the entry was gone")
        time.sleep(REVOKED_S)
        written, read_count = dan.written, dan.read
        dan.wait(lambda: dan.written > written + 10 and dan.read > read_count + 10)
        assert dan.errors == []

"""The quota of controller mutations: charges, refusals and their duration."""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from ottla.controller import mutation_quotas
from ottla.controller.decision import decided
from ottla.controller.mutation_quotas import NO_CHARGE, MutationQuotas
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.records import client_quota_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.quotas.quota_callback import CustomLimits
from ottla.model.quotas.quota_limits import ClientEntity, QuotaEntity
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState

RATE = "controller_mutation_rate"
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
LOADER = (QuotaEntity("client-id", False, "loader"),)
Quotas = dict[ClientEntity, dict[str, float]]
KIP_599 = WindowShape(100, 1_000)
"""With a rate of 5 a burst of 500 can be saved up."""


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController(mutations=MutationQuotas(KIP_599))
    cluster.start(1)
    limit(cluster, 5.0)
    return cluster


def limit(cluster: InMemoryController, rate: float) -> None:
    cluster.take(decided(cluster.image, [client_quota_record(LOADER, RATE, rate)], None))


def topic(name: str, partition_count: int = 1) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)


def ask(
    cluster: InMemoryController, request: Message, version: int, client_id: str = "loader"
) -> list[int]:
    reply: Any = cluster.forward(request, version, client_id=client_id)
    for field in ("topics", "results", "responses"):
        if hasattr(reply, field):
            return [one.error_code for one in getattr(reply, field)]
    raise AssertionError(reply)


def create(
    cluster: InMemoryController, *topics: CreatableTopic, version: int = 7, **options: Any
) -> list[int]:
    return ask(cluster, CreateTopicsRequest(topics=list(topics), **options), version)


def throttle_ms(cluster: InMemoryController) -> int:
    return cluster.last_charge.throttle_ms(cluster.now_ms)


def test_a_burst_of_560_is_paid_off_in_12_s(cluster: InMemoryController) -> None:
    assert create(cluster, topic("big", 560)) == [0]
    assert throttle_ms(cluster) == 0, "a strict request is refused or served, never slowed"

    before = cluster.image
    assert create(cluster, topic("next")) == [EXCEEDED]
    assert throttle_ms(cluster) == 12_000
    assert cluster.image == before, "nothing of a refused topic is written"

    cluster.now_ms += 11_999
    assert create(cluster, topic("next")) == [EXCEEDED]
    assert throttle_ms(cluster) == 1
    cluster.now_ms += 1
    assert create(cluster, topic("next")) == [0]


@pytest.mark.parametrize(
    ("request_", "strict_from"),
    [
        (CreateTopicsRequest(topics=[topic("other")]), 6),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="big", count=561, assignments=None)]
            ),
            3,
        ),
        (DeleteTopicsRequest(topic_names=["big"]), 5),
    ],
)
def test_old_versions_are_served_and_throttled_new_ones_refused(
    cluster: InMemoryController, request_: Message, strict_from: int
) -> None:
    create(cluster, topic("big", 560))

    assert ask(cluster, request_, strict_from) == [EXCEEDED]
    assert "big" in cluster.image.topic_ids
    assert throttle_ms(cluster) == 12_000

    assert ask(cluster, request_, strict_from - 1) == [0]
    assert throttle_ms(cluster) > 12_000


def test_a_deletion_by_id_is_charged_by_the_partitions_of_its_topic(
    cluster: InMemoryController,
) -> None:
    create(cluster, topic("big", 400))
    by_id = DeleteTopicState(name=None, topic_id=cluster.image.topic_ids["big"])

    assert ask(cluster, DeleteTopicsRequest(topics=[by_id]), 6) == [0]
    assert create(cluster, topic("next")) == [EXCEEDED]
    assert throttle_ms(cluster) == 60_000, "400 created and 400 deleted, of 500"


def test_topics_of_one_request_are_charged_one_by_one(cluster: InMemoryController) -> None:
    answers = create(cluster, topic("a", 500), topic("b", 1), topic("c", 1))

    assert answers == [0, 0, EXCEEDED]
    assert set(cluster.image.topic_ids) == {"a", "b"}


def test_assigned_partitions_count_like_any_other(cluster: InMemoryController) -> None:
    assigned = CreatableTopic(
        name="assigned",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=[1])
            for index in range(501)
        ],
    )

    assert create(cluster, assigned) == [0]
    assert create(cluster, topic("next")) == [EXCEEDED]


def test_a_trial_counts_as_in_kafka(cluster: InMemoryController) -> None:
    assert create(cluster, topic("big", 560), validate_only=True) == [0]
    assert not cluster.image.topic_ids

    assert create(cluster, topic("next"), validate_only=True) == [EXCEEDED]


def test_what_is_refused_for_another_reason_is_not_charged(cluster: InMemoryController) -> None:
    unplaceable = CreatableTopic(name="big", num_partitions=560, replication_factor=3)

    assert create(cluster, unplaceable) == [ErrorCode.INVALID_REPLICATION_FACTOR]
    assert create(cluster, topic("next")) == [0]
    assert create(cluster, topic("next")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    (bucket,) = cluster.mutations.buckets.values()
    assert bucket.tokens == 499


def test_the_delay_shrinks_while_an_answer_waits_for_its_commit(
    cluster: InMemoryController,
) -> None:
    create(cluster, topic("big", 560), version=5)
    assert throttle_ms(cluster) == 12_000

    cluster.now_ms += 5_000
    assert throttle_ms(cluster) == 7_000
    cluster.now_ms += 8_000
    assert throttle_ms(cluster) == 0


def test_another_client_and_a_broker_itself_are_not_charged(cluster: InMemoryController) -> None:
    create(cluster, topic("big", 560))

    assert ask(cluster, CreateTopicsRequest(topics=[topic("a")]), 7, "other") == [0]
    reply: Any = cluster.forward(
        CreateTopicsRequest(topics=[topic("__consumer_offsets", 50)]), user="", client_id="loader"
    )
    assert [one.error_code for one in reply.topics] == [0]


def test_a_change_of_the_limit_keeps_the_debt(cluster: InMemoryController) -> None:
    create(cluster, topic("big", 560))

    limit(cluster, 60.0)

    assert create(cluster, topic("next")) == [EXCEEDED]
    assert throttle_ms(cluster) == 1_000, "60 partitions at 60 a second"


def test_a_new_controller_starts_with_full_buckets(cluster: InMemoryController) -> None:
    create(cluster, topic("big", 560))

    cluster.mutations.forget_all()

    assert create(cluster, topic("next", 500)) == [0]


def test_buckets_are_bounded_and_full_ones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation_quotas, "BUCKETS_MAX", 3)
    quotas = MutationQuotas(WindowShape())
    limits: Quotas = {(QuotaEntity("client-id", True, ""),): {RATE: 1.0}}

    def charge(client_id: str, count: int) -> None:
        quotas.charge(
            limits, api_key=19, api_version=5, user="u", client_id=client_id, now_ms=0
        ).take(count)

    charge("debtor", 50)
    for index in range(10):
        charge(f"c{index}", 0)
    assert ("", "debtor") in quotas.buckets
    for index in range(10):
        charge(f"d{index}", 50)
    assert len(quotas.buckets) == 3


def test_long_client_ids_are_kept_cut() -> None:
    quotas = MutationQuotas(WindowShape())
    limits: Quotas = {(QuotaEntity("client-id", True, ""),): {RATE: 1.0}}

    quotas.charge(
        limits, api_key=19, api_version=7, user="u", client_id="x" * 32_000, now_ms=0
    ).take(1)

    ((_, client_id),) = quotas.buckets
    assert len(client_id) == mutation_quotas.NAME_CHARS_MAX


def test_other_requests_and_clients_without_a_limit_are_charged_nothing() -> None:
    quotas = MutationQuotas(WindowShape())
    limits: Quotas = {LOADER: {RATE: 1.0}}

    for api_key, client_id in ((44, "loader"), (19, "other")):
        charge = quotas.charge(
            limits, api_key=api_key, api_version=7, user="u", client_id=client_id, now_ms=0
        )
        assert charge is NO_CHARGE
    assert not quotas.buckets


@pytest.mark.parametrize("is_strict", [True, False])
def test_every_step_equals_a_plain_bucket(is_strict: bool) -> None:
    """Kafka's TokenBucket in four lines: refill, check, spend, debt by rate."""
    random = Random(20)
    quotas = MutationQuotas(WindowShape(11, 1_000))
    limits: Quotas = {LOADER: {RATE: 3.0}}
    tokens, last_ms, now_ms = 33.0, 0, 0
    for _ in range(2_000):
        now_ms += random.randrange(4_000)
        count = random.randrange(1, 20)
        charge = quotas.charge(
            limits,
            api_key=19,
            api_version=7 if is_strict else 5,
            user="u",
            client_id="loader",
            now_ms=now_ms,
        )
        tokens, last_ms = min(33.0, tokens + 3 * (now_ms - last_ms) / 1_000), now_ms
        is_refused = is_strict and round(-tokens / 3 * 1_000) > 0
        if not is_refused:
            tokens = min(33.0, tokens - count)
        due_ms = round(-tokens / 3 * 1_000) if tokens < 0 and (is_refused or not is_strict) else 0

        try:
            charge.take(count)
            was_refused = False
        except RefusedError:
            was_refused = True

        assert was_refused == is_refused
        assert charge.throttle_ms(now_ms) == due_ms


class Tenants:
    """A callback by which clients named tenant/… share the rest of their tenant's rate."""

    def __init__(self) -> None:
        self.rate: Any = 5.0
        self.calls: list[Any] = []

    def configure(self, configs: Mapping[str, str]) -> None:
        raise AssertionError

    def quota_metric_tags(
        self, quota_type: str, principal: str, client_id: str
    ) -> Mapping[str, str] | None:
        assert quota_type == "CONTROLLER_MUTATION"
        return {"tenant": client_id.split("/")[0]} if "/" in client_id else None

    def quota_limit(self, quota_type: str, metric_tags: Mapping[str, str]) -> float | None:
        assert metric_tags == {"tenant": "red"}
        limit: float | None = self.rate
        return limit

    def update_quota(self, quota_type: str, entity: ClientEntity, value: float) -> None:
        self.calls.append((entity, value))

    def remove_quota(self, quota_type: str, entity: ClientEntity) -> None:
        self.calls.append((entity, None))

    def quota_reset_required(self, quota_type: str) -> bool:
        return False


def charged(quotas: MutationQuotas, client_id: str, count: int, set_: Quotas | None = None) -> int:
    """Charge an old request, which is never refused; return its throttle in ms."""
    charge = quotas.charge(
        set_ or {},
        api_key=CreateTopicsRequest.API_KEY,
        api_version=5,
        user="ann",
        client_id=client_id,
        now_ms=0,
    )
    charge.take(count)
    return charge.throttle_ms(0)


def test_a_callback_decides_the_limits_of_mutations() -> None:
    callback, errors = Tenants(), UnexpectedErrors()
    quotas = MutationQuotas(KIP_599, CustomLimits("CONTROLLER_MUTATION", callback, errors))
    in_cluster: Quotas = {LOADER: {RATE: 1.0}}

    assert charged(quotas, "red/a", 500, in_cluster) == 0
    assert charged(quotas, "red/b", 5, in_cluster) == 1_000, "the tenant's clients share its rate"
    assert charged(quotas, "loader", 1_000_000, in_cluster) == 0, "the eight levels hold nothing"
    assert callback.calls == [(LOADER, 1.0)]

    callback.rate = 10.0
    assert charged(quotas, "red/a", 5, in_cluster) == 1_000, "a change holds for the next request"
    callback.rate = None
    assert charged(quotas, "red/a", 1_000_000, {}) == 0
    assert callback.calls[1:] == [(LOADER, None)]
    callback.rate = float("nan")
    assert charged(quotas, "red/a", 1_000_000, {}) == 0, "what is no limit limits nothing"
    assert errors.counts.total() == 1


@pytest.mark.parametrize("load", [load_broker_config, load_controller_config])
def test_brokers_and_controllers_take_the_setting_of_a_callback(load: Any) -> None:
    texts = {
        "node.id": "1" if load is load_controller_config else "2",
        "controller.quorum.voters": "1@localhost:9093",
        "client.quota.callback.class": "tenants:Tenants",
    }
    config, unknown = load(texts)
    assert not unknown & {"client.quota.callback.class"}
    found = config.mutation_quotas if load is load_controller_config else config.quotas
    assert found.callback_class == "tenants:Tenants"

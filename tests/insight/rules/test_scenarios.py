"""The "why" scenarios as recorded facts: each explanation names the true cause and its fix."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.client.admin_parts.admin_brokers import LogDirDescription, ReplicaOnDisk
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
)
from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_share_groups import ShareOffset, ShareRecordCounts
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.answers_driver import RULES
from ottla.insight.explanation import Explanation
from ottla.insight.facts.acl_facts import AclFacts
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.hanging import OpenTransaction
from ottla.insight.facts.lags_driver import TimedLag
from ottla.insight.facts.survey_driver import (
    Survey,
    SurveyedBroker,
    SurveyedDirectory,
    SurveyedPartition,
    SurveyedQuorum,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig

NOW_MS = 1_800_000_000_000
ORDERS = TopicPartition("orders", 0)
READ = {"user": "alice", "operation": "read", "topic": "orders-eu", "host": "10.0.0.7"}
GROUP = {"group": "billing"}


def explained(name: str, values: dict[str, str], **facts: Any) -> Explanation:
    return RULES[name](ClusterFacts(now_ms=NOW_MS, **facts), values)


def first(name: str, values: dict[str, str], **facts: Any) -> tuple[str, str]:
    """Return the kind and the fix of the first cause."""
    cause = explained(name, values, **facts).causes[0]
    return cause.kind, cause.fix


def acls(*entries: AclEntry) -> AclFacts:
    return AclFacts(AuthorizerConfig(class_name="standard"), entries)


def entry(**changes: Any) -> AclEntry:
    fields: dict[str, Any] = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "orders-eu",
        "pattern_type": PatternType.LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": AclOperation.READ,
        "permission": AclPermission.ALLOW,
    }
    return AclEntry(**{**fields, **changes})


def broker(id_: int, **changes: Any) -> SurveyedBroker:
    fields = {"host": "h", "port": 9092, "rack": None, "is_fenced": False, "state": "RUNNING"}
    return SurveyedBroker(**{"id": id_, **fields, **changes})


def survey(**changes: Any) -> Survey:
    whole: dict[str, Any] = {
        "cluster_id": "c",
        "quorum": SurveyedQuorum(leader_id=101),
        "brokers": [broker(1), broker(2)],
        "partitions": [],
        "min_insync": {},
    }
    return Survey(**{**whole, **changes})


def partition(*isr: int, leader: int = 1) -> SurveyedPartition:
    return SurveyedPartition(
        name="orders-0", topic="orders", leader_id=leader, replicas=[1, 2], isr=list(isr)
    )


def member(name: str, *assigned: TopicPartition, **changes: Any) -> GroupMemberDescription:
    return GroupMemberDescription(
        member_id=name,
        instance_id=None,
        client_id="worker",
        host="/10.0.0.7",
        assignment=frozenset(assigned),
        **changes,
    )


def group(*members: GroupMemberDescription, **changes: Any) -> GroupDescription:
    fields: dict[str, Any] = {
        "group_id": "billing",
        "type": GroupType.CLASSIC,
        "state": "Stable",
        "assignor": "range",
        "members": members,
    }
    return GroupDescription(**{**fields, **changes})


def usage(key: str) -> QuotaUsage:
    return QuotaUsage(NodeId(1), key, "alice", "", 100.0, 150.0, 4_000)


ALICE = (QuotaEntity("user", False, "alice"),)
CREATE = "ottla acl create --allow alice --topic orders-eu --operation read"


@pytest.mark.parametrize(
    ("stored", "kind", "fix"),
    [
        pytest.param(
            entry(resource_name="orders-"), "pattern-differs", CREATE, id="prefix as a whole name"
        ),
        pytest.param(
            entry(resource_name="order_", pattern_type=PatternType.PREFIXED),
            "pattern-differs",
            CREATE,
            id="another prefix",
        ),
        pytest.param(entry(host="10.0.0.8"), "host-differs", CREATE, id="another host"),
        pytest.param(
            entry(operation=AclOperation.WRITE), "operation-missing", CREATE, id="operation"
        ),
        pytest.param(
            entry(permission=AclPermission.DENY, host="10.0.0.7"),
            "denied-by-entry",
            "ottla acl delete --principal User:alice --topic orders-eu --operation read "
            "--host 10.0.0.7",
            id="denied",
        ),
        pytest.param(entry(principal="User:bob"), "no-entry", CREATE, id="no entry"),
    ],
)
def test_a_denial(stored: AclEntry, kind: str, fix: str) -> None:
    assert first("denial", READ, acls=acls(stored)) == (kind, fix)


def test_an_allowed_operation_has_no_cause_but_the_allowing_entry() -> None:
    found = explained("denial", READ, acls=acls(entry()))
    assert found.causes == ()
    assert "an entry allows User:alice" in found.notes[0]


@pytest.mark.parametrize("key", ["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
def test_a_throttled_client(key: str) -> None:
    kind, fix = first("throttle", {}, usage=(usage(key),), quotas={ALICE: {key: 100.0}})
    assert kind == f"quota-{key.replace('_', '-')}"
    assert fix == f"ottla quota set {key}=200 --user alice"


def test_limits_whose_usage_is_not_reported() -> None:
    quotas = {
        ALICE: {"controller_mutation_rate": 1.0},
        (QuotaEntity("ip", True, ""),): {"connection_creation_rate": 2.0},
    }
    assert first("throttle", {"user": "alice"}, quotas=quotas) == (
        "quota-controller-mutation-rate",
        "ottla quota set controller_mutation_rate=2 --user alice",
    )
    assert first("throttle", {"ip": "10.0.0.7"}, quotas=quotas) == (
        "quota-connection-creation-rate",
        "ottla quota set connection_creation_rate=4 --ip '<default>'",
    )
    assert explained("throttle", {}, quotas=quotas).causes == ()
    assert len(explained("throttle", {}, quotas=quotas).notes) == 2


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("throttle.leader", "replication-throttle"),
        ("throttle.follower", "replication-throttle"),
        ("throttle.log.dirs", "log-dirs-throttle"),
    ],
)
def test_throttled_replicas(metric: str, kind: str) -> None:
    state = survey(brokers=[broker(1, metrics={metric: 1e6})])
    assert first("throttle", {}, survey=state) == (kind, "ottla topic reassign --verify")


def lag_facts(**changes: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "group": group(member("m1", ORDERS)),
        "lags": (TimedLag(ORDERS, 10, 30, 5.0),),
        "earlier_commits": {ORDERS: 4},
        "observed_ms": 2_000,
        "stable_ends": {ORDERS: 30},
        "survey": survey(),
    }
    return facts | changes


def producer(id_: int = 7) -> ActiveProducer:
    return ActiveProducer(ProducerId(id_), 0, 3, NOW_MS - 60_000, -1, Offset(10))


def test_lag_of_a_slow_consumer() -> None:
    assert first("lag", GROUP, **lag_facts()) == (
        "slow-consumer",
        "ottla topic add-partitions orders --to 2",
    )


def test_lag_by_a_poison_record() -> None:
    found = explained("lag", GROUP, **lag_facts(earlier_commits={ORDERS: 10}))
    (cause,) = found.causes
    assert cause.kind == "no-progress"
    assert cause.fix == "ottla group reset billing --topic orders:0 --to-offset 11"
    assert cause.more == "ottla consume orders -p 0 -o 10 -c 1"


@pytest.mark.parametrize("is_owned", [False, True])
def test_lag_by_a_transaction(is_owned: bool) -> None:
    owner = TransactionDescription(
        transactional_id="billing-1",
        coordinator=NodeId(1),
        state="Ongoing",
        producer_id=ProducerId(7),
        producer_epoch=0,
        timeout_ms=60_000,
        start_ms=NOW_MS - 1_000,
        partitions=frozenset([ORDERS]),
    )
    facts = lag_facts(
        stable_ends={ORDERS: 10},
        earlier_commits={ORDERS: 10},
        open_transactions=(OpenTransaction(ORDERS, producer()),),
        transaction_owners={ProducerId(7): (owner,)} if is_owned else {},
    )
    abort = "ottla txn abort orders:0 --start-offset 10"
    expected = ("hanging-transaction", abort)
    if is_owned:
        expected = ("open-transaction", f"{abort} --force")
    assert first("lag", GROUP, **facts) == expected
    assert len(explained("lag", GROUP, **facts).causes) == 1
    assert first("transaction", {"topic": "orders"}, **facts) == expected


def test_lag_by_a_stuck_rebalance() -> None:
    held = member("m1", ORDERS, member_epoch=4, target=frozenset())
    consumers = group(
        held, type=GroupType.CONSUMER, state="Reconciling", group_epoch=5, assignment_epoch=5
    )
    found = explained("lag", GROUP, **lag_facts(group=consumers))
    (cause,) = found.causes
    assert cause.kind == "member-holds-partitions"
    assert "member m1 (client worker at 10.0.0.7)" in cause.summary
    assert cause.fix == "ottla group remove-member billing m1"
    assert explained("rebalance", GROUP, group=consumers).causes == (cause,)
    static = replace(consumers, members=(replace(held, instance_id="worker-3"),))
    assert first("rebalance", GROUP, group=static)[1] == (
        "ottla group remove-member billing --instance-id worker-3"
    )
    waiting = group(member("m1"), state="PreparingRebalance")
    assert first("rebalance", GROUP, group=waiting) == (
        "rebalance-unfinished",
        "ottla group remove-member billing --all",
    )


def test_lag_by_a_full_disk() -> None:
    full = SurveyedDirectory(path="/data", state="full", total_bytes=100, usable_bytes=1)
    log_dirs = {
        1: (
            LogDirDescription(
                "/data", ErrorCode.NONE, 100, 1, {ORDERS: ReplicaOnDisk(90, Offset(0), False)}
            ),
        )
    }
    state = survey(brokers=[broker(1, directories=[full])])
    fix = "ottla topic trim orders --before-time 36h"
    facts = lag_facts(survey=state, log_dirs=log_dirs)
    assert first("lag", GROUP, **facts) == ("disk-full", fix)
    assert first("disk", {}, survey=state, log_dirs=log_dirs) == ("disk-full", fix)
    assert first("unavailable", {}, survey=state, log_dirs=log_dirs) == ("disk-full", fix)
    tiered = broker(1, directories=[full])
    tiered.metrics = {"tier.remote.bytes": 5.0, "tier.lag.bytes": 2048.0}
    (cause,) = explained("disk", {}, survey=survey(brokers=[tiered])).causes
    assert "make the object store reachable (2 KiB wait to be copied" in cause.remedy
    tiered.metrics |= {"tier.copy.limit": 100.0, "tier.copy.rate": 95.0}
    (cause,) = explained("disk", {}, survey=survey(brokers=[tiered])).causes
    assert "raise remote.log.manager.copy.max.bytes.per.second" in cause.remedy
    evidence = {each.label: each.value for each in cause.evidence}
    assert evidence["copied bytes a second"] == 95
    assert evidence["limit of copied bytes a second"] == 100
    tiered.metrics["tier.copy.rate"] = 50.0
    (cause,) = explained("disk", {}, survey=survey(brokers=[tiered])).causes
    assert "make the object store reachable" in cause.remedy
    tiered.metrics["tier.lag.bytes"] = 0.0
    (cause,) = explained("disk", {}, survey=survey(brokers=[tiered])).causes
    assert "set local.retention.free.bytes" in cause.remedy
    tiered.metrics["tier.relief.bytes"] = 4096.0
    (cause,) = explained("disk", {}, survey=survey(brokers=[tiered])).causes
    assert "all copied segments that could be deleted are gone" in cause.remedy
    assert ("copied bytes deleted for lack of space", 4096) in [
        (each.label, each.value) for each in cause.evidence
    ]


def test_lag_without_members_or_assignment() -> None:
    assert first("lag", GROUP, **lag_facts(group=group(state="Empty")))[0] == "no-members"
    unassigned = lag_facts(group=group(member("m1")))
    assert first("lag", GROUP, **unassigned) == (
        "unassigned",
        "ottla group offset-delete billing --topic orders:0",
    )


def test_a_partition_without_leader() -> None:
    stopped = survey(
        brokers=[broker(1), broker(2, is_fenced=True)], partitions=[partition(2, leader=-1)]
    )
    found = explained("unavailable", {"topic": "orders"}, survey=stopped)
    (cause,) = found.causes
    assert cause.kind == "no-leader"
    assert "only broker 2 may lead" in cause.summary
    assert cause.fix == "ottla server broker-2.properties"
    assert cause.more == "ottla topic elect orders -p 0 --unclean --dry-run"


def test_a_partition_below_min_isr() -> None:
    stopped = survey(
        brokers=[broker(1), broker(2, is_fenced=True)],
        partitions=[partition(1)],
        min_insync={"orders": 2},
    )
    assert first("unavailable", {}, survey=stopped) == (
        "below-min-isr",
        "ottla server broker-2.properties",
    )
    assert explained("unavailable", {"topic": "other"}, survey=stopped).causes == ()


def test_an_expired_certificate() -> None:
    reason = "h:9092: its certificate has expired"
    fix = "ottla certificates renew KEYSTORE.pem --ca CA"
    one = survey(brokers=[broker(1, failure=reason)])
    assert first("unavailable", {}, survey=one) == ("certificate", fix)
    whole = {"missing": (("state of the cluster", reason),)}
    assert first("unavailable", {}, **whole) == ("certificate", fix)
    assert first("health", {}, **whole) == ("certificate", fix)


def counts(**changes: Any) -> ShareRecordCounts:
    fields: dict[str, Any] = {
        "acquired_count": 0,
        "ready_count": 0,
        "delayed_count": 0,
        "next_due_ms": None,
        "backoff_count": 0,
        "next_backoff_ms": None,
        "key_count": 0,
        "dead_letter_count": 0,
        "is_spread": False,
    }
    return ShareRecordCounts(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "kind", "fix"),
    [
        (
            {"acquired_count": 3},
            "records-acquired",
            "ottla config set --group workers share.record.lock.duration.ms=15000",
        ),
        (
            {"backoff_count": 1, "next_backoff_ms": NOW_MS},
            "records-in-back-off",
            "ottla share reset workers --topic orders:0 --to-offset 6",
        ),
        (
            {"delayed_count": 1},
            "records-delayed",
            "ottla config set --topic orders ottla.share.delay.ms=0",
        ),
        (
            {"key_count": 2},
            "records-wait-for-key",
            "ottla config set --group workers --unset ottla.share.key.concurrency",
        ),
        ({"dead_letter_count": 1}, "dead-letters-unwritten", "ottla explain unavailable"),
    ],
)
def test_records_that_a_share_group_does_not_deliver(
    changes: dict[str, Any], kind: str, fix: str
) -> None:
    found = first(
        "delivery",
        {"group": "workers"},
        share_group=group(member("m1", ORDERS), type=GroupType.SHARE),
        share_offsets={ORDERS: ShareOffset(5, 1, 10)},
        share_deliveries={ORDERS: counts(**changes)},
    )
    assert found == (kind, fix)

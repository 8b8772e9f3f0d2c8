"""Rules are total: whatever facts are missing, they return the same explanation and never raise."""

import shlex
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cli.cluster.explain import lines_of
from ottla.cli.main import COMMANDS
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
)
from ottla.client.admin_parts.admin_quotas import QuotaUsage
from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_share_groups import ShareOffset, ShareRecordCounts
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.answers import ANSWERS, answer_of
from ottla.insight.answers_driver import RULES
from ottla.insight.explanation import Conclusion, Explanation
from ottla.insight.facts.acl_facts import AclFacts
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.facts_driver import READERS, READERS_OF
from ottla.insight.facts.hanging import OpenTransaction
from ottla.insight.facts.lags_driver import TimedLag
from ottla.insight.facts.survey_driver import (
    Survey,
    SurveyedBroker,
    SurveyedDirectory,
    SurveyedPartition,
    SurveyedQuorum,
)
from ottla.insight.facts.traffic_driver import TrafficSample
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
from ottla.wire.messages.describe_node_response import NodeClientTraffic
from tests.search_length import length

VALUES = {
    "denial": {"user": "alice", "operation": "read", "topic": "orders-1", "host": "10.0.0.7"},
    "lag": {"group": "--yes"},
    "rebalance": {"group": "g"},
    "transaction": {"topic": "t"},
    "delivery": {"group": "-g"},
    "unavailable": {"topic": "t"},
    "plan": {"change": "balance"},
}
CHANGES = next(one.choices for one in answer_of("plan").parameters if one.name == "change")
NAMES = st.sampled_from(["t", "orders", "a'; rm -rf ~", "x\x1b[2J\u202e\n", "--yes", "-h", ""])
PLACES = st.builds(TopicPartition, NAMES, st.integers(0, 2))
SMALL = st.integers(0, 5)
PARTITION_SETS = st.frozensets(PLACES, max_size=3)
MEMBERS = st.builds(
    GroupMemberDescription,
    member_id=NAMES,
    instance_id=st.none(),
    client_id=NAMES,
    host=st.sampled_from(["/10.0.0.1", ""]),
    assignment=PARTITION_SETS,
    target=st.none() | PARTITION_SETS,
    member_epoch=st.none() | SMALL,
)
GROUPS = st.builds(
    GroupDescription,
    group_id=NAMES,
    type=st.sampled_from(GroupType),
    state=st.sampled_from(["Stable", "Empty", "PreparingRebalance", "Reconciling", "?"]),
    assignor=st.just("range"),
    members=st.lists(MEMBERS, max_size=3).map(tuple),
    group_epoch=st.none() | SMALL,
    assignment_epoch=st.none() | SMALL,
)
BROKERS = st.builds(
    SurveyedBroker,
    id=SMALL,
    host=st.just("h"),
    port=st.just(9092),
    rack=st.none(),
    is_fenced=st.booleans(),
    failure=st.sampled_from(["", "no answer", "the certificate has expired"]),
    directories=st.lists(
        st.builds(
            SurveyedDirectory,
            path=NAMES,
            state=st.sampled_from(["ok", "filling", "full"]),
            total_bytes=SMALL,
            usable_bytes=SMALL,
        ),
        max_size=2,
    ),
    metrics=st.dictionaries(
        st.sampled_from(["throttle.leader", "throttle.follower", "throttle.log.dirs"]),
        st.floats(1, 1e9),
    ),
)
SURVEYS = st.builds(
    Survey,
    cluster_id=st.none(),
    quorum=st.builds(SurveyedQuorum, failure=st.sampled_from(["", "no answer in 5 s"])),
    brokers=st.lists(BROKERS, max_size=3),
    partitions=st.lists(
        st.builds(
            SurveyedPartition,
            name=st.just("t-0"),
            topic=st.just("t"),
            leader_id=st.integers(-1, 3),
            replicas=st.lists(SMALL, max_size=3),
            isr=st.lists(SMALL, max_size=3),
        ),
        max_size=3,
    ),
    min_insync=st.dictionaries(st.just("t"), SMALL),
)
ENTRIES = st.builds(
    AclEntry,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.CLUSTER]),
    resource_name=st.sampled_from(["orders", "orders-", "orders-1", "*", "other", ""]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(["User:alice", "User:*", "User:bob"]),
    host=st.sampled_from(["*", "10.0.0.7", "10.0.0.8", "10.0.0.0/24"]),
    operation=st.sampled_from([AclOperation.READ, AclOperation.ALL, AclOperation.WRITE]),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
PRODUCERS = st.builds(
    ActiveProducer,
    producer_id=SMALL.map(ProducerId),
    producer_epoch=SMALL,
    last_sequence=SMALL,
    last_timestamp_ms=SMALL,
    coordinator_epoch=SMALL,
    transaction_start=st.none() | SMALL.map(Offset),
)
OWNERS = st.builds(
    TransactionDescription,
    transactional_id=NAMES,
    coordinator=st.just(NodeId(1)),
    state=st.just("Ongoing"),
    producer_id=SMALL.map(ProducerId),
    producer_epoch=SMALL,
    timeout_ms=SMALL,
    start_ms=st.none() | SMALL,
    partitions=PARTITION_SETS,
)
LIMITS = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "controller_mutation_rate", "connection_creation_rate"]),
    st.floats(1, 100),
)
USAGE = st.builds(
    QuotaUsage,
    node=SMALL.map(NodeId),
    key=st.just("producer_byte_rate"),
    user=st.sampled_from(["alice", ""]),
    client_id=NAMES,
    limit=st.floats(0, 10),
    rate=st.floats(0, 100),
    throttle_ms=SMALL,
)
COUNTS = st.builds(
    NodeClientTraffic,
    user=st.sampled_from(["alice", ""]),
    client_id=NAMES,
    requests=SMALL,
    bytes_in=SMALL,
    bytes_out=SMALL,
    used_ns=SMALL,
)
SAMPLES = st.builds(
    TrafficSample,
    at_s=st.floats(0, 10),
    figures=st.dictionaries(SMALL, st.dictionaries(st.just("requests.answered"), st.floats(0, 9))),
    sizes=st.dictionaries(PLACES, SMALL),
    quotas=st.lists(USAGE, max_size=3),
    clients=st.dictionaries(SMALL, st.lists(COUNTS, max_size=3)),
    failures=st.dictionaries(SMALL, st.just("no answer in 3 s")),
)
FACTS = st.builds(
    ClusterFacts,
    now_ms=st.just(1_000_000),
    missing=st.sampled_from([(), (("ACLs", "not authorized"),)]),
    survey=st.none() | SURVEYS,
    acls=st.none()
    | st.builds(
        AclFacts,
        st.booleans().map(lambda is_on: AuthorizerConfig(class_name="standard" if is_on else "")),
        st.lists(ENTRIES, max_size=4).map(tuple),
    ),
    quotas=st.none()
    | st.dictionaries(
        st.sampled_from(
            [
                (QuotaEntity("user", False, "alice"),),
                (QuotaEntity("ip", True, ""),),
                (QuotaEntity("client-id", False, "c"), QuotaEntity("user", True, "")),
            ]
        ),
        LIMITS,
    ),
    usage=st.none() | st.lists(USAGE, max_size=3).map(tuple),
    group=st.none() | GROUPS,
    lags=st.none()
    | st.lists(
        st.builds(TimedLag, PLACES, SMALL, st.none() | SMALL, st.none() | st.floats(0, 1e6)),
        max_size=4,
    ).map(tuple),
    earlier_commits=st.none() | st.dictionaries(PLACES, SMALL),
    stable_ends=st.none() | st.dictionaries(PLACES, SMALL),
    open_transactions=st.none()
    | st.lists(st.builds(OpenTransaction, PLACES, PRODUCERS), max_size=3).map(tuple),
    transaction_owners=st.none()
    | st.dictionaries(SMALL.map(ProducerId), st.lists(OWNERS, max_size=2).map(tuple)),
    share_group=st.none() | GROUPS,
    share_offsets=st.none()
    | st.dictionaries(PLACES, st.builds(ShareOffset, st.none() | SMALL, SMALL, st.none() | SMALL)),
    share_deliveries=st.none()
    | st.dictionaries(
        PLACES,
        st.builds(
            ShareRecordCounts,
            acquired_count=SMALL,
            ready_count=SMALL,
            delayed_count=SMALL,
            next_due_ms=st.none() | SMALL,
            backoff_count=SMALL,
            next_backoff_ms=st.none() | SMALL,
            key_count=SMALL,
            dead_letter_count=SMALL,
            is_spread=st.booleans(),
        ),
    ),
    refusal=st.sampled_from(["", "there is no broker 1 in this cluster."]),
    stored_move_count=SMALL,
    traffic=st.none() | st.tuples(SAMPLES, SAMPLES),
)


def values_of(name: str) -> dict[str, str]:
    return VALUES.get(name, {})


def test_each_answer_of_the_table_has_a_rule_and_facts() -> None:
    names = {one.name for one in ANSWERS}
    assert RULES.keys() == READERS_OF.keys() == names
    assert {noun for nouns in READERS_OF.values() for noun in nouns} == READERS.keys()


@pytest.mark.parametrize("name", RULES)
def test_without_facts_the_verdict_is_no_cause(name: str) -> None:
    facts = ClusterFacts(now_ms=0, missing=(("facts", "no answer in 15 s"),))
    found = RULES[name](facts, values_of(name))
    assert found.verdict is Conclusion.UNKNOWN
    assert found.unknown == ("facts: no answer in 15 s",)


@pytest.mark.parametrize("name", RULES)
@given(facts=FACTS)
@settings(max_examples=length(25, 60), deadline=None)
def test_rules_are_total_and_deterministic(name: str, facts: ClusterFacts) -> None:
    found = RULES[name](facts, values_of(name))
    assert found == RULES[name](facts, values_of(name))
    assert found.answer == name
    for cause in found.causes:
        assert cause.kind
        assert cause.summary
        assert not cause.summary.endswith(".")
        assert cause.fix or cause.more or cause.remedy
    check_commands(found)
    # A terminal would act on control characters in names.
    assert all(line.isprintable() for line in lines_of(found))


@pytest.mark.parametrize("change", CHANGES)
@given(facts=FACTS)
@settings(max_examples=20, deadline=None)
def test_plans_of_all_changes_are_total(change: str, facts: ClusterFacts) -> None:
    found = RULES["plan"](facts, {"change": change, "broker": "1", "controller": "1"})
    check_commands(found)
    if change != "balance":
        wrong = RULES["plan"](facts, {"change": change, "broker": "x", "controller": "²"})
        assert wrong.verdict is Conclusion.UNKNOWN
        assert "give the id of" in wrong.unknown[0]


def check_commands(found: Explanation) -> None:
    """Check that the real parsers accept the commands of each cause."""
    for cause in found.causes:
        for line in filter(None, (cause.fix, cause.more)):
            parse(line)


def parse(line: str) -> Any:
    """Parse a command as a shell and its parser would."""
    program, *words = shlex.split(line)
    assert program == "ottla"
    command = COMMANDS[words[0]]
    is_verb = words[1:2] != [] and words[1] in command.verbs
    parser = Parser(prog=f"ottla {words[0]}")
    declare(parser, import_module(command.verbs_module if is_verb else command.module))
    try:
        return parser.parse_args(words[1:])
    except SystemExit:
        pytest.fail(f"no command: {line}")

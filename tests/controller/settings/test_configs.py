"""Dynamic settings: set, append and delete, and their effect on ELRs."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.membership.controllers import register_controller
from ottla.controller.registration_driver import registration_of, registration_request
from ottla.controller.settings_in_force import topic_setting
from ottla.jepsen.in_memory_controller import IDENTITY, InMemoryController
from ottla.metadata.image import MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.resources import AlterOperation
from ottla.model.settings.storage.topic import BROKER_TO_TOPIC, TOPIC_DEFINITIONS
from ottla.wire.codec import decode, encode
from ottla.wire.messages.alter_configs_request import AlterableConfig as Replacement
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = AlterOperation
Change = tuple[str, int, str | None]


@pytest.fixture
def cluster() -> InMemoryController:
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1, 2)
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    topic = CreatableTopic(
        name="a", num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    return cluster


def resource(resource_type: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def alter(
    cluster: InMemoryController, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    reply = cluster.forward(request)
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    decoded = decode(IncrementalAlterConfigsResponse, 1, encode(reply, 1))
    return [(one.error_code, one.error_message) for one in decoded.responses]


def of_topic(image: MetadataImage) -> dict[str, str]:
    return dict(image.config(TOPIC, "a"))


def test_a_setting_is_set_and_taken_back(cluster: InMemoryController) -> None:
    assert alter(cluster, resource(TOPIC, "a", ("retention.ms", SET, "5"))) == [(0, None)]
    assert of_topic(cluster.image) == {"retention.ms": "5"}

    assert alter(cluster, resource(TOPIC, "a", ("retention.ms", DELETE, None))) == [(0, None)]
    assert of_topic(cluster.image) == {}


def test_a_controller_has_bounds_of_connections_alone(cluster: InMemoryController) -> None:
    registration = registration_of(ControllerConfig(node_id=IDENTITY.node_id), UUID(int=1))
    request = registration_request(registration, IDENTITY.cluster_id)
    cluster.take(register_controller(cluster.image, IDENTITY, request))
    name = str(IDENTITY.node_id)

    bounds = (("max.connections", SET, "5"), ("listener.name.x.max.connections", SET, "4"))
    assert alter(cluster, resource(BROKER, name, *bounds)) == [(0, None)]
    assert len(cluster.image.config(BROKER, name)) == len(bounds)

    mixed = resource(BROKER, name, bounds[0], ("log.retention.ms", SET, "5"))
    ((code, message),) = alter(cluster, mixed)
    assert code == ErrorCode.INVALID_REQUEST
    assert "dynamically: log.retention.ms; 101 is a controller" in (message or "")


def test_what_is_set_to_what_it_is_writes_no_record(cluster: InMemoryController) -> None:
    alter(cluster, resource(TOPIC, "a", ("retention.ms", SET, "5")))
    offset = cluster.next_offset

    alter(cluster, resource(TOPIC, "a", ("retention.ms", SET, "5")))

    assert cluster.next_offset == offset


def test_validate_only_writes_no_record(cluster: InMemoryController) -> None:
    change = resource(TOPIC, "a", ("retention.ms", SET, "5"))

    assert alter(cluster, change, validate_only=True) == [(0, None)]
    assert of_topic(cluster.image) == {}


def test_a_list_grows_from_its_default_and_shrinks(cluster: InMemoryController) -> None:
    alter(cluster, resource(TOPIC, "a", ("cleanup.policy", APPEND, "compact,delete")))
    grown = of_topic(cluster.image)
    alter(cluster, resource(TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")))

    assert grown == {"cleanup.policy": "delete,compact"}
    assert of_topic(cluster.image) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("changed", "code", "sentence"),
    [
        (
            resource(TOPIC, "a", ("retention.ms", APPEND, "5")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            resource(TOPIC, "a", ("retention.ms", SET, None)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for: retention.ms",
        ),
        (
            resource(TOPIC, "a", ("retention.ms", SET, "5"), ("retention.ms", SET, "6")),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys: retention.ms",
        ),
        (
            resource(TOPIC, "a", ("no.such.key", SET, "1")),
            ErrorCode.INVALID_CONFIG,
            "Unknown topic config name: no.such.key",
        ),
        (
            resource(TOPIC, "", ("retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (
            resource(TOPIC, "a b", ("retention.ms", SET, "5")),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (
            resource(TOPIC, "a", ("remote.storage.enable", SET, "true")),
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured"
            " with remote log storage.",
        ),
        (
            resource(BROKER, "", ("listener.name.x.ssl.keystore.location", SET, "/x")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "listener.name.x.ssl.keystore.location",
        ),
        (
            resource(BROKER, "1", ("ssl.truststore.location", SET, "/x")),
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the "
            "listener prefix: ssl.truststore.location",
        ),
        (
            resource(BROKER, "1", ("listener.name.x.ssl.cipher.suites", SET, "")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: listener.name.x.ssl.cipher.suites; "
            "set it in the broker's file",
        ),
        (
            resource(BROKER, "1", ("listener.name.x.ssl.keystore.key", SET, "secret")),
            ErrorCode.INVALID_REQUEST,
            "listener.name.x.ssl.keystore.key: is not readable; it must be PEM text, from "
            "-----BEGIN to -----END; a properties file writes its line ends as \\n",
        ),
        (
            resource(TOPIC, "absent", ("retention.ms", SET, "5")),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'absent' does not exist.",
        ),
        (
            resource(BROKER, "7", ("log.retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id 7, which no broker has registered",
        ),
        (
            resource(BROKER, "one", ("log.retention.ms", SET, "5")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: one",
        ),
        (
            resource(BROKER, "1", ("min.insync.replicas", SET, "1")),
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        ),
        (
            resource(BROKER, "", ("min.insync.replicas", DELETE, None)),
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        ),
        (
            resource(TOPIC, "a", ("retention.ms", 9, "5")),
            ErrorCode.INVALID_REQUEST,
            "Unknown operation 9.",
        ),
        (resource(8, "1"), ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (
            resource(GROUP, "", ("consumer.session.timeout.ms", SET, "45000")),
            ErrorCode.INVALID_REQUEST,
            "Default group resources are not allowed.",
        ),
        (
            resource(CLIENT_METRICS, "", ("metrics", SET, "*")),
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty",
        ),
        (
            resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "1000")),
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            resource(GROUP, "g", ("consumer.session.timeout.ms", APPEND, "50000")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key consumer.session.timeout.ms because its type is not LIST.",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused_whole(
    cluster: InMemoryController, changed: AlterConfigsResource, code: ErrorCode, sentence: str
) -> None:
    before = cluster.image
    good = {
        BROKER: ("log.roll.ms", "9"),
        GROUP: ("consumer.heartbeat.interval.ms", "5000"),
        CLIENT_METRICS: ("interval.ms", "1000"),
    }.get(changed.resource_type, ("segment.ms", "9"))
    key, text = good
    changed.configs.insert(0, AlterableConfig(name=key, config_operation=SET, value=text))

    assert alter(cluster, changed) == [(code, sentence)]
    assert cluster.image == before


def test_of_a_broker_anything_may_be_taken_back(cluster: InMemoryController) -> None:
    """kafka-reassign-partitions --verify deletes throttles whether or not there are any."""
    offset = cluster.next_offset
    cleared = resource(BROKER, "1", ("leader.replication.throttled.rate", DELETE, None))

    assert alter(cluster, cleared) == [(0, None)]
    assert cluster.next_offset == offset


def test_an_unknown_key_of_a_topic_may_be_taken_back_with_others_set(
    cluster: InMemoryController,
) -> None:
    """MirrorMaker of Kafka 4.4 takes back every key that the other cluster has at its default."""
    taken_back = [(key, DELETE, None) for key in ("no.such.key", "remote.storage.enable")]
    changed = resource(TOPIC, "a", ("retention.ms", SET, "5"), *taken_back)

    assert alter(cluster, changed) == [(0, None)]
    assert of_topic(cluster.image) == {"retention.ms": "5"}


@pytest.mark.parametrize("key", ["no.such.key", "num.io.threads", "sasl.kerberos.kinit.cmd"])
def test_a_broker_stores_names_without_meaning(cluster: InMemoryController, key: str) -> None:
    assert alter(cluster, resource(BROKER, "1", (key, SET, "8"))) == [(0, None)]
    assert cluster.image.config(BROKER, "1")[key] == "8"


@pytest.mark.parametrize("key", ["ssl.no.such", "super.users", "listener.name.x.sasl.no.such"])
def test_a_broker_ignores_no_name_of_the_security_family(
    cluster: InMemoryController, key: str
) -> None:
    ((code, sentence),) = alter(cluster, resource(BROKER, "1", (key, SET, "8")))
    assert code == ErrorCode.INVALID_REQUEST
    assert sentence is not None
    assert key in sentence


@pytest.mark.parametrize(
    ("key", "text"),
    [("log.retention.ms", "0"), ("log.retention.ms", "1_0"), ("log.cleanup.policy", "compact,")],
)
def test_a_stored_default_that_is_not_allowed_is_passed_over(
    cluster: InMemoryController, key: str, text: str
) -> None:
    """A release with other bounds accepted it; the default is the safe side."""
    configs = cluster.image.configs.set((BROKER, ""), PersistentMap({key: text}))
    topic_key = BROKER_TO_TOPIC[key]
    image = replace(cluster.image, configs=configs)
    in_force = topic_setting(image, cluster.config, "a", topic_key)
    assert in_force.value == TOPIC_DEFINITIONS[topic_key].default


def test_a_bad_value_is_refused_with_what_is_allowed(cluster: InMemoryController) -> None:
    [(code, sentence)] = alter(cluster, resource(TOPIC, "a", ("retention.ms", SET, "soon")))

    assert code == ErrorCode.INVALID_CONFIG
    assert sentence is not None
    assert "retention.ms" in sentence


def test_compaction_cannot_be_demanded_before_it_is_allowed(cluster: InMemoryController) -> None:
    assert alter(cluster, resource(TOPIC, "a", ("min.compaction.lag.ms", SET, "100"))) == [
        (ErrorCode.NONE, None)
    ]
    ((code, message),) = alter(cluster, resource(TOPIC, "a", ("max.compaction.lag.ms", SET, "99")))
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert "min.compaction.lag.ms 100 is above max.compaction.lag.ms 99" in message
    assert alter(cluster, resource(TOPIC, "a", ("max.compaction.lag.ms", SET, "100"))) == [
        (ErrorCode.NONE, None)
    ]


def test_one_refused_resource_leaves_the_others_alone(cluster: InMemoryController) -> None:
    outcomes = alter(
        cluster,
        resource(TOPIC, "a", ("retention.ms", SET, "5")),
        resource(TOPIC, "absent", ("retention.ms", SET, "5")),
        resource(BROKER, "", ("log.retention.ms", SET, "6")),
    )

    assert [code for code, _ in outcomes] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert cluster.image.config(BROKER, "")["log.retention.ms"] == "6"


def test_a_resource_named_twice_is_refused_both_times(cluster: InMemoryController) -> None:
    twice = [resource(TOPIC, "a", ("retention.ms", SET, text)) for text in ("5", "6")]

    assert [code for code, _ in alter(cluster, *twice)] == [ErrorCode.INVALID_REQUEST] * 2
    assert of_topic(cluster.image) == {}


@pytest.mark.parametrize("name", ["a", ""])
def test_another_min_isr_forgets_who_was_eligible_under_the_old(
    cluster: InMemoryController, name: str
) -> None:
    cluster.kill(2)
    assert cluster.state("a").elr == (2,)

    alter(cluster, resource(TOPIC if name else BROKER, name, ("min.insync.replicas", SET, "1")))

    assert cluster.state("a").elr == ()


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "a"), (BROKER, "")], ids=["topic", "cluster"])
def test_who_allows_unclean_elections_gets_a_leader_with_the_answer(
    cluster: InMemoryController, kind: int, name: str
) -> None:
    """Kafka's controller gets there with its next periodic look, up to five minutes later."""
    cluster.alter_isr("a", 0, 1)
    cluster.kill(2)
    cluster.alter_isr("a", 0, 1)
    alter(cluster, resource(TOPIC, "a", ("min.insync.replicas", SET, "1")))
    cluster.kill(1)
    cluster.start(2)
    assert cluster.state("a").leader == -1
    allowed = resource(kind, name, ("unclean.leader.election.enable", SET, "true"))

    assert alter(cluster, allowed, validate_only=True) == [(0, None)]
    assert cluster.state("a").leader == -1
    assert alter(cluster, allowed) == [(0, None)]
    assert (cluster.state("a").leader, cluster.state("a").isr) == (2, (2,))


def replace_all(
    cluster: InMemoryController, name: str, configs: dict[str, str | None], *, kind: int = TOPIC
) -> int:
    request = AlterConfigsRequest(
        resources=[
            ReplacedResource(
                resource_type=kind,
                resource_name=name,
                configs=[Replacement(name=key, value=value) for key, value in configs.items()],
            )
        ]
    )
    reply = cluster.forward(request)
    assert isinstance(reply, AlterConfigsResponse)
    return decode(AlterConfigsResponse, 2, encode(reply, 2)).responses[0].error_code


def test_the_old_request_replaces_everything(cluster: InMemoryController) -> None:
    replace_all(cluster, "a", {"retention.ms": "5", "segment.ms": "6"})

    assert replace_all(cluster, "a", {"retention.ms": "7"}) == 0
    assert of_topic(cluster.image) == {"retention.ms": "7"}


def test_the_old_request_refuses_what_has_no_value(cluster: InMemoryController) -> None:
    assert replace_all(cluster, "a", {"retention.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace_all(cluster, "b", {}) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_group_and_a_subscription_to_metrics_have_settings_of_their_own(
    cluster: InMemoryController,
) -> None:
    """They need not exist in any other way: a group may get its settings before its members."""
    outcomes = alter(
        cluster,
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        resource(CLIENT_METRICS, "lag", ("metrics", APPEND, "a,b"), ("match", SET, "client_id=x")),
    )

    assert outcomes == [(0, None), (0, None)]
    assert dict(cluster.image.config(GROUP, "g")) == {"consumer.session.timeout.ms": "50000"}
    expected = {"metrics": "a,b", "match": "client_id=x"}
    assert dict(cluster.image.config(CLIENT_METRICS, "lag")) == expected

    gone = resource(GROUP, "g", ("consumer.session.timeout.ms", DELETE, None), ("x", DELETE, None))
    assert alter(cluster, gone) == [(0, None)]
    assert dict(cluster.image.config(GROUP, "g")) == {}


def test_a_groups_setting_is_judged_with_those_it_has_already(cluster: InMemoryController) -> None:
    bounds = GroupConfig(consumer_heartbeat_interval_ms_max=60_000)
    cluster.config = replace(cluster.config, groups=bounds)
    first = resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    second = resource(GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "50000"))

    assert alter(cluster, first) == [(0, None)]
    [(code, _sentence)] = alter(cluster, second)
    assert code == ErrorCode.INVALID_CONFIG


def test_the_old_request_replaces_a_groups_settings_too(cluster: InMemoryController) -> None:
    alter(cluster, resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")))

    settings: dict[str, str | None] = {"consumer.heartbeat.interval.ms": "6000"}
    assert replace_all(cluster, "g", settings, kind=GROUP) == 0
    assert dict(cluster.image.config(GROUP, "g")) == {"consumer.heartbeat.interval.ms": "6000"}

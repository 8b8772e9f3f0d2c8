"""Authorization of forwarded changes: the controller decides again, whatever the broker decided."""

import logging
from typing import Any
from uuid import UUID

import pytest

from ottla.controller.client_requests import DECISIONS, cluster_needs
from ottla.controller.decision import decided
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.records import BROKER_RESOURCE, acl_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.balance import BALANCE_PLAN
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.wire.apis import request_class
from ottla.wire.codec_types import Message
from ottla.wire.messages import (
    alter_configs_request,
    create_partitions_request,
    create_topics_request,
    delete_topics_request,
    incremental_alter_configs_request,
)

OP = AclOperation
ON_CLUSTER = sorted(key for key in DECISIONS if cluster_needs(key))
AL = "al"
UNKNOWN_ID = UUID(int=0xABCDEF)


class Cluster(InMemoryController):
    """A cluster with an authorizer, and topics that the super user made."""

    def allow(
        self,
        operation: AclOperation,
        name: str = "kafka-cluster",
        kind: ResourceType = ResourceType.TOPIC,
        *,
        permission: AclPermission = AclPermission.ALLOW,
        host: str = "*",
    ) -> None:
        if name == "kafka-cluster":
            kind = ResourceType.CLUSTER
        entry = AclEntry(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=f"User:{AL}",
            host=host,
            operation=operation,
            permission=permission,
        )
        self.take(decided(self.image, [acl_record(self.rng.uuid(), entry)], None))

    def ask(self, request: Message, version: int | None = None) -> Any:
        return self.forward(request, version, user=AL, host="10.0.0.1")


@pytest.fixture
def cluster() -> Cluster:
    authorizer = AuthorizerConfig(
        class_name=STANDARD_AUTHORIZER, super_users=frozenset({"User:root"})
    )
    cluster = Cluster(config=ControllerConfig(authorizer=authorizer))
    cluster.start(1)
    cluster.forward(creation("mine", "theirs"), user="root")
    return cluster


def creation(*names: str) -> create_topics_request.CreateTopicsRequest:
    return create_topics_request.CreateTopicsRequest(
        topics=[
            create_topics_request.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            for name in names
        ]
    )


def codes(results: Any) -> dict[str | None, int]:
    return {one.name: one.error_code for one in results}


DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_every_request_that_is_forwarded_asks_for_something() -> None:
    by_name = {19, 20, 33, 37, 44}
    tokens = {38, 39, 40}

    assert set(DECISIONS) == set(ON_CLUSTER) | by_name | tokens
    assert not set(ON_CLUSTER) & (by_name | tokens)


@pytest.mark.parametrize("api_key", ON_CLUSTER)
def test_what_is_about_the_cluster_needs_its_operation(cluster: Cluster, api_key: int) -> None:
    request = request_class(api_key)()
    [operation] = cluster_needs(api_key)
    cluster.allow(OP.DESCRIBE if operation is not OP.DESCRIBE else OP.CREATE)

    with pytest.raises(RefusedError) as caught:
        cluster.ask(request)
    assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    cluster.allow(operation)
    try:
        cluster.ask(request)
    except RefusedError as refusal:
        assert refusal.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_host_counts_that_the_broker_saw(cluster: Cluster) -> None:
    cluster.allow(OP.CREATE, host="10.9.0.0/16")
    assert codes(cluster.ask(creation("new")).topics) == {"new": DENIED}

    cluster.allow(OP.CREATE, host="10.0.0.0/16")
    assert codes(cluster.ask(creation("new")).topics) == {"new": 0}


def test_topics_are_created_where_the_client_may_create_them(cluster: Cluster) -> None:
    cluster.allow(OP.CREATE, "new")

    response = cluster.ask(creation("new", "other", "theirs", "twice", "twice"))

    invalid = ErrorCode.INVALID_REQUEST
    assert codes(response.topics) == {
        "new": 0,
        "other": DENIED,
        "theirs": DENIED,
        "twice": invalid,
    }
    assert {one.error_message for one in response.topics if one.error_code == DENIED} == {
        "Authorization failed."
    }
    assert cluster.image.topic("other") is None


def test_a_topic_that_may_not_be_created_takes_no_room_of_those_that_may(cluster: Cluster) -> None:
    cluster.allow(OP.CREATE, "new")
    request = creation("new", "huge")
    request.topics[1].num_partitions = 50_000

    assert codes(cluster.ask(request).topics) == {"new": 0, "huge": DENIED}


def test_settings_of_a_new_topic_are_shown_to_who_may_see_them(cluster: Cluster) -> None:
    cluster.allow(OP.CREATE)

    [hidden] = cluster.ask(creation("hidden")).topics
    cluster.allow(OP.DESCRIBE_CONFIGS, "shown")
    [shown] = cluster.ask(creation("shown")).topics

    assert (hidden.topic_config_error_code, list(hidden.configs or ())) == (DENIED, [])
    assert (hidden.num_partitions, hidden.replication_factor) == (-1, -1)
    assert hidden.error_code == shown.error_code == shown.topic_config_error_code == 0
    assert (shown.num_partitions, len(shown.configs or ()) > 10) == (1, True)


def deletion(*topics: str | UUID) -> delete_topics_request.DeleteTopicsRequest:
    return delete_topics_request.DeleteTopicsRequest(
        topics=[
            delete_topics_request.DeleteTopicState(name=None, topic_id=one)
            if isinstance(one, UUID)
            else delete_topics_request.DeleteTopicState(name=one)
            for one in topics
        ]
    )


def test_topics_are_deleted_where_the_client_may_delete_them(cluster: Cluster) -> None:
    cluster.allow(OP.DELETE, "mine")
    cluster.allow(OP.DESCRIBE, "seen")

    response = cluster.ask(deletion("mine", "theirs", "no-such", "seen"))

    assert codes(response.responses) == {
        "mine": 0,
        "theirs": DENIED,
        "no-such": DENIED,
        "seen": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert cluster.image.topic("mine") is None
    assert cluster.image.topic("theirs") is not None


def test_a_topic_by_id_is_named_to_who_may_know_its_name(cluster: Cluster) -> None:
    theirs = cluster.image.topic_ids["theirs"]

    [result] = cluster.ask(deletion(theirs)).responses
    assert (result.name, result.topic_id, result.error_code) == (None, theirs, DENIED)

    cluster.allow(OP.DESCRIBE, "theirs")
    [result] = cluster.ask(deletion(theirs)).responses
    assert (result.name, result.error_code) == ("theirs", DENIED)
    [result] = cluster.ask(deletion(UNKNOWN_ID)).responses
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    cluster.allow(OP.DELETE)
    [result] = cluster.ask(deletion(theirs)).responses
    assert (result.name, result.error_code) == ("theirs", 0)


def test_topics_grow_where_the_client_may_alter_them(cluster: Cluster) -> None:
    cluster.allow(OP.ALTER, "mine")
    request = create_partitions_request.CreatePartitionsRequest(
        topics=[
            create_partitions_request.CreatePartitionsTopic(name=name, count=2, assignments=None)
            for name in ("mine", "theirs", "no-such")
        ]
    )

    assert codes(cluster.ask(request).results) == {"mine": 0, "theirs": DENIED, "no-such": DENIED}


RESOURCES = [
    (2, "mine"),
    (2, "theirs"),
    (2, "no-such"),
    (32, "mine"),
    (32, "g"),
    (4, ""),
    (16, "s"),
]
REFUSED = {
    2: DENIED,
    32: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    4: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    16: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def changes(kind: str) -> Message:
    if kind == "incremental":
        return incremental_alter_configs_request.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs_request.AlterConfigsResource(
                    resource_type=number, resource_name=name
                )
                for number, name in RESOURCES
            ]
        )
    return alter_configs_request.AlterConfigsRequest(
        resources=[
            alter_configs_request.AlterConfigsResource(resource_type=number, resource_name=name)
            for number, name in RESOURCES
        ]
    )


@pytest.mark.parametrize("kind", ["incremental", "whole"])
def test_settings_change_where_the_client_may_change_them(cluster: Cluster, kind: str) -> None:
    cluster.allow(OP.ALTER_CONFIGS, "mine")
    cluster.allow(OP.ALTER_CONFIGS, "g", ResourceType.GROUP)

    found = {
        (one.resource_type, one.resource_name): one.error_code
        for one in cluster.ask(changes(kind)).responses
    }
    allowed = {(2, "mine"), (32, "g")}
    assert found == {
        resource: 0 if resource in allowed else REFUSED[resource[0]] for resource in RESOURCES
    }

    cluster.allow(OP.ALTER_CONFIGS)
    found = {
        (one.resource_type, one.resource_name): one.error_code
        for one in cluster.ask(changes(kind)).responses
    }
    assert REFUSED[4] not in (found[4, ""], found[16, "s"])
    assert found[2, "theirs"] == DENIED


def test_a_broker_may_do_everything_for_itself(cluster: Cluster) -> None:
    request = creation("__consumer_offsets")

    response: Any = cluster.forward_own(request)

    assert codes(response.topics) == {"__consumer_offsets": 0}


def test_a_super_user_may_do_everything(cluster: Cluster) -> None:
    cluster.allow(OP.CREATE, permission=AclPermission.DENY)

    response: Any = cluster.forward(creation("new"), user="root")

    assert codes(response.topics) == {"new": 0}


def test_a_filter_by_permission_is_no_denial_in_the_audit_log(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The filters for create and describe permissions are internal questions, not the client's
    request."""
    caplog.set_level(logging.INFO, "ottla.authorizer")
    cluster.allow(OP.CREATE, "new")

    cluster.ask(creation("new"))
    assert caplog.messages == []

    cluster.ask(creation("other"))
    assert len(caplog.messages) == 1
    assert "User:al is Denied operation = CREATE" in caplog.text
    assert "TOPIC:LITERAL:other" in caplog.text


def test_a_plan_of_moves_needs_the_permission_of_reassignments(cluster: Cluster) -> None:
    request = incremental_alter_configs_request.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs_request.AlterConfigsResource(
                resource_type=BROKER_RESOURCE,
                resource_name="",
                configs=[
                    incremental_alter_configs_request.AlterableConfig(
                        name=BALANCE_PLAN, config_operation=0, value="mine:0:1>1"
                    )
                ],
            )
        ]
    )
    cluster.allow(OP.ALTER_CONFIGS)
    assert cluster.ask(request).responses[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster.allow(OP.ALTER)
    assert cluster.ask(request).responses[0].error_code == ErrorCode.NONE

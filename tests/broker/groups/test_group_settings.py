"""A group's own settings are in force when their change is acknowledged, over a real socket."""

from dataclasses import replace

from ottla.broker.groups.group_settings import SettingsOfGroups
from ottla.client.network.connection import BrokerConnection, open_connection
from ottla.client.testing import open_test_cluster
from ottla.metadata.image import EMPTY
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.resources import ConfigKind
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    IncrementalAlterConfigsResponse,
)

SET, DELETE = 0, 1
BROKER = NodeId(1)
OF_CONSUMER = "group.consumer.assignment.interval.ms"
OF_SHARE = "group.share.assignment.interval.ms"


async def alter(connection: BrokerConnection, operation: int, value: str | None) -> None:
    """Change how often the members of group g send heartbeats."""
    change = AlterableConfig(
        name="consumer.heartbeat.interval.ms", config_operation=operation, value=value
    )
    resource = AlterConfigsResource(
        resource_type=ConfigKind.GROUP, resource_name="g", configs=[change]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = (await connection.request(request, IncrementalAlterConfigsResponse)).responses
    assert answer.error_code == 0, answer


async def interval_ms(connection: BrokerConnection, group_id: str) -> int:
    """Join a group and return how often it wants heartbeats."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=f"member-of-{group_id}",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = await connection.request(request, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == 0, answer
    return answer.heartbeat_interval_ms


def test_settings_of_a_group_are_made_again_only_where_it_has_some_of_its_own() -> None:
    settings = SettingsOfGroups(GroupConfig(consumer_heartbeat_interval_ms=6_500), BROKER)
    own = PersistentMap({"consumer.heartbeat.interval.ms": "700"})
    image = replace(EMPTY, configs=PersistentMap({(GROUP_RESOURCE, "g"): own}))
    assert settings.of(image, "g").heartbeat_interval_ms == 700
    assert settings.of(image, "other").heartbeat_interval_ms == 6_500
    assert settings.of(image, "other") is settings.of(EMPTY, "g")


def test_dynamic_assignment_intervals_of_the_broker_are_those_of_its_groups() -> None:
    settings = SettingsOfGroups(GroupConfig(), BROKER)

    def intervals(texts: dict[tuple[str, str], str]) -> tuple[int, int]:
        """Return the intervals of a consumer group and a share group, under dynamic settings by
        the resource's name and the key."""
        by_name: dict[tuple[int, str], PersistentMap[str, str]] = {
            (BROKER_RESOURCE, name): PersistentMap({key: text})
            for (name, key), text in texts.items()
        }
        found = settings.of(replace(EMPTY, configs=PersistentMap(by_name)), "g")
        return found.assignment_interval_ms, found.share.assignment_interval_ms

    default = settings.of(EMPTY, "g")
    assert intervals({("", OF_SHARE): "2000"}) == (0, 2_000)
    assert intervals({("", OF_SHARE): "2000", (str(BROKER), OF_CONSUMER): "500"}) == (500, 2_000)
    assert intervals({(str(BROKER), OF_SHARE): "90000"}) == (0, 15_000), "the maximum counts"
    assert intervals({}) == (0, 1_000)
    assert settings.of(EMPTY, "g") == default


async def test_a_groups_own_interval_reaches_its_members_as_soon_as_it_is_set() -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "group.consumer.heartbeat.interval.ms": "7000",
    }
    async with open_test_cluster(settings=settings) as cluster:
        ((host, port),) = parse_bootstrap(cluster.bootstrap)
        async with open_connection(host, port) as connection:
            find = FindCoordinatorRequest(coordinator_keys=["g"])
            (found,) = (await connection.request(find, FindCoordinatorResponse)).coordinators
            assert found.error_code == 0
            assert await interval_ms(connection, "g") == 7_000
            await alter(connection, SET, "12000")
            assert await interval_ms(connection, "g") == 12_000
            assert await interval_ms(connection, "other") == 7_000
            await alter(connection, DELETE, None)
            assert await interval_ms(connection, "g") == 7_000

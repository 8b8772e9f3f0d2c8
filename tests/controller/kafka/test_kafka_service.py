"""A controller as an administrator's client sees it, over real sockets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.bench.requests import frame_of
from ottla.controller.kafka.kafka_service import FORWARDED, SERVED
from ottla.controller.main_driver import serve_controller
from ottla.metadata.records import client_quota_record
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.quotas.quota_limits import CLIENT_ID, QuotaEntity
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.quotas import REQUEST_PERCENTAGE
from ottla.node.clock_driver import RealRng
from ottla.node.identity import endpoints_of, format_directories
from ottla.node.local.local_nodes_driver import free_port
from ottla.raft.voters import Voter, VoterSet
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire import apis
from ottla.wire.codec import decode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest

ID, OTHER_ID = NodeId(101), NodeId(102)
BROKER, BROKER_LOGGER, TOPIC = 4, 8, 2
BROKERS, CONTROLLERS = 1, 2
BOUND = "max.connections.per.ip"


def config_of(directory: Path, port: int, **texts: str) -> ControllerConfig:
    config, _ = load_controller_config(
        {
            "node.id": str(ID),
            "controller.quorum.voters": f"{ID}@127.0.0.1:{port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "metadata.log.dir": str(directory),
            **{key.replace("_", "."): text for key, text in texts.items()},
        }
    )
    return config


class Admin:
    """A client of one controller."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Send a request in its latest version, and return the response."""
        key = request.API_KEY
        version = apis.API[key].latest_stable if version is None else version
        await self._stream.send_all(frame_of(request, version))
        size = int.from_bytes(await self._exactly(4))
        data = memoryview(await self._exactly(size))
        _, body_at = decode_response_header(key, version, data)
        return decode(apis.response_class(key), version, data[body_at:])

    async def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._stream.receive_some(count - len(data))
            assert more, "the controller has closed the connection"
            data += more
        return data


@asynccontextmanager
async def admin_of(config: ControllerConfig) -> AsyncIterator[Admin]:
    is_stopping, is_ready = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(serve_controller, config, ready=is_ready.set, is_stopping=is_stopping)
        )
        with trio.fail_after(60):
            await is_ready.wait()
        listener = config.listeners[0]
        async with await trio.open_tcp_stream(listener.host, listener.port) as stream:
            yield Admin(stream)
        is_stopping.set()


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with admin_of(config_of(tmp_path, free_port())) as found:
        yield found


async def test_it_lists_the_apis_that_it_serves(admin: Admin) -> None:
    answer = await admin.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
    assert {row.api_key for row in answer.api_keys} == SERVED
    assert {one.name for one in answer.supported_features} >= {"metadata.version"}


async def test_it_describes_the_controllers_and_the_active_one(admin: Admin) -> None:
    answer = await admin.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS))
    assert (answer.error_code, answer.endpoint_type, answer.controller_id) == (0, CONTROLLERS, ID)
    assert [(one.broker_id, one.host) for one in answer.brokers] == [(ID, "127.0.0.1")]
    refused = await admin.ask(DescribeClusterRequest(endpoint_type=BROKERS))
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert "endpoint of type CONTROLLER, but we wanted" in refused.error_message
    # Version 0 has no endpoint type, neither in the request nor in the response.
    old = await admin.ask(DescribeClusterRequest(), 0)
    assert old.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_it_describes_the_quorum(admin: Admin) -> None:
    asked = DescribeQuorumRequest(
        topics=[
            TopicData(
                topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
            )
        ]
    )
    (topic,) = (await admin.ask(asked)).topics
    (partition,) = topic.partitions
    assert (partition.leader_id, [one.replica_id for one in partition.current_voters]) == (ID, [ID])


async def test_it_decides_changes_itself(admin: Admin) -> None:
    feature = FeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    assert (await admin.ask(UpdateFeaturesRequest(feature_updates=[feature]))).error_code == 0
    versions = await admin.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
    levels = {one.name: one.max_version_level for one in versions.finalized_features}
    assert levels["transaction.version"] == 1, "the answer waits until the change is seen here"
    gone = await admin.ask(UnregisterBrokerRequest(broker_id=9))
    assert gone.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    moves = await admin.ask(ListPartitionReassignmentsRequest(timeout_ms=60_000, topics=None))
    assert (moves.error_code, moves.topics) == (0, [])


async def test_it_describes_its_own_settings(admin: Admin) -> None:
    answer = await admin.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=BROKER, resource_name=str(ID)),
                DescribeConfigsResource(resource_type=BROKER, resource_name=str(OTHER_ID)),
                DescribeConfigsResource(resource_type=BROKER_LOGGER, resource_name=str(ID)),
                DescribeConfigsResource(resource_type=TOPIC, resource_name="orders"),
            ]
        )
    )
    own, other, loggers, topic = answer.results
    values = {one.name: (one.value, one.config_source) for one in own.configs}
    assert values["node.id"][0] == str(ID)
    assert "controller.quorum.election.timeout.ms" in values
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert "ottla" in {one.name for one in loggers.configs}
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def change(name: str, key: str, value: str, kind: int = BROKER) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )


async def test_settings_of_all_brokers_are_changed_and_its_own_are_not(admin: Admin) -> None:
    answer = await admin.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                change("", "log.retention.ms", "100000"),
                change(str(ID), "num.partitions", "4"),
                change(str(ID), "ottla", "DEBUG", BROKER_LOGGER),
                change(str(OTHER_ID), "num.partitions", "4"),
            ]
        )
    )
    codes = [one.error_code for one in answer.responses]
    assert codes == [0, ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert (
        "num.partitions; a controller has no dynamic settings" in answer.responses[1].error_message
    )
    back = IncrementalAlterConfigsRequest(
        resources=[change(str(ID), "ottla", "INFO", BROKER_LOGGER)]
    )
    assert (await admin.ask(back)).responses[0].error_code == 0
    described = await admin.ask(
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="")]
        )
    )
    values = {one.name: one.value for one in described.results[0].configs}
    assert values["log.retention.ms"] == "100000"


async def test_bounds_of_connections_change_while_it_runs(tmp_path: Path) -> None:
    config = config_of(tmp_path, free_port())
    async with admin_of(config) as admin:
        request = IncrementalAlterConfigsRequest(resources=[change(str(ID), BOUND, "1")])
        with trio.fail_after(60):
            while (await admin.ask(request)).responses[0].error_code:
                await trio.sleep(0.05)  # the controller registers itself
            while not await is_refused(config):
                await trio.sleep(0.05)
        request = IncrementalAlterConfigsRequest(resources=[change("", BOUND, "9")])
        assert (await admin.ask(request)).responses[0].error_code == 0
        assert await is_refused(config), "the controller's own value counts"
        request = IncrementalAlterConfigsRequest(resources=[change(str(ID), BOUND, "9")])
        assert (await admin.ask(request)).responses[0].error_code == 0
        with trio.fail_after(60):
            while await is_refused(config):
                await trio.sleep(0.05)


async def is_refused(config: ControllerConfig) -> bool:
    """Return whether a further client's connection is closed before its request is answered."""
    listener = config.listeners[0]
    async with await trio.open_tcp_stream(listener.host, listener.port) as stream:
        try:
            await Admin(stream).ask(DescribeClusterRequest(endpoint_type=CONTROLLERS))
        except (AssertionError, trio.BrokenResourceError):
            return True
    return False


async def test_a_client_above_its_request_quota_is_throttled(tmp_path: Path) -> None:
    entity = (QuotaEntity(CLIENT_ID, True, ""),)
    config, directory_id = config_of(tmp_path, free_port()), RealRng().uuid()
    lone = Voter(id=ID, directory_id=directory_id, endpoints=endpoints_of(config))
    async with RealDisk() as disk:
        await format_directories(
            disk,
            {str(tmp_path): directory_id},
            cluster_id=uuid_to_text(directory_id),
            node_id=ID,
            metadata_log_dir=str(tmp_path),
            initial_voters=VoterSet((lone,)),
            first_records=[client_quota_record(entity, REQUEST_PERCENTAGE, 0.001)],
        )
    async with admin_of(config) as admin:
        asked = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        with trio.fail_after(60):
            while not (await admin.ask(asked)).throttle_time_ms:
                pass
        began = trio.current_time()
        await admin.ask(asked)
        assert trio.current_time() - began > 0.1, "its connection is not read meanwhile"


async def test_a_request_above_the_bound_closes_its_connection(tmp_path: Path) -> None:
    config = config_of(tmp_path, free_port(), socket_request_max_bytes="1000")
    async with admin_of(config) as admin:
        request = IncrementalAlterConfigsRequest(resources=[change("", "log.retention.ms", "1")])
        assert (await admin.ask(request)).responses[0].error_code == 0
        large = change("", "log.retention.ms", "1" * 2_000)
        with pytest.raises(AssertionError, match="closed"):
            await admin.ask(IncrementalAlterConfigsRequest(resources=[large]))


async def test_acls_need_an_authorizer(admin: Admin) -> None:
    described = await admin.ask(DescribeAclsRequest(resource_type_filter=1, operation=1))
    assert described.error_code == ErrorCode.SECURITY_DISABLED


async def test_an_api_of_brokers_closes_the_connection(admin: Admin) -> None:
    with pytest.raises(AssertionError, match="closed"):
        await admin.ask(MetadataRequest())


async def test_an_authorizer_decides_by_acls(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        free_port(),
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:root",
    )
    async with admin_of(config) as anonymous:
        versions = await anonymous.ask(ApiVersionsRequest(), 0)
        assert versions.error_code == 0
        refused = {
            "acls": await anonymous.ask(DescribeAclsRequest(resource_type_filter=1, operation=1)),
            "unregister": await anonymous.ask(UnregisterBrokerRequest(broker_id=9)),
        }
        assert {one.error_code for one in refused.values()} == {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        }
        creation = AclCreation(
            resource_type=2, resource_name="t", principal="User:a", host="*", operation=3
        )
        (created,) = (await anonymous.ask(CreateAclsRequest(creations=[creation]))).results
        assert created.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        altered = await anonymous.ask(
            IncrementalAlterConfigsRequest(
                resources=[change("", "log.retention.ms", "1"), change(str(ID), "a", "b")]
            )
        )
        assert {one.error_code for one in altered.responses} == {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        }


def test_every_decided_api_is_forwarded_by_brokers_too() -> None:
    assert set(FORWARDED) <= set(apis.FORWARDED_KEYS)

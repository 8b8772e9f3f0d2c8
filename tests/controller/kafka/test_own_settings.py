"""Refusals of a controller, which cannot ask the object store before a topic is tiered."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.kafka.own_settings import TIERED_BY_BROKERS, obstacle_of
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.resources import AlterOperation
from ottla.node.admin.alter_configs import AlterLoggersApi
from ottla.node.admin.log_levels import LogLevels
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

ID, TOPIC = NodeId(101), 2
SET, DELETE, _, _ = AlterOperation
TIERED = "remote.storage.enable"


@pytest.fixture
def image() -> MetadataImage:
    cluster = InMemoryController()
    cluster.start(1)
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("a", "tiered")
    ]
    cluster.forward(CreateTopicsRequest(topics=topics))
    configs = cluster.image.configs.set((TOPIC, "tiered"), PersistentMap({TIERED: "true"}))
    return replace(cluster.image, configs=configs)


def change(
    topic: str, value: str | None, operation: AlterOperation = SET, key: str = TIERED
) -> AlterConfigsResource:
    config = AlterableConfig(name=key, config_operation=operation, value=value)
    return AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[config])


def test_only_the_beginning_of_tiered_storage_is_refused(image: MetadataImage) -> None:
    def obstacle(resource: AlterConfigsResource) -> str:
        return obstacle_of(ID, lambda: image, resource)

    assert obstacle(change("a", "true")) == TIERED_BY_BROKERS
    assert obstacle(change("a", " TRUE ")) == TIERED_BY_BROKERS
    assert not obstacle(change("a", "false"))
    assert not obstacle(change("a", None, DELETE))
    assert not obstacle(change("a", "5", key="retention.ms"))
    assert not obstacle(change("tiered", "true")), "it has tiered storage already"
    assert not obstacle(change("unknown", "true")), "the controller refuses it for another reason"


@pytest.mark.parametrize(
    ("is_permitted", "code"),
    [(True, ErrorCode.INVALID_REQUEST), (False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)],
)
def test_other_resources_of_the_request_are_changed(
    image: MetadataImage, is_permitted: bool, code: ErrorCode
) -> None:
    forwarded: list[str] = []

    def forward(context: Any, request: Any, finish: Any = None) -> Any:
        forwarded.extend(one.resource_name for one in request.resources)
        responses = [AlterConfigsResourceResponse() for _ in request.resources]
        return finish(IncrementalAlterConfigsResponse(responses=responses))

    class Permissions:
        def allows(self, *_: Any, **__: Any) -> bool:
            return is_permitted

    def obstacle(resource: Any) -> str:
        return obstacle_of(ID, lambda: image, resource)

    api = AlterLoggersApi(ID, LogLevels(), forward, obstacle_of=obstacle)
    context: Any = type("Context", (), {"permissions": Permissions()})()
    resources = [change("a", "true"), change("tiered", "5", key="retention.ms")]

    answer: Any = api.handle(context, IncrementalAlterConfigsRequest(resources=resources))

    assert forwarded == ["tiered"]
    assert [one.error_code for one in answer.responses] == [code, 0]
    assert (answer.responses[0].error_message == TIERED_BY_BROKERS) is is_permitted

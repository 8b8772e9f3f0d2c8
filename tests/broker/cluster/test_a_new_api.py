"""An API added by its schema, its row and its decision: the rest follows from these.

It is forwarded, so the test covers both broker and controller. CONTRIBUTING has the steps.
"""

import pkgutil
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.cluster import cluster_apis
from ottla.controller.client_requests import DECISIONS
from ottla.controller.decision import Context, Decision, decided
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE, config_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.security.acls import AclOperation
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.wire import headers, schema
from ottla.wire.api import CostBounds, forwarded, on_cluster
from ottla.wire.apis import API, FORWARDED_KEYS, request_class, response_class
from ottla.wire.generator import schema_files
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

FREEZE_TOPICS = 150

SCHEMA = """
request FreezeTopicsRequest key 150 versions 0-1 flexible 1+
    topics []TopicToFreeze
        name string
        days int32 1+

response FreezeTopicsResponse key 150 versions 0-1 flexible 1+
    throttle_time_ms int32
    results []FrozenTopic
        name string
        error_code int16
        error_message string?
"""

ROW = forwarded(
    FREEZE_TOPICS,
    "FreezeTopics",
    "0-1 flexible 1+",
    on_cluster(AclOperation.ALTER),
    cost=CostBounds(records_max=3),
)


ORDERS, GONE = "orders", "gone"


def freeze_topics(image: MetadataImage, context: Context, request: Any) -> Decision[Any]:
    """Keep the records of each topic permanently: a decision as any other."""
    answer: Any = response_class(FREEZE_TOPICS)()
    frozen_topic = vars(sys.modules[type(answer).__module__])["FrozenTopic"]
    records = []
    for topic in request.topics:
        place = frozen_topic(name=topic.name, error_message=None)
        if image.topic(topic.name) is None:
            place.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            records.append(config_record(TOPIC_RESOURCE, topic.name, "retention.ms", "-1"))
        answer.results.append(place)
    return decided(image, records, answer)


@pytest.fixture(autouse=True)
def _added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the schema's file, the row and the line that registers the decision."""
    read = pkgutil.get_data

    def get_data(package: str, name: str) -> bytes | None:
        return SCHEMA.encode() if name == "schemas/freeze_topics.schema" else read(package, name)

    monkeypatch.setattr(schema, "get_data", get_data)
    for message in ("FreezeTopicsRequest", "FreezeTopicsResponse"):
        monkeypatch.setitem(schema_files(), message, "freeze_topics")
    monkeypatch.setitem(API, FREEZE_TOPICS, ROW)
    # Tables that are made of the rows at import; a row in the file is in them.
    for table in (headers._FLEXIBLE_FROM, headers._TAGS_FROM):
        monkeypatch.setitem(table, FREEZE_TOPICS, 1)
    monkeypatch.setattr(cluster_apis, "FORWARDED_KEYS", FORWARDED_KEYS | {FREEZE_TOPICS})
    monkeypatch.setitem(DECISIONS, FREEZE_TOPICS, freeze_topics)


def asking(*names: str) -> Any:
    request: Any = request_class(FREEZE_TOPICS)()
    topic_to_freeze = vars(sys.modules[type(request).__module__])["TopicToFreeze"]
    request.topics = [topic_to_freeze(name=name) for name in names]
    return request


def codes(answer: Any) -> dict[str, int]:
    return {one.name: one.error_code for one in answer.results}


@pytest.fixture
def cluster() -> InMemoryController:
    """A cluster with an authorizer, a super user and a topic."""
    authorizer = AuthorizerConfig(
        class_name=STANDARD_AUTHORIZER, super_users=frozenset({"User:root"})
    )
    cluster = InMemoryController(config=ControllerConfig(authorizer=authorizer))
    cluster.start(1)
    topics = [CreatableTopic(name=ORDERS, num_partitions=1, replication_factor=1)]
    cluster.forward(CreateTopicsRequest(topics=topics), user="root")
    return cluster


async def test_clients_are_offered_it(new_client: NewClient) -> None:
    answer = await new_client().ask(ApiVersionsRequest(), 2)
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert listed[FREEZE_TOPICS] == (0, 1)


@pytest.mark.parametrize("version", [0, 1])
async def test_a_broker_forwards_it(
    new_client: NewClient, cluster: InMemoryController, version: int
) -> None:
    client = new_client()
    client.controller.metadata_offset = Offset(0)
    client.controller.answer = lambda request: cluster.forward(request, version, user="root")
    answer = await client.ask(asking(ORDERS, GONE), version)
    assert codes(answer) == {ORDERS: 0, GONE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.image.config(TOPIC_RESOURCE, ORDERS)["retention.ms"] == "-1"


@pytest.mark.parametrize("version", [0, 1])
async def test_it_is_refused_in_its_own_form(new_client: NewClient, version: int) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.NOT_CONTROLLER, "ask again")
    answer = await client.ask(asking(ORDERS, GONE), version)
    assert codes(answer) == dict.fromkeys((ORDERS, GONE), ErrorCode.NOT_CONTROLLER)
    assert {one.error_message for one in answer.results} == {"ask again"}


def test_the_controller_asks_for_what_its_row_needs(cluster: InMemoryController) -> None:
    with pytest.raises(RefusedError) as caught:
        cluster.forward(asking(ORDERS), user="al")
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_its_cost_is_bounded_by_its_row(cluster: InMemoryController) -> None:
    cluster.forward(asking(*[ORDERS] * 3), user="root")
    with pytest.raises(RefusedError) as caught:
        cluster.forward(asking(*[ORDERS] * 4), user="root")
    assert caught.value.code is ErrorCode.POLICY_VIOLATION

"""IncrementalAlterConfigs: loggers are changed on the broker that gets the request; the rest is
forwarded."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.logs import LEVELS
from ottla.node.admin.log_levels import LogLevels
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.steps import STEP_COST
from ottla.wire.messages.alter_configs_request import AlterableConfig as Replacement
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest
from ottla.wire.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from ottla.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as ReplacedOutcome,
)
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER = "ottla.test.talkative"
Change = tuple[str, int, str | None]


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger that inherits the root's level, and does so again after the test."""
    found = logging.getLogger(LOGGER)
    yield found
    found.setLevel(logging.NOTSET)


def resource(kind: int, name: str, *changes: Change) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


async def alter(client: Client, *resources: AlterConfigsResource, **options: Any) -> list[int]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), **options)
    answer = await client.ask(request, 1)
    asked = [(one.resource_type, one.resource_name) for one in resources]
    assert [(one.resource_type, one.resource_name) for one in answer.responses] == asked
    return [one.error_code for one in answer.responses]


async def test_a_logger_says_more_and_again_what_those_above_it_say(
    new_client: NewClient, logger: logging.Logger
) -> None:
    client = new_client()
    assert await alter(client, resource(BROKER_LOGGER, "1", (LOGGER, SET, "DEBUG"))) == [0]
    assert logger.level == logging.DEBUG
    assert await alter(client, resource(BROKER_LOGGER, "1", (LOGGER, DELETE, None))) == [0]
    assert logger.level == logging.NOTSET
    assert client.controller.requests == []


async def test_what_clients_may_do_is_decided_again_where_a_logger_says_more_or_less(
    new_client: NewClient, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower level can enable audit lines of allowed requests, so cached decisions are dropped."""
    client, levels = new_client(), []
    gates = Authorization(lambda topic_id: None, lambda key, code: None)
    monkeypatch.setattr(gates, "decide_again", lambda: levels.append(logger.level))
    client.dispatcher.gates = gates
    asked = resource(BROKER_LOGGER, "1", (LOGGER, SET, "DEBUG"))
    assert await alter(client, asked, validate_only=True) == [0]
    assert levels == []
    assert await alter(client, asked) == [0]
    assert levels == [logging.DEBUG]


@pytest.mark.parametrize("level", LEVELS)
async def test_each_of_kafkas_levels_is_described_as_it_was_set(
    new_client: NewClient, logger: logging.Logger, level: str
) -> None:
    assert await alter(new_client(), resource(BROKER_LOGGER, "1", (LOGGER, SET, level))) == [0]
    assert LogLevels().levels()[LOGGER] == level


async def test_a_dry_run_changes_no_logger(new_client: NewClient, logger: logging.Logger) -> None:
    asked = resource(BROKER_LOGGER, "1", (LOGGER, SET, "DEBUG"))
    assert await alter(new_client(), asked, validate_only=True) == [0]
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("1", (LOGGER, SET, "debug"), ErrorCode.INVALID_CONFIG),
        ("1", (LOGGER, SET, None), ErrorCode.INVALID_CONFIG),
        ("1", ("ottla.absent", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("ottla.absent", DELETE, None), ErrorCode.INVALID_CONFIG),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
        ("1", (LOGGER, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", (LOGGER, SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", (LOGGER, 9, "INFO"), ErrorCode.INVALID_REQUEST),
        ("2", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("one", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("9" * 5_000, (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_an_invalid_logger_change_changes_no_logger(
    new_client: NewClient, logger: logging.Logger, name: str, change: Change, code: ErrorCode
) -> None:
    changes = [change] if change[0] == LOGGER else [(LOGGER, SET, "DEBUG"), change]
    assert await alter(new_client(), resource(BROKER_LOGGER, name, *changes)) == [code]
    assert logger.level == logging.NOTSET


async def test_loggers_named_twice_are_refused_both_times(new_client: NewClient) -> None:
    twice = [resource(BROKER_LOGGER, "1", ("root", SET, "WARN"))] * 2
    assert await alter(new_client(), *twice) == [ErrorCode.INVALID_REQUEST] * 2
    both = resource(BROKER_LOGGER, "1", ("root", SET, "WARN"), ("root", SET, "INFO"))
    assert await alter(new_client(), both) == [ErrorCode.INVALID_REQUEST]


async def test_what_is_not_a_logger_is_the_controllers_to_decide(
    new_client: NewClient, logger: logging.Logger
) -> None:
    """In one request both; the answers come in the order asked."""
    client = new_client()
    client.controller.answer = lambda request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=ErrorCode.INVALID_CONFIG,
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one in request.resources
        ]
    )
    client.controller.metadata_offset = 0
    codes = await alter(
        client,
        resource(TOPIC, "a", ("x", SET, "1")),
        resource(BROKER_LOGGER, "1", (LOGGER, SET, "INFO")),
        resource(TOPIC, "b", ("x", SET, "1")),
    )
    assert codes == [ErrorCode.INVALID_CONFIG, ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
    assert logger.level == logging.INFO
    (passed_on,) = client.controller.requests
    assert [one.resource_name for one in passed_on.resources] == ["a", "b"]


async def test_a_controller_out_of_reach_keeps_no_logger_from_changing(
    new_client: NewClient, logger: logging.Logger
) -> None:
    client = new_client()
    client.controller.answer = RefusedError(ErrorCode.NETWORK_EXCEPTION)
    codes = await alter(
        client,
        resource(BROKER_LOGGER, "1", (LOGGER, SET, "INFO")),
        resource(TOPIC, "a", ("x", SET, "1")),
    )
    assert codes == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
    assert logger.level == logging.INFO


async def test_a_request_that_changes_much_is_encoded_apart(new_client: NewClient) -> None:
    client = new_client()
    client.controller.answer = lambda request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(resource_type=TOPIC, resource_name=one.resource_name)
            for one in request.resources
        ]
    )
    client.controller.metadata_offset = 0
    changes = [(f"key-{number}", SET, "1") for number in range(2 * STEP_COST)]
    topics = [resource(TOPIC, f"t{number}", *changes[:1]) for number in range(2 * STEP_COST)]
    for asked in (topics, [resource(TOPIC, "a", *changes)]):
        apart_count = client.apart_count
        unknown = resource(BROKER_LOGGER, "2", (LOGGER, SET, "INFO"))
        codes = await alter(client, *asked, unknown)
        assert codes == [0] * len(asked) + [ErrorCode.INVALID_REQUEST]
        assert client.apart_count > apart_count


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("1", "/elsewhere", True),
        ("1", "/tmp/ottla-logs", False),
        ("1", "*", False),
        ("1", "", False),
        ("1", "*,/elsewhere", False),  # the controller's to refuse, as any bad value
        ("2", "/elsewhere", False),
        ("", "/elsewhere", False),
    ],
)
async def test_a_directory_that_is_not_ours_is_refused_before_the_controller_is_asked(
    new_client: NewClient, name: str, value: str, is_refused: bool
) -> None:
    client = new_client()
    client.controller.answer = lambda request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )
    client.controller.metadata_offset = 0
    codes = await alter(client, resource(BROKER, name, ("cordoned.log.dirs", SET, value)))
    assert codes == [ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE]
    assert len(client.controller.requests) == (0 if is_refused else 1)


@pytest.mark.parametrize(
    ("key", "text", "is_refused"),
    [
        ("log.cleaner.threads", "10", True),
        ("log.cleaner.threads", "8", False),
        ("log.cleaner.threads", None, True),  # left out, which takes 4 back to 1
        ("num.io.threads", "17", True),
        ("num.io.threads", "16", False),
    ],
)
async def test_threads_change_to_half_or_twice_when_all_settings_are_replaced(
    new_client: NewClient, key: str, text: str | None, is_refused: bool
) -> None:
    """Seen on Kafka 4.4.0 for each of these, with 4 cleaners in force."""
    client = new_client()
    configs = client.metadata.image.configs
    if key == "log.cleaner.threads":
        configs = configs.set((BROKER, "1"), PersistentMap({key: "4"}))
    client.metadata.image = replace(client.metadata.image, configs=configs)
    client.controller.answer = lambda request: AlterConfigsResponse(
        responses=[ReplacedOutcome(resource_type=BROKER, resource_name="1")]
    )
    client.controller.metadata_offset = 0
    given = [] if text is None else [Replacement(name=key, value=text)]
    request = AlterConfigsRequest(
        resources=[ReplacedResource(resource_type=BROKER, resource_name="1", configs=given)]
    )
    (answer,) = (await client.ask(request, 2)).responses
    assert answer.error_code == (ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE)


@pytest.mark.parametrize(
    ("name", "count", "is_refused"),
    [
        ("1", "2", False),  # of one that is in force by default
        ("1", "3", True),
        ("1", "0", True),
        ("", "3", True),
        ("2", "3", False),  # that broker's to judge
        ("1", "many", False),  # the controller's to refuse, as any bad value
    ],
)
async def test_cleaners_change_to_half_or_twice_of_what_is_in_force(
    new_client: NewClient, name: str, count: str, is_refused: bool
) -> None:
    client = new_client()
    client.controller.answer = lambda request: IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=one.resource_type, resource_name=one.resource_name
            )
            for one in request.resources
        ]
    )
    client.controller.metadata_offset = 0
    codes = await alter(client, resource(BROKER, name, ("log.cleaner.threads", SET, count)))
    assert codes == [ErrorCode.INVALID_REQUEST if is_refused else ErrorCode.NONE]
    assert len(client.controller.requests) == (0 if is_refused else 1)

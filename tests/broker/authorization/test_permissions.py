"""Cached authorization decisions of a connection: their lifetime, and decisions per request."""

import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.metadata.acl_table import NO_ACLS
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.node.authorization import permissions as room
from ottla.wire.apis import DESCRIBE_GROUPS, PRODUCE
from ottla.wire.messages.describe_groups_request import DescribeGroupsRequest
from ottla.wire.messages.produce_request import ProduceRequest, TopicProduceData

World = Any  # the class of the `world` fixture, in conftest.py
Authorizer = Any  # the class of the `authorizer` fixture there
OPEN, CLOSED = ("WRITE", "TOPIC", "open"), ("WRITE", "TOPIC", "closed")


@pytest.fixture
def guarded(world: World, authorizer: Authorizer) -> World:
    """The world with the authorizer in force, which lets topic `open` be written."""
    world.authorization.use(authorizer)
    authorizer.allow("WRITE TOPIC open")
    return world


def is_served(world: World, *topics: str, **changes: Any) -> bool:
    """Return whether a handler sees a Produce with all its topics."""
    seen: list[int] = []
    request = ProduceRequest(
        acks=1, topic_data=[TopicProduceData(name=name) for name in topics], **changes
    )

    def handle(context: Any, request: ProduceRequest) -> None:
        seen.append(len(request.topic_data))

    world.run(handle, world.call(PRODUCE, 12), request)
    return seen == [len(topics)]


def test_what_a_connection_is_allowed_is_decided_once(
    guarded: World, authorizer: Authorizer
) -> None:
    assert all(is_served(guarded, "open") for _ in range(3))
    assert authorizer.asked == [OPEN]


def test_what_is_refused_is_decided_and_logged_for_each_request(
    guarded: World, authorizer: Authorizer
) -> None:
    for _ in range(3):
        assert not is_served(guarded, "closed", "open", "closed")
    assert authorizer.logged.count(CLOSED) == 3
    authorizer.allow("WRITE TOPIC closed")
    assert is_served(guarded, "closed"), "a refusal outlives no request"


def test_a_change_of_the_entries_holds_for_the_next_request_of_an_open_connection(
    guarded: World, authorizer: Authorizer
) -> None:
    assert is_served(guarded, "open")
    authorizer.allowed.clear()
    guarded.authorization.use(authorizer)
    assert not is_served(guarded, "open")


def test_what_one_user_was_allowed_is_not_the_next_ones(
    guarded: World, authorizer: Authorizer
) -> None:
    assert is_served(guarded, "open")
    guarded.peer.user = "bo"
    assert is_served(guarded, "open")
    assert authorizer.asked == [OPEN, OPEN]


def test_what_one_connection_was_allowed_is_not_the_next_ones(
    guarded: World, authorizer: Authorizer
) -> None:
    assert is_served(guarded, "open")
    guarded.peer = replace(guarded.peer, permissions=None)
    assert is_served(guarded, "open")
    assert authorizer.asked == [OPEN, OPEN]


def test_another_operation_on_the_same_name_is_decided_of_its_own(
    guarded: World, authorizer: Authorizer
) -> None:
    assert is_served(guarded, "open")
    permissions = guarded.peer.permissions
    assert permissions.allows(AclOperation.WRITE, ResourceType.TOPIC, "open")
    assert not permissions.allows(AclOperation.READ, ResourceType.TOPIC, "open")
    assert not permissions.allows(AclOperation.WRITE, ResourceType.GROUP, "open")


def test_a_transactional_id_is_asked_for_though_the_topics_were_allowed(guarded: World) -> None:
    assert is_served(guarded, "open")
    assert not is_served(guarded, "open", transactional_id="theirs")


def test_a_request_that_waits_is_decided_by_the_entries_of_when_it_goes_on(
    guarded: World, authorizer: Authorizer
) -> None:
    call = guarded.call(DESCRIBE_GROUPS, 5)
    guarded.authorization.serve(call.context, DescribeGroupsRequest(groups=[]), lambda *_: None)
    waiting, wanted = call.context.permissions, (AclOperation.WRITE, ResourceType.TOPIC)
    assert waiting.allows(*wanted, "open") and not waiting.allows(*wanted, "closed")
    assert waiting.allowed_before(wanted) == {"open"}
    authorizer.allowed.clear()
    authorizer.allow("WRITE TOPIC closed")
    guarded.authorization.use(authorizer)
    assert waiting.allowed_before(wanted) == set()
    assert waiting.allows(*wanted, "closed") and not waiting.allows(*wanted, "open")


def test_parts_that_one_request_lost_are_not_those_of_another(guarded: World) -> None:
    first, second = guarded.call(PRODUCE, 12), guarded.call(PRODUCE, 12)
    for call, name in ((first, "open"), (second, "closed")):
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name=name)])
        guarded.run(lambda *_: None, call, request)
    assert not first.context.has_refused_parts
    assert second.context.has_refused_parts


def test_a_client_of_very_many_names_fills_a_bounded_memory(
    guarded: World, authorizer: Authorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "KEPT_MAX", 10)
    names = [*(f"t{number}" for number in range(35)), "t" * 1_000]
    authorizer.allow(*(f"WRITE TOPIC {name}" for name in names))
    for name in names:
        assert is_served(guarded, name)
        kept = guarded.peer.permissions.allowed.names
        assert sum(map(len, kept.values())) <= 10
        assert not any(len(one) > 256 for found in kept.values() for one in found)
    assert is_served(guarded, *names)


def test_each_decision_is_logged_where_what_is_allowed_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    entry = AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name="open",
        pattern_type=PatternType.LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=AclOperation.WRITE,
        permission=AclPermission.ALLOW,
    )
    acls = NO_ACLS.with_entries({UUID(int=1): entry})
    world.authorization.use(StandardAuthorizer(AuthorizerConfig(), AuditLog(lambda: 0), acls))
    caplog.set_level(logging.INFO, "ottla.authorizer")
    assert is_served(world, "open", "open") and is_served(world, "open")
    assert caplog.messages == []

    caplog.set_level(logging.DEBUG, "ottla.authorizer")
    world.authorization.decide_again()
    assert is_served(world, "open", "open") and is_served(world, "open")
    assert len([one for one in caplog.messages if "is Allowed operation = WRITE" in one]) == 2

    caplog.set_level(logging.INFO, "ottla.authorizer")
    world.authorization.decide_again()
    assert is_served(world, "open") and is_served(world, "open")
    assert len(caplog.messages) == 2


async def test_an_image_without_other_entries_has_nothing_decided_again(
    world: World, authorizer: Authorizer
) -> None:
    world.authorization.use(authorizer)
    version = world.authorization.version
    await world.authorization.publish(MetadataDelta(EMPTY), EMPTY)
    assert world.authorization.version == version

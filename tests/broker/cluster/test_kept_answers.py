"""Cached responses with an authorizer: per user and host, their lifetime, and uncached requests."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.metadata.acl_table import AclTable
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode
from ottla.model.run_now import run_now
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.dispatch import Handler, HandlerResult, RequestContext
from ottla.wire.codec_types import Message
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]

AL, BO, ROOT = "al", "bo", "root"
HOSTS = ("10.0.0.1", "10.1.0.1", "2001:db8::1")
OP, TOPIC, CLUSTER = AclOperation, ResourceType.TOPIC, ResourceType.CLUSTER
ORDERS_ID = UUID(int=1000)
UNSET = -(1 << 31)


def named(*names: str, **options: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, **options)


def entry(
    user: str = AL,
    name: str = "orders",
    operation: AclOperation = OP.DESCRIBE,
    *,
    resource: ResourceType = TOPIC,
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
) -> AclEntry:
    return AclEntry(
        resource_type=resource,
        resource_name=name,
        pattern_type=pattern,
        principal=f"User:{user}",
        host=host,
        operation=operation,
        permission=permission,
    )


class CountedAuthorization:
    """The authorization of a broker, and how many requests it is asked to serve."""

    is_active = True

    def __init__(self, authorization: Authorization, count: Callable[[], None]) -> None:
        self.client_key_of = authorization.client_key_of
        self.decide_again = authorization.decide_again
        self._serve = authorization.serve
        self._count = count

    def serve(self, context: RequestContext, request: Any, handler: Handler) -> HandlerResult:
        self._count()
        return self._serve(context, request, handler)


class AuthorizingBroker:
    """A broker with an authorizer, and connections of users at hosts."""

    def __init__(self, first: Client, *, allows_without_entry: bool = False) -> None:
        self.first = first
        config = AuthorizerConfig(
            super_users=frozenset({f"User:{ROOT}"}), allow_everyone=allows_without_entry
        )
        self.authorizer = StandardAuthorizer(config, AuditLog(lambda: 0))
        self.authorization = Authorization(
            lambda topic_id: None, lambda key, code: None, self.authorizer
        )
        self.decided_count = 0
        """Number of requests that reached the authorizer."""
        first.dispatcher.gates = CountedAuthorization(self.authorization, self.count)
        self._clients: dict[tuple[str, str], Client] = {}

    def count(self) -> None:
        self.decided_count += 1

    def use(self, entries: Iterable[AclEntry]) -> None:
        """Have these entries decide from the next request on, and no others."""
        self.learn(entries)
        self.follow()

    def learn(self, entries: Iterable[AclEntry]) -> None:
        """Bring the image with these entries, by which nothing is decided yet."""
        acls = AclTable().with_entries(
            {UUID(int=number): one for number, one in enumerate(entries, 1)}
        )
        metadata = self.first.metadata
        metadata.image = replace(metadata.image, acls=acls)

    def follow(self) -> None:
        """Decide by the entries of the image."""
        image = self.first.metadata.image
        run_now(self.authorization.publish(MetadataDelta(image), image))

    def client(self, user: str, host: str = HOSTS[0]) -> Client:
        """Return the one connection of a user at a host."""
        found = self._clients.get((user, host))
        if found is None:
            found = self._clients[user, host] = self.first.another()
            found.connection.peer.user = user
            found.connection.peer.peer_host = host
        return found

    async def ask(
        self, user: str, request: Message, version: int = 12, *, host: str = HOSTS[0]
    ) -> Any:
        return await self.client(user, host).ask(request, version)

    async def codes(self, user: str, *names: str, host: str = HOSTS[0]) -> list[int]:
        """Return the error code of each topic that a user asks for."""
        answer = await self.ask(user, named(*names), host=host)
        return [topic.error_code for topic in answer.topics]


@pytest.fixture
def guarded(new_client: NewClient) -> AuthorizingBroker:
    return AuthorizingBroker(new_client())


DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_what_a_user_asked_before_is_answered_without_a_decision(
    guarded: AuthorizingBroker,
) -> None:
    guarded.use([entry(), entry(name="kafka-cluster", resource=CLUSTER)])
    described = DescribeClusterRequest(include_cluster_authorized_operations=True)
    first = [await guarded.ask(AL, named("orders")), await guarded.ask(AL, described, 1)]
    assert guarded.decided_count == 2
    for _ in range(3):
        assert [await guarded.ask(AL, named("orders")), await guarded.ask(AL, described, 1)] == (
            first
        )
    assert guarded.decided_count == 2
    # A second connection of the same user at the same host has them too.
    del guarded._clients[AL, HOSTS[0]]
    assert await guarded.ask(AL, named("orders")) == first[0]
    assert guarded.decided_count == 2


async def test_the_next_answer_is_by_the_newest_entries_on_an_open_connection(
    guarded: AuthorizingBroker,
) -> None:
    guarded.use([entry()])
    for _ in range(2):
        assert await guarded.codes(AL, "orders") == [0]
    guarded.use([])
    assert await guarded.codes(AL, "orders") == [DENIED]
    guarded.use([entry(pattern=PatternType.PREFIXED, name="ord")])
    for _ in range(2):
        assert await guarded.codes(AL, "orders") == [0]
    guarded.use([entry(), entry(user="*", permission=AclPermission.DENY)])
    assert await guarded.codes(AL, "orders") == [DENIED]


async def test_an_answer_by_older_entries_is_not_kept_for_those_of_the_image(
    guarded: AuthorizingBroker,
) -> None:
    """The image is replaced before the authorizer receives it."""
    guarded.use([entry()])
    guarded.learn([])
    assert await guarded.codes(AL, "orders") == [0]
    guarded.follow()
    assert await guarded.codes(AL, "orders") == [DENIED]


async def test_users_and_hosts_have_answers_of_their_own(guarded: AuthorizingBroker) -> None:
    guarded.use([entry(host="10.0.0.0/16"), entry(BO, "audit")])
    for _ in range(2):
        assert await guarded.codes(AL, "orders") == [0]
        assert await guarded.codes(AL, "orders", host=HOSTS[1]) == [DENIED]
        assert await guarded.codes(AL, "orders", host=HOSTS[2]) == [DENIED]
        assert await guarded.codes(BO, "orders") == [DENIED]
        assert await guarded.codes(BO, "audit") == [0]
        assert await guarded.codes(ROOT, "orders", "audit", host=HOSTS[2]) == [0, 0]


async def test_a_connection_that_logs_in_as_another_user_has_the_answers_of_that_one(
    guarded: AuthorizingBroker,
) -> None:
    guarded.use([entry()])
    assert await guarded.codes(AL, "orders") == [0]
    guarded.client(AL).connection.peer.user = BO
    assert await guarded.codes(AL, "orders") == [DENIED]


async def test_all_topics_are_those_that_each_user_sees(guarded: AuthorizingBroker) -> None:
    guarded.use([entry(), entry(BO, "audit")])
    everything = MetadataRequest(topics=None)
    for _ in range(2):
        for user, names in ((AL, ["orders"]), (BO, ["audit"]), (ROOT, ["audit", "orders"])):
            answer = await guarded.ask(user, everything)
            assert sorted(topic.name for topic in answer.topics) == names
    assert guarded.decided_count == 3


async def test_operations_in_kept_answers_are_those_of_the_user(guarded: AuthorizingBroker) -> None:
    guarded.use([entry(operation=OP.READ), entry(BO, operation=OP.ALL)])
    asked = named("orders", include_topic_authorized_operations=True)
    operations: dict[str, set[int]] = {}
    for _ in range(2):
        for user in (AL, BO, ROOT):
            (topic,) = (await guarded.ask(user, asked)).topics
            operations.setdefault(user, set()).add(topic.topic_authorized_operations)
        (topic,) = (await guarded.ask(AL, named("orders"))).topics
        assert topic.topic_authorized_operations == UNSET
    assert operations[AL] == {1 << OP.READ | 1 << OP.DESCRIBE}
    assert operations[BO] == operations[ROOT] != operations[AL]


async def test_what_is_denied_by_name_is_decided_and_logged_each_time(
    guarded: AuthorizingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[Any] = []
    audit = guarded.authorizer._audit
    monkeypatch.setattr(audit, "denied", lambda question, *_: logged.append(question[4]))
    guarded.use([entry()])
    for count in (1, 2, 3):
        assert await guarded.codes(AL, "orders", "audit") == [0, DENIED]
        assert guarded.decided_count == count
    assert logged == ["audit"] * 3


async def test_every_request_is_decided_where_what_is_allowed_is_logged(
    guarded: AuthorizingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.use([entry()])
    caplog.set_level("INFO", "ottla.authorizer")
    assert await guarded.codes(AL, "orders") == [0]
    caplog.set_level("DEBUG", "ottla.authorizer")
    guarded.authorization.decide_again()
    for count in (2, 3):
        assert await guarded.codes(AL, "orders") == [0]
        assert guarded.decided_count == count


NAMES = ("orders", "audit", "ord", "none")
REQUESTS: list[tuple[Message, int]] = [
    (MetadataRequest(topics=None), 12),
    (MetadataRequest(topics=None, include_topic_authorized_operations=True), 13),
    (MetadataRequest(topics=None, include_cluster_authorized_operations=True), 9),
    (MetadataRequest(topics=[]), 0),
    (named("orders"), 9),
    (named("orders", include_topic_authorized_operations=True), 12),
    (named("orders", "audit", "none"), 12),
    (named("audit", "orders", "orders"), 4),
    (MetadataRequest(topics=[MetadataRequestTopic(name="none")]), 12),
    (MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=ORDERS_ID)]), 12),
    (MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=UUID(int=5))]), 12),
    (DescribeClusterRequest(), 0),
    (DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    (DescribeClusterRequest(endpoint_type=2), 2),
]

entries = st.lists(
    st.builds(
        entry,
        st.sampled_from([AL, BO, "*"]),
        st.sampled_from([*NAMES, "*", "kafka-cluster"]),
        st.sampled_from([OP.ALL, OP.DESCRIBE, OP.READ, OP.CREATE, OP.ALTER]),
        resource=st.sampled_from([TOPIC, TOPIC, CLUSTER]),
        host=st.sampled_from(["*", "*", *HOSTS, "10.0.0.0/16", "2001:db8::/32"]),
        pattern=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        permission=st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY]),
    ),
    max_size=6,
)
asks = st.tuples(
    st.sampled_from([AL, BO, ROOT, "ANONYMOUS"]), st.sampled_from(HOSTS), st.sampled_from(REQUESTS)
)
rounds = st.tuples(entries, st.lists(asks, max_size=2), st.lists(asks, min_size=1, max_size=25))


def copied(message: Message) -> Message:
    """Return a message of its own; `copy` leaves a compiled class without its fields."""
    names: Sequence[str] = message.__slots__
    return type(message)(**{name: getattr(message, name) for name in names})


# The fixture is a class: each example makes brokers of its own.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(allows_without_entry=st.booleans(), history=st.lists(rounds, min_size=1, max_size=4))
def test_every_answer_is_the_one_that_is_made_afresh(
    new_client: NewClient, allows_without_entry: bool, history: list[Any]
) -> None:
    keeping, fresh = (
        AuthorizingBroker(new_client(), allows_without_entry=allows_without_entry) for _ in range(2)
    )

    def answer(guarded: AuthorizingBroker, user: str, host: str, asked: tuple[Message, int]) -> Any:
        return run_now(guarded.ask(user, copied(asked[0]), asked[1], host=host))

    def ask(user: str, host: str, asked: tuple[Message, int]) -> None:
        metadata = fresh.first.metadata
        metadata.image = replace(metadata.image)
        expected = answer(fresh, user, host, asked)
        assert answer(keeping, user, host, asked) == expected

    for acls, between, after in history:
        for guarded in (keeping, fresh):
            guarded.learn(acls)
        for each in between:
            ask(*each)
        for guarded in (keeping, fresh):
            guarded.follow()
        for each in (*after, *after):
            ask(*each)

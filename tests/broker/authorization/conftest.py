"""A broker whose second listener authenticates clients, with an authorizer over its image."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.broker_driver import Broker
from ottla.client import open_admin
from ottla.client.network.connection import BrokerConnection, open_connection, open_stream
from ottla.model.ids import NodeId
from ottla.model.security.acls import AclEntry
from ottla.model.settings.security.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.settings.security.sasl import SaslLogin
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster
from ottla.wire.apis import response_class
from ottla.wire.codec_types import Message
from ottla.wire.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.find_coordinator_response import FindCoordinatorResponse
from tests.jepsen.oracles.acl_cases import GROUP, TOPIC, TXN, creation_of

USERS, PASSWORD = "USERS", "secret"
ENTRIES_AT_ONCE = 500


class SecuredBroker:
    """The broker and its users; the ACLs of each are those that the test set last."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        self.broker: Broker = cluster.brokers[NodeId(1)]
        self.address = self.broker.addresses[USERS]
        self.topic_id = UUID(int=0)

    async def use(self, entries: Iterable[AclEntry]) -> None:
        """Have these entries decide from now on, and no others."""
        everything = DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        await self.ask(None, DeleteAclsRequest(filters=[everything]), 3)
        left = list(entries)
        while left:
            made = await self.ask(None, creation_of(left[:ENTRIES_AT_ONCE]), 3)
            assert {one.error_code for one in made.results} == {0}
            del left[:ENTRIES_AT_ONCE]

    async def prepare(self) -> None:
        """Make the topic of the cases and the coordinators' topics."""
        async with open_admin(self.cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=1, replication_factor=1)
        for key_type, key in ((0, GROUP), (1, TXN)):
            asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            answer: Any = await self.ask(None, asked, 4)
            assert isinstance(answer, FindCoordinatorResponse)
        self.topic_id = self.broker.metadata.image.topic_ids[TOPIC]

    async def ask(self, user: str | None, request: Message, version: int) -> Any:
        """Ask as a user, or without login on the broker's other listener."""
        if user is None:
            host, port = self.broker.addresses["PLAINTEXT"]
            async with open_connection(host, port) as connection:
                return await connection.request(request, response_class(request.API_KEY), version)
        login = SaslLogin(mechanism="PLAIN", username=user, password=PASSWORD)
        host, port = self.address
        of_user = await open_stream(
            BrokerConnection, host, port, client_id="test", timeout_s=10, login=login
        )
        try:
            return await of_user.request(request, response_class(request.API_KEY), version)
        finally:
            await of_user.aclose()


@asynccontextmanager
async def _secured(
    users: Iterable[str], supers: Iterable[str] = ()
) -> AsyncIterator[SecuredBroker]:
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,{USERS}://{HOST}:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f"{PLAIN_MODULE} required {passwords};",
        "ottla.admin.requests": "none",
    }
    of_all = {
        AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
        SUPER_USERS: ";".join(["User:ANONYMOUS", *(f"User:{user}" for user in supers)]),
    }
    async with open_in_process_cluster(settings=of_all, broker_settings=settings) as cluster:
        secured = SecuredBroker(cluster)
        await secured.prepare()
        yield secured


@pytest.fixture
def open_secured() -> Callable[..., AbstractAsyncContextManager[SecuredBroker]]:
    """Return a function that opens a broker with given users, some of them super users.

    All users have the same password. An unauthenticated connection is a super user too: it is the
    broker's own.
    """
    return _secured

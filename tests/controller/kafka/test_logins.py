"""Clients that log in at a controller, and nodes that show certificates at the same port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_connection
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.errors import ConfigError, ErrorCode, OttlaError
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.settings.security.sasl import PLAIN, SaslLogin
from ottla.model.settings.security.tls import TlsConfig
from ottla.node.local.local_nodes_driver import free_port
from ottla.rpc.cluster_id import cluster_id_of_quorum
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_acls_response import CreateAclsResponse
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import DescribeAclsResponse
from tests.controller.kafka.test_kafka_service import ID, admin_of

PROTOCOLS = "listener.security.protocol.map"
ROOT, ALICE = SaslLogin(PLAIN, "root", "secret"), SaslLogin(PLAIN, "alice", "hidden")
EVERY_ACL = DescribeAclsRequest(
    resource_type_filter=1,
    resource_name_filter=None,
    pattern_type_filter=1,
    principal_filter=None,
    host_filter=None,
    operation=1,
    permission_type=1,
)


class Authority:
    """A CA, and the files of a controller and of its clients."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.trusted = folder / "trusted.pem"
        self.trusted.write_bytes(self._ca.cert_pem.bytes())

    def issue(self, name: str) -> Path:
        issued = self._ca.issue_cert("127.0.0.1", common_name=name)
        path = self._folder / f"{name}.pem"
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        path.write_bytes(issued.private_key_pem.bytes() + chain)
        path.chmod(0o600)
        return path

    def settings(self, port: int, protocol: str) -> dict[str, str]:
        return {
            "node.id": str(ID),
            "controller.quorum.voters": f"{ID}@127.0.0.1:{port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.listener.names": "CONTROLLER",
            PROTOCOLS: f"CONTROLLER:{protocol}",
            "metadata.log.dir": str(self._folder / "metadata"),
            "ssl.keystore.location": str(self.issue("controller")),
            "ssl.truststore.location": str(self.trusted),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def with_logins(authority: Authority) -> ControllerConfig:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config, _ = load_controller_config(
        {
            **authority.settings(free_port(), "SASL_SSL"),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": f'{module} user_root="secret" '
            'user_alice="hidden";',
            "super.users": "User:root",
        }
    )
    return config


@asynccontextmanager
async def client_of(
    config: ControllerConfig, tls: TlsConfig, login: SaslLogin | None
) -> AsyncIterator[BrokerConnection]:
    listener = config.listeners[0]
    TLS.set(TlsDialer(tls))
    LOGIN.set(login)
    try:
        async with open_connection(listener.host, listener.port) as connection:
            yield connection
    finally:
        TLS.set(None)
        LOGIN.set(None)


async def test_a_login_decides_what_a_client_may_do(authority: Authority) -> None:
    config = with_logins(authority)
    trust = TlsConfig(trust_location=str(authority.trusted))
    async with admin_of(config):
        async with client_of(config, trust, ROOT) as root:
            creation = AclCreation(
                resource_type=2,
                resource_name="orders",
                resource_pattern_type=3,
                principal="User:alice",
                host="*",
                operation=3,
                permission_type=3,
            )
            created = await root.request(
                CreateAclsRequest(creations=[creation]), CreateAclsResponse, 3
            )
            assert [one.error_code for one in created.results] == [0]
            found = await root.request(EVERY_ACL, DescribeAclsResponse, 3)
            assert [one.resource_name for one in found.resources] == ["orders"]
        async with client_of(config, trust, ALICE) as alice:
            refused = await alice.request(EVERY_ACL, DescribeAclsResponse, 3)
            assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(OttlaError):
            async with client_of(config, trust, SaslLogin(PLAIN, "root", "wrong")):
                pass
        with pytest.raises(ConnectionLostError):
            async with client_of(config, trust, None) as anonymous:
                await anonymous.request(EVERY_ACL, DescribeAclsResponse, 3)


async def test_nodes_show_certificates_where_clients_log_in(authority: Authority) -> None:
    config = with_logins(authority)
    listener = config.listeners[0]
    voters = [ConfiguredVoter(ID, listener.host, listener.port)]
    async with admin_of(config):
        # The certificate is accepted; the node that it names is no super user here.
        async with open_rpc_runtime(config.dial_tls) as rpc:
            with pytest.raises(ConfigError, match=r"CN=controller.* has no ClusterAction"):
                await cluster_id_of_quorum(rpc, voters, timeout_ms=3_000)
        async with open_rpc_runtime() as rpc:
            with pytest.raises(ConfigError, match="no controller answers"):
                await cluster_id_of_quorum(rpc, voters, timeout_ms=1_000)


async def test_a_certificate_is_the_user_of_a_client(authority: Authority) -> None:
    texts = authority.settings(free_port(), "SSL")
    config, _ = load_controller_config({**texts, "super.users": "User:CN=admin,OU=*"})
    own = TlsConfig(
        trust_location=str(authority.trusted), certificate_location=str(authority.issue("admin"))
    )
    async with admin_of(config), client_of(config, own, None) as admin:
        refused = await admin.request(EVERY_ACL, DescribeAclsResponse, 3)
        assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_logins_without_tls_are_refused(authority: Authority) -> None:
    texts = {**authority.settings(9093, "SASL_PLAINTEXT"), "sasl.enabled.mechanisms": "PLAIN"}
    with pytest.raises(ConfigError, match="only PLAINTEXT, SSL and SASL_SSL"):
        load_controller_config(texts)


def test_a_login_at_brokers_is_refused(authority: Authority) -> None:
    texts = {
        **authority.settings(9093, "SASL_SSL"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    }
    with pytest.raises(ConfigError, match="a controller logs in at no broker"):
        load_controller_config(texts)

"""Certificates of listeners that are changed by a request, while clients are connected."""

import ssl
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ottla.client import ClientSecurity, ConfigResource, open_admin
from ottla.client.admin import Admin
from ottla.client.network.connection import open_connection
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.model.tls.certificate import certificates_in
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster
from ottla.wire.messages.alter_configs_request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

pytestmark = pytest.mark.timeout(180)

LOCATION = "listener.name.out.ssl.keystore.location"
CHAIN = "listener.name.in.ssl.keystore.certificate.chain"
KEY = "listener.name.in.ssl.keystore.key"
FIRST = ConfigResource(ConfigKind.BROKER, "1")


@dataclass(frozen=True)
class CertificateCluster:
    """A cluster whose first broker shows certificates on the listeners OUT and IN."""

    cluster: InProcessCluster
    admin: Admin
    ca: str
    file: Path

    def address(self, listener: str) -> tuple[str, int]:
        """Return where the first broker listens."""
        return self.cluster.brokers[NodeId(1)].addresses[listener]

    async def shown(self, listener: str = "OUT") -> bytes:
        """Return the certificate that a new connection is shown (DER)."""
        pem = await trio.to_thread.run_sync(ssl.get_server_certificate, self.address(listener))
        return certificates_in(pem)[0]

    async def alter(self, changes: dict[str, str | None], **options: Any) -> None:
        """Change settings of the first broker."""
        await self.admin.alter_configs(FIRST, changes, **options)


def der_of(file: Path) -> bytes:
    return certificates_in(file.read_text())[0]


def parts_of(file: Path) -> tuple[str, str]:
    """Return key and certificates of a file."""
    text = file.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    return text[:at], text[at:]


@pytest.fixture
async def served(authority: "CertificateAuthority") -> AsyncIterator[CertificateCluster]:
    """Two brokers; only the tests' own requests go without TLS."""
    file = authority.issue(common_name="broker")
    key, chain = parts_of(file)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,OUT://{HOST}:0,IN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SSL,IN:SSL",
        "inter.broker.listener.name": "OUT",
        "listener.name.out.ssl.keystore.location": str(file),
        "ssl.truststore.location": str(authority.file),
        KEY: key.replace("\n", "\\n"),
        CHAIN: chain.replace("\n", "\\n"),
    }
    async with (
        open_in_process_cluster(broker_count=2, broker_settings=settings) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        yield CertificateCluster(cluster, admin, str(authority.file), file)


async def test_new_connections_get_the_new_certificate_and_no_old_one_ends(
    served: CertificateCluster, authority: "CertificateAuthority"
) -> None:
    renewed = authority.issue(common_name="broker")
    host, port = served.address("OUT")
    security = ClientSecurity(security_protocol="SSL", ssl_truststore_location=served.ca)
    async with open_admin(f"{host}:{port}", security=security) as early:
        await early.create_topic("t", partition_count=1)
        links = served.cluster.brokers[NodeId(1)].server.metrics["network.connections"]
        assert await served.shown() == der_of(served.file)
        await served.alter({LOCATION: str(renewed)})
        # In use when the answer is here, on this listener alone.
        assert await served.shown() == der_of(renewed)
        assert await served.shown("IN") == der_of(served.file)
        await early.describe_topic("t")
        now = served.cluster.brokers[NodeId(1)].server.metrics["network.connections"]
        assert now >= links
        # Other brokers reach this one by the new one.
        await early.create_topic("u", partition_count=2, replication_factor=2)


async def test_what_was_set_holds_after_a_restart_and_goes_with_the_setting(
    served: CertificateCluster, authority: "CertificateAuthority"
) -> None:
    renewed = authority.issue(common_name="broker")
    await served.alter({LOCATION: str(renewed)})
    await served.cluster.stop(1)
    await served.cluster.start(1)
    assert await served.shown() == der_of(renewed)
    async with open_admin(served.cluster.bootstrap) as admin:
        entry = (await admin.describe_configs(FIRST, has_synonyms=True))[LOCATION]
        assert (entry.value, entry.source) == (str(renewed), ConfigSource.BROKER)
        assert not entry.is_read_only
        assert [one.value for one in entry.synonyms[:2]] == [str(renewed), str(served.file)]
        await admin.alter_configs(FIRST, {LOCATION: None})
        assert await served.shown() == der_of(served.file)
        found = await admin.describe_configs(FIRST)
    assert (found[LOCATION].value, found[LOCATION].source) == (
        str(served.file),
        ConfigSource.STATIC,
    )


async def test_a_configured_key_is_never_described(
    served: CertificateCluster, authority: "CertificateAuthority"
) -> None:
    renewed = authority.issue(common_name="broker")
    key, chain = parts_of(renewed)
    await served.alter({KEY: key, CHAIN: chain})
    assert await served.shown("IN") == der_of(renewed)
    found = await served.admin.describe_configs(FIRST, has_synonyms=True)
    for name in (KEY, CHAIN):
        assert found[name].is_sensitive and found[name].source == ConfigSource.BROKER
        assert found[name].value is None
        assert {one.value for one in found[name].synonyms} == {None}
    assert not any("PRIVATE" in str(entry) for entry in found.values())


async def refusal_of(
    served: CertificateCluster, changes: dict[str, str | None], **options: Any
) -> str:
    with pytest.raises(RefusedError) as caught:
        await served.alter(changes, **options)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert await served.shown() == der_of(served.file)
    assert await served.shown("IN") == der_of(served.file)
    image = served.cluster.brokers[NodeId(1)].member.image
    assert not image.config(ConfigKind.BROKER, "1")
    return str(caught.value)


async def test_what_cannot_be_served_is_refused_and_leaves_no_record(
    served: CertificateCluster,
    authority: "CertificateAuthority",
    new_authority: Callable[[str], "CertificateAuthority"],
    tmp_path: Path,
) -> None:
    said = await refusal_of(served, {LOCATION: str(tmp_path / "none.pem")})
    assert "cannot be read: No such file" in said
    good = authority.issue(common_name="broker")
    _, chain = parts_of(good)
    other_key, _ = parts_of(authority.issue(common_name="broker"))
    assert "not its certificate's" in await refusal_of(served, {KEY: other_key, CHAIN: chain})
    said = await refusal_of(served, {LOCATION: str(authority.issue(common_name="another"))})
    assert "ssl.allow.dn.changes=true" in said
    fewer = authority.issue("localhost", common_name="broker")
    assert "without IP:127.0.0.1" in await refusal_of(served, {LOCATION: str(fewer)})
    foreign = new_authority("stranger").issue(common_name="broker")
    said = await refusal_of(served, {LOCATION: str(foreign)})
    assert "must have its CA" in said or "allow.dn" in said
    good.chmod(good.stat().st_mode | stat.S_IROTH)
    assert "every user of this machine" in await refusal_of(served, {LOCATION: str(good)})
    good.chmod(0o600)
    # A dry run.
    await served.alter({LOCATION: str(good)}, is_rehearsal=True)
    assert await served.shown() == der_of(served.file)


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("listener.name.out.ssl.client.auth", "required", "dynamically"),
        ("listener.name.out.ssl.keystore.type", "JKS", "only PEM is read"),
        ("listener.name.out.ssl.keystore.password", "x", "no password of its own"),
        ("listener.name.plaintext.ssl.keystore.location", "/x", "with TLS are out, in"),
        ("listener.name.OUT.ssl.keystore.location", "/x", "lower case"),
        ("ssl.keystore.location", "/x", "only per-listener using the listener prefix"),
    ],
)
async def test_what_is_no_certificate_of_a_listener_is_refused(
    served: CertificateCluster, key: str, text: str, words: str
) -> None:
    assert words in await refusal_of(served, {key: text})


async def test_only_the_broker_itself_takes_its_certificates(served: CertificateCluster) -> None:
    for name, words in (("2", "expected 1 but received 2"), ("", "broker id must be specified")):
        request = AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=ConfigKind.BROKER,
                    resource_name=name,
                    configs=[AlterableConfig(name=LOCATION, value=str(served.file))],
                )
            ]
        )
        (response,) = (await ask(served, request)).responses
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert words in response.error_message


async def test_the_old_request_takes_back_what_it_does_not_name(
    served: CertificateCluster, authority: "CertificateAuthority"
) -> None:
    renewed = authority.issue(common_name="broker")
    await served.alter({LOCATION: str(renewed)})
    resource = AlterConfigsResource(
        resource_type=ConfigKind.BROKER,
        resource_name="1",
        configs=[AlterableConfig(name="max.connections", value="500")],
    )
    (response,) = (await ask(served, AlterConfigsRequest(resources=[resource]))).responses
    assert (response.error_code, response.error_message) == (0, None)
    assert await served.shown() == der_of(served.file)


async def ask(served: CertificateCluster, request: AlterConfigsRequest) -> Any:
    """Send a request to the first broker."""
    async with open_connection(*served.address("PLAINTEXT")) as connection:
        return await connection.request(request, AlterConfigsResponse)

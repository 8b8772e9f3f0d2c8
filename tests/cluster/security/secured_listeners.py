"""A broker that authenticates clients in every way over TLS, and a client that observes it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.model.settings.security.authorizer import (
    AUTHORIZER_CLASS,
    STANDARD_AUTHORIZER,
    SUPER_USERS,
)
from ottla.model.settings.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from ottla.model.settings.security.oauth import VALIDATOR
from ottla.node.local.local_nodes_driver import free_ports
from tests.broker.authentication.conftest import AUDIENCE, ISSUER, Issuer
from tests.cluster.conftest import Processes, make_processes

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

HOST = "127.0.0.1"
LOGIN, OUT, CERT, OLD, NAMED = "LOGIN", "OUT", "CERT", "OLD", "NAMED"
"""Listeners: with logins, without authentication, with client certificates; one with an expired
certificate, one whose certificate names another host."""
PASSWORDS = {"PLAIN": "plain", "SCRAM-SHA-256": "small", "SCRAM-SHA-512": "large"}
WAYS = ("SSL", "mTLS", *PASSWORDS, "OAUTHBEARER")
TOPIC = "t"
TIMEOUT_S = 60
TOKEN_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
OF_BOTH_ROLES: dict[str, Any] = {
    AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
    SUPER_USERS: "User:broker;User:admin",
    "delegation.token.secret.key": "a secret of the cluster",
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """Identities of clients: the listener, and the credentials shown there."""

    listener: str
    mechanism: str | None = None
    password: str = ""
    """The token, with OAUTHBEARER."""
    ca: str
    certificate: str | None = None
    bootstrap: str
    user: str = "al"

    @property
    def protocol(self) -> str:
        """The security.protocol."""
        return "SSL" if self.mechanism is None else "SASL_SSL"


class SecuredCluster:
    """The cluster, and all that its clients may show."""

    def __init__(self, processes: Processes, ports: dict[str, int], directory: Path) -> None:
        self.processes = processes
        self.ports = ports
        self.directory = directory
        self.ways: dict[str, Way] = {}
        self.foreign_ca = ""

    def bootstrap(self, listener: str) -> str:
        """Return where a listener is reached."""
        return f"{HOST}:{self.ports[listener]}"

    @property
    def admin(self) -> AdminClient:
        """A client that is a super user."""
        return AdminClient(librdkafka(replace(self.ways["PLAIN"], user="admin")))

    def wrong_ways(self) -> dict[str, Way]:
        """Return the ways of connecting that must fail, by their error."""
        plain, scram = self.ways["SSL"], self.ways["SCRAM-SHA-512"]
        return {
            "wrong CA": replace(plain, ca=self.foreign_ca),
            "expired certificate": replace(plain, bootstrap=self.bootstrap(OLD)),
            "wrong name": replace(plain, bootstrap=self.bootstrap(NAMED)),
            "wrong password": replace(scram, password="wrong"),
            "wrong password of PLAIN": replace(self.ways["PLAIN"], password="wrong"),
            "bad token": replace(
                self.ways["OAUTHBEARER"], password=self.ways["OAUTHBEARER"].password[:-8] + "A" * 8
            ),
            "no certificate": replace(self.ways["mTLS"], certificate=None),
        }


def settings_of(ports: dict[str, int], files: dict[str, Path], jwks: Path) -> dict[str, str]:
    plain = " ".join(f'user_{user}="plain"' for user in ("broker", "admin", "al"))
    login = f"{PLAIN_MODULE} required username=broker password=plain {plain};"
    return {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(
            f"{name}:{'SASL_SSL' if name == LOGIN else 'SSL'}" for name in ports
        ),
        "inter.broker.listener.name": LOGIN,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.login.plain.sasl.jaas.config": login,
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
        TOKEN_URLS: f"file://{jwks}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "ssl.keystore.location": str(files["good"]),
        "ssl.truststore.location": str(files["ca"]),
        "listener.name.old.ssl.keystore.location": str(files["expired"]),
        "listener.name.named.ssl.keystore.location": str(files["elsewhere"]),
        "listener.name.cert.ssl.client.auth": "required",
        "listener.name.cert.ssl.principal.mapping.rules": "RULE:^CN=([^,]*),OU=staff.*$/$1/L",
    }


@contextmanager
def open_secured(
    directory: Path,
    authority: "CertificateAuthority",
    new_authority: Callable[[str], "CertificateAuthority"],
) -> Iterator[SecuredCluster]:
    """A controller and a broker with ACLs that listen in all ways."""
    issuer, jwks, day = Issuer(), directory / "jwks.json", timedelta(days=1)
    jwks.write_bytes(issuer.jwks("RS256"))
    files = {
        "ca": authority.file,
        "good": authority.issue(common_name="broker"),
        "expired": authority.issue(starts_in=-3 * day, ends_in=-day),
        "elsewhere": authority.issue("other.example"),
    }
    names = (LOGIN, OUT, CERT, OLD, NAMED)
    ports = dict(zip(names, free_ports(len(names), HOST), strict=True))
    processes = make_processes(directory / "cluster", controllers=1, brokers=1, **OF_BOTH_ROLES)
    found = SecuredCluster(processes, ports, directory)
    found.foreign_ca = str(new_authority("foreign").file)
    way = Way(listener=LOGIN, ca=str(authority.file), bootstrap=found.bootstrap(LOGIN))
    for mechanism, password in {**PASSWORDS, "OAUTHBEARER": issuer.token()}.items():
        found.ways[mechanism] = replace(way, mechanism=mechanism, password=password)
    found.ways["SSL"] = replace(way, listener=OUT, bootstrap=found.bootstrap(OUT))
    found.ways["mTLS"] = replace(
        way,
        listener=CERT,
        bootstrap=found.bootstrap(CERT),
        certificate=str(authority.issue("client", common_name="Al", unit="staff")),
    )
    try:
        processes.start("controller")
        processes.start("broker", **settings_of(ports, files, jwks))
        prepare(found.admin)
        yield found
    finally:
        processes.stop_all()


def prepare(admin: AdminClient) -> None:
    """Create the topic, the passwords of al, and the ACLs of clients."""
    admin.create_topics([NewTopic(TOPIC, 1, replication_factor=1)])[TOPIC].result(TIMEOUT_S)
    for mechanism, password in (
        (ScramMechanism.SCRAM_SHA_256, "small"),
        (ScramMechanism.SCRAM_SHA_512, "large"),
    ):
        info = ScramCredentialInfo(mechanism, 4_096)
        change = UserScramCredentialUpsertion("al", info, password.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(TIMEOUT_S)
    entries = [
        binding(user, kind, name)
        for user in ("al", "ANONYMOUS")
        for kind, name in ((ResourceType.TOPIC, TOPIC), (ResourceType.GROUP, "g"))
    ]
    for made in admin.create_acls(entries).values():
        made.result(TIMEOUT_S)


def binding(user: str, kind: ResourceType, name: str) -> AclBinding:
    pattern, may = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation.ALL, may)


def librdkafka(way: Way) -> dict[str, Any]:
    """Return the settings of librdkafka."""
    found: dict[str, Any] = {
        "bootstrap.servers": way.bootstrap,
        "security.protocol": way.protocol,
        "ssl.ca.location": way.ca,
        "log_level": 0,
    }
    if way.certificate is not None:
        found |= {"ssl.certificate.location": way.certificate, "ssl.key.location": way.certificate}
    if way.mechanism is not None:
        found["sasl.mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        found["oauth_cb"] = lambda config: (way.password, time.time() + 3_600)
    elif way.mechanism is not None:
        found |= {"sasl.username": way.user, "sasl.password": way.password}
    return found


@contextmanager
def witness(secured: SecuredCluster) -> Iterator[None]:
    """Send all the time as another client of the listeners meanwhile; no send may fail."""
    failed: list[Any] = []
    producers = [
        confluent_kafka.Producer({**librdkafka(secured.ways[name]), "retries": 0})
        for name in ("SSL", "SCRAM-SHA-512")
    ]
    is_over = threading.Event()

    def note(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    def send() -> None:
        while not is_over.wait(0.02):
            for producer in producers:
                producer.produce(TOPIC, b"witness", on_delivery=note)
                producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        assert [producer.flush(TIMEOUT_S) for producer in producers] == [0, 0]
        assert failed == []

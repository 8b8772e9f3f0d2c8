"""`OTTLA_CLUSTERS=secure`: the tests of clusters, each of them on a secure one.

Every cluster of `conftest.py` then has certificates between its nodes, logins by SCRAM over TLS and
ACLs, and brokers that are no super users: each has one entry, for ClusterAction.  All clusters of a
session share one authority and its users, so that clients need no setting from the tests: a client
without a `security.protocol` of its own is the user admin.  Tests that cannot apply are skipped
with the reason, `NOT_SECURED`.
"""

import atexit
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextvars import copy_context
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest
import trio
from aiokafka.helpers import create_ssl_context

from ottla.client.network.login import LOGIN, log_in
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.settings.security.client_security import access_of
from ottla.node.local.certificate_authority_driver import CA_FILE
from ottla.node.local.secure_cluster_driver import ADMIN, open_secure_cluster
from ottla.wire.codec import decode, encode
from ottla.wire.headers import decode_response_header, encode_request_header

IS_SECURE = os.environ.get("OTTLA_CLUSTERS") == "secure"

OWN_SECURITY = "it sets up TLS, logins or ACLs itself"
BENCH_IS_PLAIN = "what `ottla bench` measures of groups is over plain sockets"
TIER_NEEDS_ACLS = "brokers that are no super users may not write __remote_log_metadata"
NOT_SECURED = {
    "test_acls": OWN_SECURITY,
    "test_acl_codes": OWN_SECURITY,
    "test_kafka_acls_tool": OWN_SECURITY,
    "test_kafkas_clients_over_tls": OWN_SECURITY,
    "test_node_tls": OWN_SECURITY,
    "test_secure_cluster": OWN_SECURITY,
    "test_security_matrix": OWN_SECURITY,
    "test_security_migration": OWN_SECURITY,
    "test_users": OWN_SECURITY,
    "test_tiered_topic": TIER_NEEDS_ACLS,
    "test_group_bench": BENCH_IS_PLAIN,
    "test_offsets_growth": BENCH_IS_PLAIN,
}
"""Modules and tests that are skipped in this form, and why."""

PROTOCOL = "SASL_SSL" if IS_SECURE else "PLAINTEXT"
"""Security protocol of brokers' listeners, and their name."""

DIRECTORY = "OTTLA_CLUSTERS_SECURITY"
"""Path of the session's authority and users, for a program that a test starts."""
AUTHENTICATE_VERSION = 2
SOCKET_TIMEOUT_S = 60
RUNS_LOGGED_IN = Path(__file__).with_name("logged_in.py")


class SharedSecurity:
    """The authority and the users of all clusters of a session, and of programs it starts."""

    def __init__(self) -> None:
        made_by_parent = os.environ.get(DIRECTORY)
        self.directory = Path(made_by_parent or tempfile.mkdtemp(prefix="ottla-secure-"))
        self._secure = open_secure_cluster(self.directory)
        self.client: Mapping[str, str] = self._secure.client(ADMIN)
        """Login settings of clients, by librdkafka's keys."""
        if made_by_parent is None:
            atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
            self._secure.issue([], [])
            self._write_settings()

    @property
    def java_settings(self) -> Path:
        """Properties file with the login settings of Java's clients, without bootstrap.servers."""
        return self._secure.java_client_file

    def give_to(self, directory: Path) -> None:
        """Have the next planned cluster use this authority and these users, not its own."""
        shutil.copytree(self.directory / "security", directory / "security")

    def _write_settings(self) -> None:
        """Write the settings of commands, as a profile, and of Java's clients."""
        folder = self.directory / "config" / "ottla"
        folder.mkdir(parents=True)
        lines = [f"{json.dumps(key)} = {json.dumps(text)}\n" for key, text in self.client.items()]
        (folder / "config.toml").write_text("[profiles.secure]\n" + "".join(lines))
        (folder / "config.toml").chmod(0o600)
        self._secure.write_client_files("")
        os.environ |= {
            "XDG_CONFIG_HOME": str(folder.parent),
            "OTTLA_PROFILE": "secure",
            DIRECTORY: str(self.directory),
        }

    def use(self) -> None:
        """Have clients of all kinds log in, and threads."""
        access = access_of(self.client)
        assert access.tls is not None
        LOGIN.set(access.login)
        TLS.set(TlsDialer(access.tls))
        have_threads_log_in()
        self._patch_clients()

    def _patch_clients(self) -> None:
        user, password = self.client["sasl.username"], self.client["sasl.password"]
        keywords: dict[str, Any] = {
            "security_protocol": self.client["security.protocol"],
            "sasl_mechanism": self.client["sasl.mechanisms"],
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
        ca = str(self.directory / "security" / CA_FILE)
        for name in ("Producer", "Consumer"):
            # Their own classes are written in C, and take no other methods.
            kind = type(name, (getattr(confluent_kafka, name),), {})
            setattr(confluent_kafka, name, kind)
            log_in_by_settings(kind, self.client)
        log_in_by_settings(confluent_kafka.admin.AdminClient, self.client)
        for one in (kafka.KafkaProducer, kafka.KafkaConsumer, kafka.KafkaAdminClient):
            log_in_by_keywords(one, {**keywords, "ssl_cafile": ca})
        encrypted = {**keywords, "ssl_context": create_ssl_context(cafile=ca)}
        for one in (
            aiokafka.AIOKafkaProducer,
            aiokafka.AIOKafkaConsumer,
            aiokafka.admin.AIOKafkaAdminClient,
        ):
            log_in_by_keywords(one, encrypted)


def have_threads_log_in() -> None:
    """Have a thread log in as the one does that starts it: its context is else an empty one."""
    start = threading.Thread.start

    def start_in_context(self: threading.Thread) -> None:
        context, run = copy_context(), self.run
        vars(self)["run"] = lambda: context.run(run)
        start(self)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]  # its purpose


def log_in_by_settings(kind: Any, more: Mapping[str, str]) -> None:
    """Have instances of a librdkafka class log in, unless they have settings for it."""
    make = kind.__init__

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        config, *others = arguments or ({},)
        known = {} if "security.protocol" in config else more
        make(self, {**known, **config}, *others, **options)

    kind.__init__ = begin


def log_in_by_keywords(kind: Any, more: Mapping[str, Any]) -> None:
    """Have instances of a Python client's class log in, unless they have settings for it."""
    make = kind.__init__

    def begin(self: Any, *arguments: Any, **options: Any) -> None:
        known = {} if "security_protocol" in options else more
        make(self, *arguments, **{**known, **options})

    kind.__init__ = begin


SHARED = SharedSecurity() if IS_SECURE else None
if SHARED is not None:
    # Before any test takes a class of a client.
    SHARED.use()


def command_of(path: Path) -> list[str]:
    """Return the command of a client's program; on secure clusters, of one that logs in."""
    form = [str(RUNS_LOGGED_IN)] if IS_SECURE else []
    return [sys.executable, "-W", "ignore", *form, str(path)]


def java_login() -> list[str]:
    """Return the option that has a program of Java log in, where clusters ask for it."""
    return [] if SHARED is None else [f"-Dlogin={SHARED.java_settings}"]


def open_socket(address: tuple[str, int]) -> socket.socket:
    """Connect; in this form, over TLS and logged in, for requests that are written by hand."""
    plain = socket.create_connection(address, timeout=SOCKET_TIMEOUT_S)
    if SHARED is None:
        return plain
    context = ssl.create_default_context(cafile=SHARED.client["ssl.ca.location"])
    encrypted = context.wrap_socket(plain, server_hostname=address[0])
    login = access_of(SHARED.client).login
    assert login is not None

    async def ask(message: Any, response: type[Any], version: int | None) -> Any:
        version = AUTHENTICATE_VERSION if version is None else version
        request = encode_request_header(message.API_KEY, version, 0, "by-hand")
        request += encode(message, version)
        encrypted.sendall(len(request).to_bytes(4, "big") + request)
        with encrypted.makefile("rb") as stream:
            answer = memoryview(stream.read(int.from_bytes(stream.read(4), "big")))
        _, body_at = decode_response_header(message.API_KEY, version, answer)
        return decode(response, version, answer[body_at:])

    trio.run(log_in, login, ask, f"{address[0]}:{address[1]}")
    return encrypted


def skip_what_cannot_apply(items: list[pytest.Item]) -> None:
    """Skip what has no meaning on clusters that are all secure."""
    for item in items:
        name = item.name.partition("[")[0]
        reason = NOT_SECURED.get(item.path.stem) or NOT_SECURED.get(name)
        if IS_SECURE and reason is not None and "tests/cluster" in str(item.path):
            item.add_marker(pytest.mark.skip(reason=f"OTTLA_CLUSTERS=secure: {reason}"))

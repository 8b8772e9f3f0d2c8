"""Names that strangers chose reach neither a terminal nor a line of a log as they are."""

import json
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

from ottla.cli.main import run
from ottla.client import open_admin, open_consumer, open_producer
from ottla.client.testing import import_cluster
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.visible_text import UNSAFE_BUT_LAYOUT
from ottla.node.log_output_driver import JsonFormatter, TextFormatter
from ottla.testing.in_process import InProcessCluster, open_in_process_cluster
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest

import_cluster()

HOST = "127.0.0.1"
TIMEOUT_S = 30
HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202egnp\u200b\r\x9b31m"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
COMMANDS = [
    ["group", "list"],
    ["group", "describe", HOSTILE],
    ["group", "members", HOSTILE],
    ["group", "lag", HOSTILE],
    ["txn", "list"],
    ["txn", "describe", HOSTILE],
    ["user", "list"],
    ["acl", "list"],
    ["acl", "explain", HOSTILE, "read", "--topic", "t"],
    ["quota", "list"],
    ["topic", "describe", HOSTILE],
    ["topic", "list"],
    ["status"],
]


@asynccontextmanager
async def opened() -> AsyncIterator[InProcessCluster]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "super.users": "User:ANONYMOUS",
    }
    broker_settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,LOGIN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{MODULE} required user_al="x";',
    }
    async with open_in_process_cluster(
        broker_count=1, settings=settings, broker_settings=broker_settings
    ) as cluster:
        yield cluster


async def test_no_command_prints_a_hostile_name_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry = AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name=HOSTILE,
        pattern_type=PatternType.LITERAL,
        principal=f"User:{HOSTILE}",
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    member = ConsumerConfig(group_id=HOSTILE, client_id=HOSTILE, auto_offset_reset="earliest")
    sender = ProducerConfig(transactional_id=HOSTILE, client_id=HOSTILE)
    async with opened() as cluster:
        address = "{}:{}".format(*next(iter(cluster.brokers.values())).addresses["PLAINTEXT"])
        async with open_admin(address) as admin:
            await admin.create_topic("t", partition_count=1)
            await admin.create_acls([entry])
            await admin.set_password(HOSTILE, "SCRAM-SHA-256", "pw")
        async with (
            open_producer(address, sender) as producer,
            open_consumer(address, member) as consumer,
        ):
            async with producer.transaction():
                await producer.send("t", b"value")
            consumer.subscribe(["t"])
            with trio.fail_after(TIMEOUT_S):
                while not await consumer.poll():
                    pass
            shown = 0
            for command in COMMANDS:
                for form in ([], ["--format", "json"]):
                    asked = [*command, "--bootstrap-server", address, *form]
                    await trio.to_thread.run_sync(run_to_its_end, asked)
                    printed = "".join(capsys.readouterr())
                    assert not UNSAFE_BUT_LAYOUT.search(printed), (command, printed)
                    shown += "owned" in printed
            # They are shown, not left out.
            assert shown >= len(COMMANDS)


def run_to_its_end(command: list[str]) -> None:
    """Run a command as the process does, whatever its exit code."""
    with suppress(SystemExit):
        run(command)


def request(message: Any, version: int, client_id: str) -> bytes:
    header = encode_request_header(message.API_KEY, version, 1, client_id)
    data = header + encode(message, version)
    return struct.pack(">i", len(data)) + data


async def test_no_line_of_a_brokers_log_has_a_hostile_name_as_it_is() -> None:
    lines: list[tuple[str, str]] = []

    class LineRecorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(
                (TextFormatter("broker 1").format(record), JsonFormatter("1").format(record))
            )

    handler = LineRecorder()
    logging.getLogger("ottla").addHandler(handler)
    try:
        async with opened() as cluster:
            (broker,) = cluster.brokers.values()
            hello = ApiVersionsRequest(
                client_software_name=HOSTILE, client_software_version=HOSTILE
            )
            for listener in ("PLAINTEXT", "LOGIN"):
                await say(broker.addresses[listener], request(hello, 3, HOSTILE) + b"\xff" * 8)
            await say(broker.addresses["LOGIN"], failed_login())
            logging.getLogger("ottla.broker").warning("refused %s\nINFO forged", HOSTILE)
            with trio.move_on_after(2):
                while not any("uthenticat" in text for text, _ in lines):
                    await trio.sleep(0.02)
    finally:
        logging.getLogger("ottla").removeHandler(handler)
    assert any("owned" in text for text, _ in lines)
    for text, line in lines:
        assert "\n" not in text.partition("Traceback")[0]
        assert not UNSAFE_BUT_LAYOUT.search(text), text
        assert not UNSAFE_BUT_LAYOUT.search(line)
        json.loads(line)


def failed_login() -> bytes:
    """Return a login by PLAIN, in raw tokens, of a user that there is not."""
    from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest

    token = b"\0" + HOSTILE.encode() + b"\0wrong"
    raw = struct.pack(">i", len(token)) + token
    return request(SaslHandshakeRequest(mechanism="PLAIN"), 0, HOSTILE) + raw


async def say(address: tuple[str, int], data: bytes) -> None:
    """Send bytes, and read until the broker hangs up."""
    with trio.move_on_after(3):
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(data)
            while await stream.receive_some(1_000):
                pass

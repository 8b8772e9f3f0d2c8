"""Delegation tokens, and open sessions whose credential is deleted, on a real cluster."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.bench.kafka.kafka_server import java_program
from ottla.cli.users import token
from ottla.client import ConnectionLostError, RefusedError, open_admin
from ottla.client.network.connection import BrokerConnection, open_stream
from ottla.model.errors import ErrorCode
from ottla.model.security.delegation_tokens import token_password
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.model.settings.security.jaas import SCRAM_MODULE
from ottla.model.settings.security.sasl import SaslLogin
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster
from ottla.wire.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from ottla.wire.messages.create_delegation_token_response import CreateDelegationTokenResponse
from ottla.wire.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla.wire.messages.describe_delegation_token_response import DescribeDelegationTokenResponse
from ottla.wire.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token_response import ExpireDelegationTokenResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from ottla.wire.messages.renew_delegation_token_response import RenewDelegationTokenResponse
from tests.cli_verbs import run_verb

USERS = "USERS"
SECRET = "a secret of the cluster"
TIMEOUT_S = 60
MECHANISM = "SCRAM-SHA-256"
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:0,{USERS}://{HOST}:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
}

pytestmark = pytest.mark.timeout(300)


class Users:
    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        (broker,) = cluster.brokers.values()
        self.broker = broker
        self.host, self.port = broker.addresses[USERS]
        self.opened: list[BrokerConnection] = []
        self.bootstrap = f"{self.host}:{self.port}"

    async def connect(
        self, user: str = "al", password: str = "pw", *, is_token: bool = False
    ) -> BrokerConnection:
        login = SaslLogin(MECHANISM, user, password, is_token=is_token)
        return await self.open(self.host, self.port, login)

    async def open(self, host: str, port: int, login: SaslLogin | None) -> BrokerConnection:
        found = await open_stream(
            BrokerConnection, host, port, client_id="test", timeout_s=TIMEOUT_S, login=login
        )
        self.opened.append(found)
        return found


@pytest.fixture
async def users() -> AsyncIterator[Users]:
    async with open_in_process_cluster(
        settings={"delegation.token.secret.key": SECRET}, broker_settings=SETTINGS
    ) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            for user in ("al", "ben"):
                await admin.set_password(user, MECHANISM, "pw")
            await admin.create_topic("t")
        found = Users(cluster)
        with trio.fail_after(TIMEOUT_S):
            while len(found.broker.member.image.scram_credentials.get(1, {})) < 2:
                await trio.sleep(0.02)
        yield found
        for connection in found.opened:
            await connection.aclose()


async def create(connection: BrokerConnection, *renewers: str) -> CreateDelegationTokenResponse:
    rows = [CreatableRenewers(principal_type="User", principal_name=one) for one in renewers]
    request = CreateDelegationTokenRequest(renewers=rows, max_lifetime_ms=-1)
    return await connection.request(request, CreateDelegationTokenResponse)


async def described(connection: BrokerConnection, *owners: str) -> list[str]:
    rows = [
        DescribeDelegationTokenOwner(principal_type="User", principal_name=one) for one in owners
    ]
    request = DescribeDelegationTokenRequest(owners=rows or None)
    answer = await connection.request(request, DescribeDelegationTokenResponse)
    assert answer.error_code == 0
    return [one.token_id for one in answer.tokens]


async def is_served(connection: BrokerConnection) -> bool:
    try:
        await connection.request(MetadataRequest(topics=None), MetadataResponse)
    except ConnectionLostError:
        return False
    return True


async def test_a_token_logs_its_owner_in_until_it_is_ended(users: Users) -> None:
    with trio.fail_after(TIMEOUT_S):
        owner = await users.connect()
        made = await create(owner, "ben")
        assert made.error_code == 0
        password = token_password(SECRET, made.token_id)
        assert await described(owner) == [made.token_id]
        assert await described(owner, "ben") == [made.token_id]
        assert await described(owner, "other") == []
        client = await users.connect(made.token_id, password, is_token=True)
        assert await is_served(client)
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (await create(client)).error_code == refused
        ben = await users.connect("ben")
        renewal = RenewDelegationTokenRequest(hmac=bytes(made.hmac), renew_period_ms=1_000)
        renewed = await ben.request(renewal, RenewDelegationTokenResponse)
        assert renewed.error_code == 0
        ending = ExpireDelegationTokenRequest(hmac=bytes(made.hmac), expiry_time_period_ms=-1)
        ended = await owner.request(ending, ExpireDelegationTokenResponse)
        assert ended.error_code == 0
        while await is_served(client):
            await trio.sleep(0.02)
        with pytest.raises(RefusedError, match="invalid credentials"):
            await users.connect(made.token_id, password, is_token=True)
        assert await is_served(owner)


async def test_a_token_is_no_user_and_a_user_is_no_token(users: Users) -> None:
    with trio.fail_after(TIMEOUT_S):
        made = await create(await users.connect())
        password = token_password(SECRET, made.token_id)
        for user, secret, is_token in (
            (made.token_id, password, False),
            (made.token_id, "pw", True),
            ("al", "pw", True),
            ("nosuch", "pw", True),
        ):
            with pytest.raises(RefusedError) as caught:
                await users.connect(user, secret, is_token=is_token)
            assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_clients_that_have_not_logged_in_get_no_token(users: Users) -> None:
    host, port = users.broker.addresses["PLAINTEXT"]
    with trio.fail_after(TIMEOUT_S):
        connection = await users.open(host, port, None)
        answer = await create(connection)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        request = DescribeDelegationTokenRequest(owners=None)
        shown = await connection.request(request, DescribeDelegationTokenResponse)
        assert shown.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_sessions_of_a_deleted_user_end_and_those_of_a_changed_password_do_not(
    users: Users,
) -> None:
    with trio.fail_after(TIMEOUT_S):
        al, ben = await users.connect(), await users.connect("ben")
        async with open_admin(users.cluster.bootstrap) as admin:
            await admin.set_password("ben", MECHANISM, "other")
            await admin.delete_password("al", MECHANISM)
        while await is_served(al):
            await trio.sleep(0.02)
        assert await is_served(ben)
        assert users.broker.core.authenticators.sessions.ended_count == 1


async def ottla_token(bootstrap: str, *words: str) -> int:
    security = ClientSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISM,
        sasl_username="al",
        sasl_password="pw",
    )
    async with open_admin(bootstrap, security=security) as admin:
        return await run_verb(token, admin, *words)


async def test_the_command_makes_lists_renews_and_ends_tokens(users: Users, capsys: Any) -> None:
    with trio.fail_after(TIMEOUT_S):
        assert await ottla_token(users.bootstrap, "create", "--renewer", "ben", "--for", "2d") == 0
        (made,) = users.broker.member.image.delegation_tokens.values()
        assert token_password(SECRET, made.id) in capsys.readouterr().out
        assert made.max_ms - made.issued_ms == 2 * 86_400_000
        assert await ottla_token(users.bootstrap, "list") == 0
        listed = capsys.readouterr().out.splitlines()[-1].split()
        assert listed[:3] == [made.id, "al", "ben"]
        assert token_password(SECRET, made.id) not in listed
        assert await ottla_token(users.bootstrap, "list", "--owner", "cy") == 0
        assert made.id not in capsys.readouterr().out
        assert await ottla_token(users.bootstrap, "renew", made.id, "--for", "1h") == 0
        assert "holds until" in capsys.readouterr().out
        assert await ottla_token(users.bootstrap, "end", made.id, "--yes") == 0
        assert len(users.broker.member.image.delegation_tokens) == 0
        with pytest.raises(RefusedError, match="no token that you may see"):
            await ottla_token(users.bootstrap, "end", made.id, "--yes")


@pytest.fixture(scope="module")
def jars() -> Path:
    found = os.environ.get("OTTLA_KAFKA_JARS")
    if not found:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own tools were NOT run here")
    return Path(found)


async def run_java(jars: Path, tool: str, *words: str) -> str:
    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [
                java_program(os.environ),
                "-cp",
                f"{jars}/*",
                f"org.apache.kafka.tools.{tool}",
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_S,
            check=False,
        )

    done = await trio.to_thread.run_sync(run)
    return done.stdout + done.stderr


def config_of(path: Path, user: str, password: str, more: str = "") -> Path:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}"{more};\n'
    )
    return path


async def test_kafkas_own_tool_and_client_use_tokens(
    users: Users, jars: Path, tmp_path: Path
) -> None:
    own = config_of(tmp_path / "own.properties", "al", "pw")
    common = ["--bootstrap-server", users.bootstrap, "--command-config", str(own)]

    async def tool(*words: str) -> str:
        return await run_java(jars, "DelegationTokenCommand", *common, *words)

    with trio.fail_after(4 * TIMEOUT_S):
        made = await tool(
            "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ben"
        )
        assert "User:al" in made, made
        (token,) = users.broker.member.image.delegation_tokens.values()
        assert token.renewers == ("User:ben",)
        hmac = token_password(SECRET, token.id)
        assert hmac in made
        shown = await tool("--describe", "--owner-principal", "User:al")
        assert token.id in shown, shown
        renewed = await tool("--renew", "--renew-time-period", "-1", "--hmac", hmac)
        assert "Completed renew operation" in renewed, renewed
        client = config_of(tmp_path / "token.properties", token.id, hmac, ' tokenauth="true"')
        client.write_text(f"{client.read_text()}bootstrap.servers={users.bootstrap}\n")
        words = "--topic t --num-records 100 --record-size 10 --throughput -1"
        sent = await run_java(
            jars, "ProducerPerformance", *words.split(), "--command-config", str(client)
        )
        assert "100 records sent" in sent, sent[:3_000]
        ended = await tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert "Completed expire operation" in ended, ended
        assert len(users.broker.member.image.delegation_tokens) == 0


async def test_our_own_client_logs_in_by_a_token_of_its_login_module(users: Users) -> None:
    from ottla.model.settings.security.client_security import login_of

    with trio.fail_after(TIMEOUT_S):
        made = await create(await users.connect())
        module = (
            f'{SCRAM_MODULE} required username="{made.token_id}" '
            f'password="{token_password(SECRET, made.token_id)}" tokenauth=true;'
        )
        texts: dict[str, Any] = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": module,
        }
        login = login_of(texts)
        assert login is not None
        assert login.is_token
        from ottla.model.settings.security.jaas import parse_jaas

        security = ClientSecurity(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=MECHANISM,
            sasl_jaas_config=parse_jaas(module),
        )
        async with open_admin(users.bootstrap, security=security) as admin:
            assert await admin.describe_users() != {}

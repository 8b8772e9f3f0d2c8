"""`ottla user` on a real broker, and a login from a file of settings."""

from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.common import use_login
from ottla.cli.profiles import read_settings
from ottla.cli.users import user
from ottla.cli.users.password import PASSWORD_VARIABLE, read_password
from ottla.client.admin import open_admin
from ottla.client.network.login import LOGIN
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.settings.security.sasl import SaslLogin
from tests.cli_verbs import run_verb

TIMEOUT_S = 60


async def ottla_user(bootstrap: str, *arguments: str) -> int:
    async with open_admin(bootstrap) as admin:
        return await run_verb(user, admin, *arguments)


async def test_users_come_and_go(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text("hush\n")
    monkeypatch.setenv(PASSWORD_VARIABLE, "hush")
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            where = cluster.bootstrap
            assert await ottla_user(where, "add", "al", "--password-file", str(secret)) == 0
            assert await ottla_user(where, "add", "al", "--mechanism", "SCRAM-SHA-256") == 0
            assert await ottla_user(where, "add", "ben", "--iterations", "4096") == 0
            await ottla_user(where, "list")
            shown = capsys.readouterr().out
            assert [line.split() for line in shown.splitlines()[-3:]] == [
                ["al", "SCRAM-SHA-256", "8192"],
                ["al", "SCRAM-SHA-512", "8192"],
                ["ben", "SCRAM-SHA-512", "4096"],
            ]
            assert "hush" not in shown
            with pytest.raises(RefusedError, match="Too few iterations"):
                await ottla_user(where, "add", "cy", "--iterations", "1")
            await ottla_user(where, "delete", "al", "--yes")
            with pytest.raises(RefusedError, match="has no such credential"):
                await ottla_user(where, "delete", "al", "--yes")
            with pytest.raises(RefusedError, match="has no such credential"):
                await ottla_user(where, "delete", "ben", "--mechanism", "SCRAM-SHA-256")


def test_an_empty_password_is_none(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_password(str(empty), "al")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_password(str(tmp_path / "none"), "al")


@pytest.mark.parametrize(
    "text",
    [
        f'sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN_MODULE} required username="al" '
        'password="pw";\n',
        "sasl.mechanism=PLAIN\nsasl.username=al\nsasl.password=pw\n",
        "sasl.mechanisms=PLAIN\nsasl.username=al\nsasl.password=pw\n",
    ],
)
def test_a_login_is_read_from_the_files_of_other_tools(tmp_path: Path, text: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\n" + text)

    async def body() -> SaslLogin | None:
        use_login(read_settings(path, "--command-config"))
        return LOGIN.get()

    found = trio.run(body)
    assert found == SaslLogin("PLAIN", "al", "pw")
    assert LOGIN.get() is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=TLS", "security.protocol: is 'TLS'; it must be one of PLAINTEXT"),
        ("security.protocol=SASL_SSL", "sasl.mechanism: is not set; it must be one of"),
        ("sasl.mechanism=PLAIN", "security.protocol: is PLAINTEXT, and settings of sasl."),
        ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism: is not set; it must be one of"),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI",
            "sasl.mechanism: is 'GSSAPI'; it must be one of PLAIN",
        ),
        (
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN",
            "sasl.username: is not set; give sasl.username and sasl.password",
        ),
        ("ssl.truststore.location=/t", "security.protocol: is PLAINTEXT, and settings of ssl."),
        ("sasl.kerberos.service.name=k", "sasl.kerberos.service.name: is no setting of a client's"),
        ("sasl.jaas.config=hush", "sasl.jaas.config: is no login module"),
    ],
)
def test_a_login_that_cannot_be_honoured_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "client.properties"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        use_login(read_settings(path, "--command-config"))
    assert str(caught.value).startswith(sentence)
    assert "hush" not in str(caught.value)

"""`ottla metrics subscriptions` against a real controller and broker."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.cli.metrics import metrics
from ottla.client import Admin, open_admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from tests.cli_verbs import run_verb

__all__ = ["ottla_cluster"]


class CommandRunner:
    """Runs the command in the test's own loop, and returns its output."""

    def __init__(self, admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
        self._admin = admin
        self._capsys = capsys

    async def __call__(self, *words: str) -> str:
        self._capsys.readouterr()
        assert await run_verb(metrics, self._admin, "subscriptions", *words) == 0
        return self._capsys.readouterr().out

    async def listed(self) -> Any:
        return json.loads(await self("list", "--format=json"))


@pytest.fixture
async def ask(
    ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[CommandRunner]:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        yield CommandRunner(admin, capsys)


async def test_a_subscription_is_made_shown_changed_and_deleted(ask: CommandRunner) -> None:
    assert await ask.listed() == []

    said = await ask(
        "set", "lag", "--metrics=a.b.,c", "--interval=1s", "--match=client_id=app.*",
        "--match=client_software_name=librdkafka",
    )  # fmt: skip

    assert said.splitlines()[1:] == [
        "metrics      -    a.b.,c",
        "interval.ms  -    1000",
        "match        -    client_id=app.*,client_software_name=librdkafka",
    ]
    (found,) = await ask.listed()
    assert found == {
        "name": "lag",
        "metrics": ["a.b.", "c"],
        "interval_ms": 1_000,
        "match": ["client_id=app.*", "client_software_name=librdkafka"],
    }

    await ask("set", "lag", "--interval=90s", "--match=")

    (found,) = await ask.listed()
    assert found == {"name": "lag", "metrics": ["a.b.", "c"], "interval_ms": 90_000, "match": []}
    assert (await ask("list")).splitlines()[1] == "lag   a.b.,c       90 s  every client"

    await ask("delete", "lag")

    assert await ask.listed() == []


async def test_a_rehearsal_is_checked_and_changes_nothing(ask: CommandRunner) -> None:
    await ask("set", "all", "--metrics=*", "--dry-run")
    assert await ask.listed() == []
    with pytest.raises(RefusedError, match="between 100 and 3600000"):
        await ask("set", "all", "--metrics=*", "--interval=99ms", "--dry-run")

    await ask("set", "all", "--metrics=*")
    await ask("delete", "all", "--dry-run")

    assert [one["name"] for one in await ask.listed()] == ["all"]


async def test_what_would_ask_for_nothing_is_refused(ask: CommandRunner) -> None:
    with pytest.raises(ConfigError, match=r"--metrics: is missing: subscription 'new' is new"):
        await ask("set", "new", "--interval=1s")
    with pytest.raises(ConfigError, match="needs --metrics, --interval or --match"):
        await ask("set", "new")
    assert await ask.listed() == []


async def test_what_no_client_has_to_match_is_refused(ask: CommandRunner) -> None:
    for match in ("version=1", "client_id", "client_id=(", "client_id=a=b"):
        with pytest.raises(RefusedError, match="Illegal client matching pattern"):
            await ask("set", "x", "--metrics=*", f"--match={match}")
    with pytest.raises(ConfigError, match="can have no comma"):
        await ask("set", "x", "--metrics=*", "--match=client_id=a{1,2}")


async def test_a_subscription_that_is_not_there_cannot_be_deleted(ask: CommandRunner) -> None:
    with pytest.raises(RefusedError, match="there is no subscription 'x'") as refused:
        await ask("delete", "x")
    assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND

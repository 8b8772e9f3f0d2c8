"""`ottla metrics clients` and `tail` against a broker to which clients report."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Gauge,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)

from ottla.cli.metrics import metrics
from ottla.client import Admin, open_admin
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ErrorCode
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse
from tests.cli_verbs import run_verb

__all__ = ["ottla_cluster"]

PATIENCE_S = 60
INTERVAL_MS = 100


class Reporter:
    """A client that reports, on a connection of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.instance_id = UUID(int=0)
        self._subscription_id = 0

    async def ask(self) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id)
        answer = await self._cluster.request(request, GetTelemetrySubscriptionsResponse)
        assert answer.error_code == ErrorCode.NONE
        self.instance_id = answer.client_instance_id
        self._subscription_id = answer.subscription_id
        return answer

    async def push(self, name: str, value: float) -> int:
        metric = Metric(name=name, gauge=Gauge(data_points=[NumberDataPoint(as_double=value)]))
        scopes = [ScopeMetrics(metrics=[metric])]
        data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=scopes)])
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=self._subscription_id,
            metrics=data.SerializeToString(),
        )
        return (await self._cluster.request(request, PushTelemetryResponse)).error_code


@asynccontextmanager
async def open_reporter(bootstrap: str, client_id: str) -> AsyncIterator[Reporter]:
    async with open_cluster(parse_bootstrap(bootstrap), client_id=client_id) as cluster:
        yield Reporter(cluster)


class CommandRunner:
    """Runs the command in the test's own loop, and returns its output."""

    def __init__(self, admin: Admin, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.admin = admin
        self.bootstrap = bootstrap
        self._capsys = capsys

    async def __call__(self, verb: str, *words: str) -> str:
        self._capsys.readouterr()
        with trio.fail_after(PATIENCE_S):
            assert await run_verb(metrics, self.admin, verb, *words) == 0
        return self._capsys.readouterr().out

    async def clients(self, *words: str) -> Any:
        return json.loads(await self("clients", "--format=json", *words))


@pytest.fixture
async def ask(
    ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[CommandRunner]:
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.set_metrics_subscription("all", metrics=["*"], interval_ms=INTERVAL_MS)
        yield CommandRunner(admin, ottla_cluster.bootstrap, capsys)


async def test_a_client_is_shown_from_its_first_question_until_it_goes(ask: CommandRunner) -> None:
    assert await ask.clients() == []
    async with open_reporter(ask.bootstrap, "app") as reporter:
        asked = await reporter.ask()

        (found,) = await ask.clients()

        assert found["client_id"] == "app"
        assert found["client_instance_id"] == uuid_to_text(reporter.instance_id)
        assert (found["node"], found["source_address"]) == (1, "127.0.0.1")
        assert found["software_name"] == "ottla"
        assert (found["interval_ms"], found["metrics"]) == (INTERVAL_MS, ["*"])
        assert found["subscription_id"] == asked.subscription_id
        assert (found["push_count"], found["last_push_ms_ago"]) == (0, None)
        assert "asked" in await ask("clients")

        assert await reporter.push("a.b", 1.5) == ErrorCode.NONE

        (found,) = await ask.clients("--client=app")
        assert (found["push_count"], found["last_error"]) == (1, "NONE")
        assert found["push_bytes"] > 0
        assert "reporting" in await ask("clients", f"--client={found['client_instance_id']}")
        assert await ask.clients("--client=other") == []
    with trio.fail_after(PATIENCE_S):
        while await ask.clients():
            await trio.sleep(0.01)


async def test_what_was_pushed_is_tailed_and_chosen_by_client_and_by_name(
    ask: CommandRunner,
) -> None:
    async with (
        open_reporter(ask.bootstrap, "app") as app,
        open_reporter(ask.bootstrap, "other") as other,
    ):
        await app.ask()
        await other.ask()
        assert await other.push("a.b", 9.0) == ErrorCode.NONE
        assert await app.push("a.b", 1.5) == ErrorCode.NONE

        said = await ask("tail", "--recent", "--count=2")
        assert [line.split()[1:] for line in said.splitlines()] == [
            ["other", "a.b", "9"],
            ["app", "a.b", "1.5"],
        ]
        said = await ask("tail", "--recent", "--count=1", "--client=app", "--format=json")
        found = json.loads(said)
        assert (found["client_id"], found["software_name"], found["broker"]) == ("app", "ottla", 1)
        assert [(one["name"], one["value"]) for one in found["metrics"]] == [("a.b", 1.5)]


async def test_a_tail_without_the_past_shows_what_comes(
    ask: CommandRunner, ottla_cluster: ClusterUnderTest, nursery: trio.Nursery
) -> None:
    async with (
        open_reporter(ask.bootstrap, "app") as app,
        open_reporter(ask.bootstrap, "late") as late,
    ):
        await app.ask()
        await late.ask()
        assert await app.push("old", 1.0) == ErrorCode.NONE
        for broker in ottla_cluster.brokers.values():
            await broker.telemetry.ingest.flush()  # it is answered before it is handed on
        said: list[str] = []

        async def tail() -> None:
            said.append(await ask("tail", "--count=1"))

        nursery.start_soon(tail)
        with trio.fail_after(PATIENCE_S):
            while not said:
                await late.push("new", 2.0)
                await trio.sleep(0.05)
    assert said[0].split()[1:] == ["late", "new", "2"]

"""`ottla quota` on a real broker, and its effect on a librdkafka producer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio

from ottla.cli.quotas import quota
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, RefusedError
from tests.cli_verbs import run_verb

TIMEOUT_S = 60


async def in_thread(work: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def ottla_quota(bootstrap: str, *arguments: str) -> int:
    async with open_admin(bootstrap) as admin:
        return await run_verb(quota, admin, *arguments)


def produce(bootstrap: str, client_id: str, count: int, value_bytes: int = 10_000) -> list[int]:
    """Produce records one by one; return the throttle times of the responses."""
    throttles: list[int] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "throttle_cb": lambda event: throttles.append(round(event.throttle_time * 1_000)),
        }
    )
    for _ in range(count):
        producer.produce("t", bytes(value_bytes))
        assert producer.flush(60) == 0
    return [each for each in throttles if each]


async def test_a_limit_throttles_its_client_alone_and_goes(capsys: Any, tmp_path: Path) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            bootstrap = cluster.bootstrap
            async with open_admin(bootstrap) as admin:
                await admin.create_topic("t", partition_count=1)

            # 100 kB in ten seconds: the second record is above that, by two seconds at least.
            await ottla_quota(bootstrap, "set", "--client-id", "loader", "producer_byte_rate=10k")
            assert "producer_byte_rate" in capsys.readouterr().out
            throttle_times = await in_thread(lambda: produce(bootstrap, "loader", 2, 60_000))
            assert throttle_times
            assert max(throttle_times) >= 1_000
            assert await in_thread(lambda: produce(bootstrap, "other", 20)) == []

            await ottla_quota(bootstrap, "usage", "--format=json")
            (row,) = json.loads(capsys.readouterr().out)
            assert (row["client_id"], row["key"], row["limit"]) == (
                "loader", "producer_byte_rate", 10_000,
            )  # fmt: skip
            assert row["rate"] > 0

            await ottla_quota(
                bootstrap, "explain", "--client-id", "loader", "--user", "anna", "--format=json"
            )
            rows = json.loads(capsys.readouterr().out)
            (holds,) = [row for row in rows if row["holds"]]
            assert (holds["key"], holds["client_id"], holds["user"], holds["limit"]) == (
                "producer_byte_rate", "loader", None, 10_000,
            )  # fmt: skip

            await ottla_quota(bootstrap, "export")
            path = tmp_path / "quotas.json"
            path.write_text(capsys.readouterr().out)
            await ottla_quota(bootstrap, "delete", "--client-id", "loader")
            capsys.readouterr()
            await ottla_quota(bootstrap, "list", "--format=json")
            assert json.loads(capsys.readouterr().out) == []
            assert await in_thread(lambda: produce(bootstrap, "loader", 20)) == []

            await ottla_quota(bootstrap, "apply", "-f", str(path))
            capsys.readouterr()
            await ottla_quota(bootstrap, "apply", "-f", str(path))
            assert "nothing to change" in capsys.readouterr().out


async def test_bad_words_are_refused_with_one_sentence() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            bootstrap = cluster.bootstrap
            with pytest.raises(ConfigError, match="name at least one of them"):
                await ottla_quota(bootstrap, "set", "producer_byte_rate=5")
            await ottla_quota(bootstrap, "set", "--ip", "10.0.0.1", "connection_creation_rate=10")
            await ottla_quota(bootstrap, "delete", "--ip", "10.0.0.1")
            with pytest.raises(ConfigError, match="give a number"):
                await ottla_quota(bootstrap, "set", "--user", "a", "producer_byte_rate")
            with pytest.raises(RefusedError, match="above 0"):
                await ottla_quota(bootstrap, "set", "--user", "a", "producer_byte_rate=0")
            with pytest.raises(RefusedError, match="no limit to delete"):
                await ottla_quota(bootstrap, "delete", "--user", "a")
            with pytest.raises(ConfigError, match="No such file"):
                await ottla_quota(bootstrap, "apply", "-f", "/nowhere.json")

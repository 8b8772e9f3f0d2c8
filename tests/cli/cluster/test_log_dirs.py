"""`ottla broker logdirs` and `ottla topic storage` show the directories and sizes of replicas."""

import json
from argparse import Namespace
from typing import Any

import pytest

from ottla.cli.cluster.log_dirs import log_dirs
from ottla.cli.topics.topic_storage import storage
from ottla.client.admin import open_admin
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.producer import open_producer
from ottla.client.testing import open_test_cluster
from ottla.model.errors import RefusedError


async def filled(bootstrap: str) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("orders", partition_count=2, replication_factor=2)
    async with open_producer(bootstrap) as producer:
        await (await producer.send("orders", b"v" * 1_000, partition=1))


async def test_directories_and_replicas_are_shown_with_their_bytes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_test_cluster(broker_count=2) as cluster:
        await filled(cluster.bootstrap)
        async with open_admin(cluster.bootstrap) as admin:
            capsys.readouterr()
            options: dict[str, Any] = {"ids": [], "replicas": False, "name": "orders"}

            assert await log_dirs(admin, Namespace(**options, format="table")) == 0
            lines = capsys.readouterr().out.splitlines()
            assert lines[0].split()[:3] == ["BROKER", "DIRECTORY", "STATE"]
            assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
            assert all(line.split()[2] == "online" for line in lines[1:])

            assert await log_dirs(admin, Namespace(**options, format="json")) == 0
            brokers = json.loads(capsys.readouterr().out)
            for broker in brokers:
                (directory,) = broker["directories"]
                sizes = {
                    one["partition"]: one["size_bytes"]
                    for one in directory["replicas"]
                    if one["topic"] == "orders"
                }
                assert sizes[0] == 0
                assert sizes[1] > 1_000

            options["replicas"] = True
            assert await log_dirs(admin, Namespace(**options, format="table")) == 0
            assert "orders" in capsys.readouterr().out

            assert await storage(admin, Namespace(**options, format="json")) == 0
            rows = json.loads(capsys.readouterr().out)
            assert [(row["partition"], row["broker"]) for row in rows] == [
                (0, 1),
                (0, 2),
                (1, 1),
                (1, 2),
            ]
            assert sum(row["role"] == "leader" for row in rows) == 2
            assert all(row["directory"] and not row["future"] for row in rows)
            assert await storage(admin, Namespace(**options, format="table")) == 0
            assert capsys.readouterr().out.splitlines()[-1].endswith(" in 4 replicas")


async def test_a_broker_or_a_topic_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
        with pytest.raises(RefusedError, match="there is no broker 9"):
            await log_dirs(admin, Namespace(ids=[9], replicas=False, format="table"))
        with pytest.raises(RefusedError, match="it does not exist"):
            await storage(admin, Namespace(name="none", format="table"))


async def test_a_broker_that_does_not_answer_costs_its_own_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_test_cluster(broker_count=2) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        request = Cluster.request

        async def refusing(self: Cluster, *given: Any, **options: Any) -> Any:
            if options.get("node") == 2:
                raise ConnectionLostError("it hung up")
            return await request(self, *given, **options)

        monkeypatch.setattr(Cluster, "request", refusing)
        await log_dirs(admin, Namespace(ids=[], replicas=False, format="table"))
        lines = capsys.readouterr().out.splitlines()
        assert " online " in lines[1]
        assert "it hung up" in lines[2]

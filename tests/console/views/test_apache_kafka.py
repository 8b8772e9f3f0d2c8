"""Pages of a cluster of Apache Kafka, if OTTLA_KAFKA_JARS names a directory with its jars."""

import os
from pathlib import Path

import pytest
import trio

from ottla.bench.kafka.kafka_server import open_kafka
from ottla.client import open_admin, open_producer
from tests.console.console_fixture import open_browser

JARS = "OTTLA_KAFKA_JARS"
NOT_AVAILABLE = "not available on this cluster"


@pytest.mark.skipif(JARS not in os.environ, reason=f"{JARS} is not set")
@pytest.mark.timeout(120)
async def test_what_needs_our_own_requests_is_marked(tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": "1"}
    with open_kafka(Path(os.environ[JARS]), tmp_path, settings) as server:
        bootstrap = server.bootstrap
        with trio.fail_after(150):
            async with (
                open_admin(bootstrap) as admin,
                open_producer(bootstrap) as producer,
                open_browser(admin, bootstrap=bootstrap) as browser,
            ):
                await browser.act("/topics/create", {"name": "orders", "partitions": "2"})
                await producer.send("orders", b'{"id": 17}', partition=1)
                await producer.flush()
                html = await browser.get("/")
                assert "no cause found" in html
                assert html.count(NOT_AVAILABLE) == 2  # rates and changes
                html = await browser.get("/brokers")
                assert NOT_AVAILABLE in html
                assert "unreachable" not in html
                assert NOT_AVAILABLE in await browser.get("/brokers/1")
                for path, content in (
                    ("/topics", "in sync"),
                    ("/topics/orders", "in sync"),
                    ("/topics/orders/settings", "cleanup.policy"),
                    ("/topics/orders/records?filter=value.id+%3D+17", "{&#34;id&#34;: 17}"),
                    ("/topics/orders/records/1/0", "&#34;id&#34;: 17"),
                ):
                    html = await browser.get(path)
                    assert content in html
                    assert NOT_AVAILABLE not in html

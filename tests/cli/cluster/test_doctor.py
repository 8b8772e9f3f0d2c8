"""`ottla doctor retention` on a real broker."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaProducer

from ottla.cli.main import run

pytestmark = pytest.mark.cluster

UNHEALTHY = 2


def test_a_record_ahead_of_the_clock_is_found(
    up: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = up("--port=0")
    where = ["--dir", str(cluster.directory)]
    for topic in ("early", "late"):
        assert run(["topic", "create", topic, "--partitions=2", *where]) == 0
    port = json.loads((cluster.directory / "cluster.json").read_text())["bootstrap"]
    now_ms = int(time.time() * 1_000)
    producer = KafkaProducer(bootstrap_servers=port)
    producer.send("early", b"v", partition=1, timestamp_ms=now_ms)
    capsys.readouterr()
    producer.flush()
    assert run(["doctor", "retention", *where]) == 0
    assert "no record of 2 topics is ahead of the clock" in "".join(capsys.readouterr())

    producer.send("late", b"v", partition=1, timestamp_ms=now_ms + 1_800_000)
    producer.close()
    assert run(["doctor", "retention", "--format=json", *where]) == UNHEALTHY
    found = json.loads(capsys.readouterr().out)
    assert [(one["topic"], one["partitions"]) for one in found["findings"]] == [("late", [1])]
    assert run(["doctor", "retention", *where]) == UNHEALTHY
    assert "1 partition with records of up to" in capsys.readouterr().out

"""`ottla pipeline telemetry` over the pushes of real clients: its totals are those that they
sent."""

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio
from pyarrow.dataset import dataset

from ottla.cli.main import run
from ottla.cli.pipelines import pipeline_telemetry
from ottla.client.network.connection import open_connection
from ottla.model.errors import ErrorCode
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.pipeline.run.spark_errors import SparkFailedError
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.otlp import PointKind
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

TOPIC = "__client_metrics"
INTERVAL_MS = 100
CREATED = "org.apache.kafka.producer.connection.creation.total"
LATENCY = "org.apache.kafka.producer.request.latency.avg"
SENT = "org.apache.kafka.producer.outgoing.byte.total"
PATIENCE_S = 60


async def push_by_hand(bootstrap: str, hand: Any, amounts: list[int], cumulative: bool) -> None:
    """Push sums, one an interval, as a client of that name would."""
    ((host, port),) = parse_bootstrap(bootstrap)
    name = "whole" if cumulative else "deltas"
    async with open_connection(host, port, client_id=name) as connection:
        asked = await connection.request(
            GetTelemetrySubscriptionsRequest(), GetTelemetrySubscriptionsResponse
        )
        for index, amount in enumerate(amounts):
            value = sum(amounts[: index + 1]) if cumulative else amount
            at = hand.times(0 if cumulative else index, index + 1)
            payload = hand.payload(hand.total(SENT, value, at, cumulative=cumulative))
            request = PushTelemetryRequest(
                client_instance_id=asked.client_instance_id,
                subscription_id=asked.subscription_id,
                metrics=payload.SerializeToString(),
            )
            answer = await connection.request(request, PushTelemetryResponse)
            assert answer.error_code == ErrorCode.NONE
            await trio.sleep(2 * INTERVAL_MS / 1_000)


def reported_by_topic(bootstrap: str) -> tuple[Counter[tuple[str, str]], int]:
    """Return totals by client and metric as another consumer sees them, and how many records."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "enable.metrics.push": False}
    )
    partitions = consumer.list_topics(TOPIC, timeout=PATIENCE_S).topics[TOPIC].partitions
    ends = dict.fromkeys(partitions, 0)
    for number in ends:
        at = confluent_kafka.TopicPartition(TOPIC, number)
        ends[number] = consumer.get_watermark_offsets(at, timeout=PATIENCE_S)[1]
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in ends])
    totals: Counter[tuple[str, str]] = Counter()
    count = 0
    while count < sum(ends.values()):
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        count += 1
        labels, _, points = decode_record(message.value())
        for point in points:
            if point.kind is PointKind.SUM and point.is_delta:
                assert isinstance(point.value, int | float)
                totals[labels.client_id, point.name] += point.value  # type: ignore[assignment]
    consumer.close()
    return totals, count


@pytest.fixture
def in_tests_spark(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the command use the Spark of the tests: to start another takes a quarter of a minute."""

    @contextmanager
    def open_spark(
        arguments: argparse.Namespace, name: str, kept_open: tuple[int, ...]
    ) -> Iterator[Any]:
        assert kept_open  # the lock of the output
        yield spark

    monkeypatch.setattr(pipeline_telemetry, "open_spark", open_spark)
    return spark


def test_totals_are_what_real_clients_sent(
    in_tests_spark: Any, live_cluster: Any, hand: Any, tmp_path: Path, capfd: Any
) -> None:
    bootstrap = live_cluster.bootstrap
    subscribe = ["metrics", "subscriptions", "set", "all", "--metrics=*"]
    assert run([*subscribe, f"--interval={INTERVAL_MS}ms", f"--bootstrap={bootstrap}"]) == 0
    topic = live_cluster.new_topic(1)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
    amounts = [1_000, 20, 300, 4, 50_000, 2**40]
    for number in range(5):
        producer.produce(topic, b"x" * 100)
        assert producer.flush(PATIENCE_S) == 0
        cumulative = number == 3
        if number in (1, 3):
            trio.run(push_by_hand, bootstrap, hand, amounts, cumulative)
    del producer  # it pushes once more at its end
    trio.run(trio.sleep, 1.0)
    trio.run(push_by_hand, bootstrap, hand, [0], False)  # what tells that all before is over

    output = tmp_path / "rollups"
    words = ["pipeline", "telemetry", "--once", f"--bootstrap={bootstrap}", f"--output={output}"]
    assert run([*words, "--window=1s", "--lateness=0s", "--format=json"]) == 0
    batches = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line[:1] == "{"]
    expected, count = reported_by_topic(bootstrap)
    assert sum(batch["row_count"] for batch in batches) == count > len(amounts) * 2

    rows = dataset(output, partitioning="hive").to_table().to_pylist()
    totals: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["kind"] == "sum":
            totals[row["client_id"], row["metric"]] += row["total"]
    assert totals.pop(("whole", SENT)) == totals["deltas", SENT] == sum(amounts)
    assert +totals == +expected
    assert totals["shop", CREATED] >= 0
    latencies = [row for row in rows if (row["client_id"], row["metric"]) == ("shop", LATENCY)]
    assert latencies
    assert all(row["min"] <= row["p50"] <= row["p99"] <= row["max"] for row in latencies)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the one sentence with which a command is refused."""
    assert run(["pipeline", "telemetry", "--bootstrap=localhost:1", *words]) == 1
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1, reported
    return reported.removeprefix("ottla pipeline: ").strip()


def test_what_can_not_be_is_refused_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_telemetry, "open_spark", None)
    (tmp_path / "file").touch()
    output = f"--output={tmp_path}/out"
    assert refused(capsys) == "--output: name a directory or an --output-topic, or both"
    assert refused(capsys, "--output-topic=t") == (
        "--checkpoint: is needed where there is no --output to keep it in"
    )
    assert refused(capsys, f"--output={tmp_path}/file") == (
        f"--output: {tmp_path}/file is no directory"
    )
    (tmp_path / "archive" / "_spark_metadata").mkdir(parents=True)
    assert refused(capsys, f"--output={tmp_path}/archive") == (
        f"--output: {tmp_path}/archive is an archive, whose readers would not see rollups; "
        "name another directory"
    )
    assert "--window: is 'soon'; it must be a duration" in refused(capsys, output, "--window=soon")
    assert "by: has 'total', which is a column" in refused(capsys, output, "--by=total")
    assert "is '__client_metrics', which is what is read" in refused(
        capsys, output, "--output-topic=__client_metrics"
    )
    assert not (tmp_path / "out").exists()


def test_a_rollup_has_its_directory_for_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pipeline_telemetry.locked_output(str(tmp_path), str(tmp_path / "_checkpoint")):
        assert "is being written by another" in refused(capsys, f"--output={tmp_path}")


def test_rollups_whose_checkpoint_is_gone_are_not_counted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "date=2026-11-21").mkdir()
    said = refused(capsys, f"--output={tmp_path}")
    assert said.startswith(f"--output: {tmp_path} has rollups, but {tmp_path}/_checkpoint is not")
    (tmp_path / "_checkpoint").mkdir()
    (tmp_path / "_checkpoint" / "metadata").touch()
    with pipeline_telemetry.locked_output(
        str(tmp_path), str(tmp_path / "_checkpoint")
    ) as kept_open:
        assert len(kept_open) == 1


def test_an_empty_topic_is_reported_with_what_writes_it() -> None:
    missing = SparkFailedError("there is no topic '__client_metrics'")
    with (
        pytest.raises(SparkFailedError, match=r"telemetry.topic=true write it, once a client"),
        pipeline_telemetry.missing_topic_explained("__client_metrics"),
    ):
        raise missing
    with (
        pytest.raises(SparkFailedError, match=r"^there is no topic 'mine'$"),
        pipeline_telemetry.missing_topic_explained("mine"),
    ):
        raise SparkFailedError("there is no topic 'mine'")


def test_help_and_the_doctor_need_nothing_of_spark() -> None:
    script = (
        "import sys, ottla.cli.cluster.doctor, ottla.cli.pipelines.pipeline_telemetry;"
        "print(sorted({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_query_is_named_after_where_it_writes() -> None:
    assert pipeline_telemetry.query_name("/data/by client/") == "telemetry-by-client"
    assert pipeline_telemetry.query_name("s3a://bucket/rollups") == "telemetry-rollups"

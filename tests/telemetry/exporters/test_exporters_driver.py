"""Each exporter is one line of settings: the topic, plug-ins, and the errors that these may
raise."""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.declare import load
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.telemetry.clients.client_record import decode_record
from ottla.telemetry.clients.exporter import Exporter, LabelledPush
from ottla.telemetry.clients.otlp import decode, label
from ottla.telemetry.exporters.exporters_driver import open_exporters
from ottla.telemetry.exporters.plugin_driver import GROUP
from ottla.telemetry.exporters.topic_exporter_driver import TopicRecord

Build = Callable[..., Any]


class HalfChance:
    """Chance that always says a half."""

    def random(self) -> float:
        return 0.5


class Topic:
    """Takes records, or refuses them."""

    def __init__(self) -> None:
        self.refusal: ErrorCode | None = None
        self.records: list[TopicRecord] = []

    async def send(self, records: Sequence[TopicRecord]) -> None:
        await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise RefusedError(self.refusal)
        self.records.extend(records)


def opened(texts: Mapping[str, str], topic: Topic | None = None) -> list[Exporter]:
    config, _ = load(ExporterConfig, {"telemetry.linger.ms": "0", **texts})
    rng: Any = HalfChance()
    send = None if topic is None else topic.send
    return open_exporters(config, rng=rng, texts=texts, send=send)


@pytest.fixture
def make_push(labels_of: Build, counter: Build, pushed: Build) -> Callable[[int], LabelledPush]:
    """Return a push whose only value is its number."""

    def make(number: int) -> LabelledPush:
        data = decode(pushed(counter("a.total", number)))
        return LabelledPush(labels_of(number), 1_000 + number, label(data, labels_of(number)))

    return make


async def until(is_so: Callable[[], bool], clock: MockClock) -> None:
    """Let virtual time pass, and threads end, until something is so."""
    while not is_so():
        clock.jump(1)
        await trio.lowlevel.checkpoint()


def test_every_line_of_settings_is_one_way_out(install: Callable[[str, Any], None]) -> None:
    install("mine", Plugin)
    texts = {
        "telemetry.otlp.endpoint": "grpc://h,http://h",
        "telemetry.topic": "true",
        "telemetry.exporters": "mine",
    }
    names = ["grpc://h:4317", "http://h:4318", "__client_metrics", "mine"]
    assert [exporter.name for exporter in opened(texts, Topic())] == names
    assert opened({}, Topic()) == []
    assert [exporter.name for exporter in opened({"telemetry.topic": "true"})] == []


async def test_what_clients_push_becomes_records_by_client(
    make_push: Callable[[int], LabelledPush], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    topic = Topic()
    (exporter,) = opened({"telemetry.topic": "true"}, topic)
    of_a_node = LabelledPush(None, 1, b"")
    exporter.offer([make_push(1), of_a_node, make_push(2)])
    nursery.start_soon(exporter.run)
    await until(lambda: exporter.counts()["sent"] == 2, mock_clock)
    assert [record.timestamp_ms for record in topic.records] == [1_001, 1_002]
    for record, push in zip(topic.records, (make_push(1), make_push(2)), strict=True):
        labels, received_ms, (point,) = decode_record(record.value)
        assert (labels, received_ms) == (push.labels, push.received_ms)
        assert record.key == labels.client_instance_id.bytes
        assert point.value == received_ms - 1_000


async def test_a_topic_without_a_leader_is_tried_again_and_one_too_small_is_not(
    make_push: Callable[[int], LabelledPush], nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    topic = Topic()
    (exporter,) = opened({"telemetry.topic": "true"}, topic)
    topic.refusal = ErrorCode.LEADER_NOT_AVAILABLE
    exporter.offer([make_push(1)])
    nursery.start_soon(exporter.run)
    await until(lambda: exporter.counts()["failures"] == 3, mock_clock)
    topic.refusal = None
    await until(lambda: exporter.counts()["sent"] == 1, mock_clock)
    topic.refusal = ErrorCode.MESSAGE_TOO_LARGE
    exporter.offer([make_push(2)])
    await until(lambda: exporter.counts()["refused"] == 1, mock_clock)
    assert len(topic.records) == 1


class Plugin:
    """Keeps each push; fails on demand."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self.pushes: list[LabelledPush] = []
        self.error: BaseException | None = None

    def export(self, pushes: Sequence[LabelledPush]) -> None:
        if self.error is not None:
            raise self.error
        self.pushes.extend(pushes)


async def test_a_plug_in_gets_its_settings_and_every_push(
    install: Callable[[str, Any], None],
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    made: list[Plugin] = []

    def make(texts: Mapping[str, str]) -> Plugin:
        made.append(Plugin(texts))
        return made[0]

    install("mine", make)
    (exporter,) = opened(
        {"telemetry.exporters": "mine", "telemetry.exporter.mine.path": "/x", "other": "1"}
    )
    (plugin,) = made
    assert plugin.texts == {"path": "/x"}
    nursery.start_soon(exporter.run)
    exporter.offer([make_push(1)])
    await until(lambda: exporter.counts()["sent"] == 1, mock_clock)
    assert plugin.pushes == [make_push(1)]


async def test_a_plug_in_that_raises_is_logged_counted_and_called_again(
    install: Callable[[str, Any], None],
    make_push: Callable[[int], LabelledPush],
    nursery: trio.Nursery,
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plugin = Plugin({})
    install("mine", lambda texts: plugin)
    (exporter,) = opened({"telemetry.exporters": "mine"})
    nursery.start_soon(exporter.run)
    plugin.error = ZeroDivisionError("oops")
    exporter.offer([make_push(1)])
    with caplog.at_level(logging.WARNING):
        await until(lambda: exporter.counts()["refused"] == 1, mock_clock)
    assert "mine does not accept metrics: ZeroDivisionError: oops" in caplog.messages
    plugin.error = None
    exporter.offer([make_push(2)])
    await until(lambda: exporter.counts()["sent"] == 1, mock_clock)
    assert plugin.pushes == [make_push(2)]


def test_a_plug_in_that_is_not_there_or_cannot_start_stops_the_start(
    install: Callable[[str, Any], None],
) -> None:
    def broken(texts: Mapping[str, str]) -> Plugin:
        raise KeyError("path")

    install("broken", broken)
    with pytest.raises(
        ConfigError, match=r"missing is no entry point of ottla\.telemetry_exporter"
    ):
        opened({"telemetry.exporters": "missing"})
    with pytest.raises(ConfigError, match="broken cannot start: 'path'"):
        opened({"telemetry.exporters": "broken"})


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Install a plug-in as an operator's package would: by the entry points of a distribution."""
    module: Any = ModuleType("operators_plugins")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(tmp_path)
    distribution = tmp_path / "operators_plugins-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Name: operators-plugins\nVersion: 1.0\n")
    lines = [f"[{GROUP}]"]

    def put(name: str, make: Any) -> None:
        setattr(module, name, make)
        lines.append(f"{name} = {module.__name__}:{name}")
        (distribution / "entry_points.txt").write_text("\n".join(lines))
        importlib.invalidate_caches()

    return put

"""The steady load, with a double of librdkafka's producer."""

import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.bench.faults import steady
from ottla.bench.faults.ledger import UNKNOWN_OFFSET, read_ledger
from ottla.bench.faults.steady import SteadyLoad, Writer


class ImplicitlyAcknowledging:
    """A producer whose first record is acknowledged by the response to the second.

    The load is stopped with that response.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._on_delivery: Callable[[object, object], None] = settings["on_delivery"]
        self._sent: list[bytes] = []

    def list_topics(self, topic: str, timeout: float) -> object:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def produce(self, topic: str, value: bytes, partition: int) -> None:
        self._sent.append(value)

    def poll(self, timeout: float) -> None:
        if len(self._sent) < 2:
            return
        for offset, value in zip((None, 6), self._sent[:2], strict=True):
            self._on_delivery(None, DeliveredReport(offset, value))
        del self._sent[:2]
        signal.raise_signal(signal.SIGTERM)

    def flush(self, timeout: float) -> int:
        return len(self._sent)


class DeliveredReport:
    """A delivery report of partition 0 of the topic `load`."""

    def __init__(self, offset: int | None, value: bytes) -> None:
        self._offset, self._value = offset, value

    def topic(self) -> str:
        return "load"

    def partition(self) -> int:
        return 0

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int | None:
        return self._offset


class EmptyLog:
    """A consumer that reports the end offset of the partition."""

    def __init__(self, settings: dict[str, Any]) -> None:
        pass

    def get_watermark_offsets(self, at: object, timeout: float) -> tuple[int, int]:
        return 0, 5

    def close(self) -> None:
        pass


def test_a_record_acknowledged_by_the_answer_to_a_later_one_is_noted_without_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = SimpleNamespace(
        Producer=ImplicitlyAcknowledging,
        Consumer=EmptyLog,
        TopicPartition=lambda topic, partition: (topic, partition),
    )
    monkeypatch.setattr(steady, "library", lambda name: library)
    load = SteadyLoad(bootstrap="", topics=("load",), rate=1_000_000, seconds=60, record_bytes=16)
    Writer(load, tmp_path / "ledger").run(lambda seconds: None)
    (answers,) = read_ledger(tmp_path / "ledger").answers
    assert list(answers.offsets[:2]) == [UNKNOWN_OFFSET, 6]
    assert list(answers.numbers[:2]) == [0, 1]

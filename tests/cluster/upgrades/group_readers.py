"""Members of consumer groups, each in a thread of its own, that note all numbers that they read."""

import threading
import time

from confluent_kafka import Consumer

from tests.cluster.transactional_writers import TIMEOUT_S


class GroupReader:
    """A member of a consumer group that reads committed records and commits its position."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], protocol: str) -> None:
        self.read_at: list[float] = []
        """Time of each record, by the monotonic clock, in seconds."""
        self.numbers: dict[tuple[str, int], set[int]] = {}
        """Numbers that were read, by topic and partition."""
        self.errors: list[str] = []
        self._is_stopping = threading.Event()
        self._topics = topics
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
        }
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "GroupReader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe(self._topics)
        while not self._is_stopping.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            self.read_at.append(time.monotonic())
            place = (message.topic() or "", message.partition() or 0)
            self.numbers.setdefault(place, set()).add(int(message.value() or b""))
        consumer.close()


def numbers_of(readers: list[GroupReader], topic: str, partition: int) -> set[int]:
    """Return the numbers of a partition that any of the members has read."""
    return set().union(*(one.numbers.get((topic, partition), set()) for one in readers))

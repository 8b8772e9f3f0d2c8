"""Keys of logs ("topic-partition"), and the replacement of full topics, which keeps each history
short.

The module is pure. The checkers judge a history key by key. After `values_max` values a topic is
replaced by another topic, which was created in advance.
"""

from random import Random

from ottla.jepsen.workloads.load import NewTopic

PARTITION_COUNT = 2
"""Number of partitions per topic of a workload. The two partitions of a topic have the same leader
about half of the time."""
READY_COUNT = 2
"""Number of topics that a workload creates in advance. With fewer, the load stops when the
controller is unavailable for long."""


def key_of(topic: str, partition: int) -> str:
    """Return the key ("topic-partition") of a partition."""
    return f"{topic}-{partition}"


def partition_of(key: str) -> tuple[str, int]:
    """Return the topic and partition of a key ("topic-partition")."""
    topic, _, partition = key.rpartition("-")
    return topic, int(partition)


class Topics:
    """The topics of a workload: topics that are being written, topics created in advance, and full
    topics."""

    def __init__(self, prefix: str, *, open_count: int, values_max: int) -> None:
        self._prefix = prefix
        self._values_max = values_max
        self._values: dict[str, int] = {}
        """Number of values already generated for each key (partition)."""
        self._made_count = open_count + READY_COUNT
        self.first = tuple(self._name(index) for index in range(self._made_count))
        self.open = list(self.first[:open_count])
        self._ready = list(self.first[open_count:])
        self._in_making: str | None = None

    @property
    def new_topics(self) -> tuple[NewTopic, ...]:
        """The topics that must be created before the load begins."""
        return tuple(NewTopic(name, PARTITION_COUNT) for name in self.first)

    def keys(self) -> list[str]:
        """Return the keys (partitions) that the workload currently writes to."""
        return [key for topic in self.open for key in self.keys_of(topic)]

    def keys_of(self, topic: str) -> list[str]:
        """Return the keys ("topic-partition") of all partitions of one topic."""
        return [key_of(topic, partition) for partition in range(PARTITION_COUNT)]

    def next_value(self, rng: Random) -> tuple[str, int]:
        """Return a random key (partition), and a value that was not used for this key before."""
        slot = rng.randrange(len(self.open))
        topic = self.open[slot]
        key = key_of(topic, rng.randrange(PARTITION_COUNT))
        value = self._values.get(key, 0)
        self._values[key] = value + 1
        if value + 1 >= self._values_max and self._ready:
            self.open[slot] = self._ready.pop(0)
        return key, value

    def to_make(self) -> str | None:
        """Return the name of the next topic to create, and mark the topic as being created. Returns
        None if enough topics exist or one is being created."""
        if self._in_making is not None or len(self._ready) >= READY_COUNT:
            return None
        self._in_making = self._name(self._made_count)
        return self._in_making

    def on_made(self, topic: str, *, is_made: bool) -> None:
        """Record whether the creation of a topic succeeded (`is_made`). If it failed, another
        thread creates the topic later."""
        if topic != self._in_making:
            return
        self._in_making = None
        if is_made:
            self._made_count += 1
            self._ready.append(topic)

    def _name(self, index: int) -> str:
        return f"{self._prefix}q{index}"

"""kill -9 while Kafka Streams counts words with exactly_once_v2: each count exists once, in order.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release, kafka-streams
included; `OTTLA_KILLS=60` runs longer.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

KILL_COUNT = int(os.environ.get("OTTLA_KILLS", "6"))
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400 + 20 * KILL_COUNT)]

COUNTS = "counts"
END_S = 150.0


def test_words_are_counted_exactly_once(
    start_copying: Callable[..., Any], word_count_command: list[str]
) -> None:
    copying = start_copying(2, {COUNTS: word_count_command})
    copying.wait_for_copies()
    killer = copying.killer()
    for _ in range(KILL_COUNT):
        killer.kill()
    copying.cluster.wait_healthy()
    written = copying.stop_source()
    words = Counter(value[-1:] for values in written.values() for value in values)
    deadline = time.monotonic() + END_S
    while sum(map(len, (found := copying.read(COUNTS)).values())) < words.total():
        assert time.monotonic() < deadline, copying.copiers[0].last_words()
    copying.close()
    counted: dict[bytes, list[int]] = defaultdict(list)
    for values in copying.read(COUNTS).values():
        for value in values:
            word, count = value.split()
            counted[word].append(int(count))
    print(f"{words.total()} words, {sum(map(len, found.values()))} counts, kills {killer.kills}")
    assert counted == {word: list(range(1, count + 1)) for word, count in words.items()}

"""Plan that balances replicas across brokers, and the throttle of its moves, as stored in the
metadata log.

The plan and its throttle are dynamic settings, so every controller and broker knows them. The
throttle is cluster-wide, and each topic lists the replicas to which the throttle applies. A rate
that is set for a single broker overrides the cluster-wide rate.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, Record, config_record
from ottla.model.balance.plan_text import StoredMove, moves_text, parse_moves
from ottla.model.ids import TopicPartition
from ottla.model.settings.balance import (
    BALANCE_KEYS,
    BALANCE_PLAN,
    BALANCE_RATE_MAX,
    BALANCE_RATE_MIN,
    DEFAULT_RATE_MAX,
    DEFAULT_RATE_MIN,
)
from ottla.model.settings.storage.throttled_replicas import ThrottledReplicas, throttled_replicas

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_BROKER = ""
"""Name of the broker resource whose settings apply to all brokers."""


def stored_moves(image: MetadataImage) -> tuple[StoredMove, ...]:
    """Return the incomplete moves of partitions in the stored balance plan. Empty if there is no
    plan."""
    return parse_moves(image.config(BROKER_RESOURCE, EVERY_BROKER).get(BALANCE_PLAN, ""))


def has_rates(image: MetadataImage) -> bool:
    """Return whether a cluster-wide throttle of replication is set in the dynamic settings."""
    settings = image.config(BROKER_RESOURCE, EVERY_BROKER)
    return any(key in settings for key in RATES)


def rate_bounds(image: MetadataImage) -> tuple[int, int]:
    """Return the lowest and the highest permitted throttle of the balance plan's replication, in
    bytes per second."""
    settings = image.config(BROKER_RESOURCE, EVERY_BROKER)
    lowest = int(settings.get(BALANCE_RATE_MIN, str(DEFAULT_RATE_MIN)))
    highest = int(settings.get(BALANCE_RATE_MAX, str(DEFAULT_RATE_MAX)))
    return min(lowest, highest), highest


def rate_in_force(image: MetadataImage) -> int:
    """Return the present throttle of the balance plan's replication, in bytes per second."""
    text = image.config(BROKER_RESOURCE, EVERY_BROKER).get(RATES[0])
    return rate_bounds(image)[1] if text is None else int(text)


def rate_records(image: MetadataImage, rate: int) -> Iterator[Record]:
    """Yield the metadata records that set the replication throttle to `rate` bytes per second.
    Yields no record if the throttle already has this rate."""
    settings = image.config(BROKER_RESOURCE, EVERY_BROKER)
    for key in RATES:
        if settings.get(key) != str(rate):
            yield config_record(BROKER_RESOURCE, EVERY_BROKER, key, str(rate))


def plan_records(image: MetadataImage, moves: Collection[StoredMove]) -> Iterator[Record]:
    """Yield the metadata records that replace the moves in the stored balance plan by `moves`. If
    `moves` is empty, the records end the plan and its throttle."""
    settings = image.config(BROKER_RESOURCE, EVERY_BROKER)
    if moves:
        text = moves_text(moves)
        if settings.get(BALANCE_PLAN) != text:
            yield config_record(BROKER_RESOURCE, EVERY_BROKER, BALANCE_PLAN, text)
        return
    for key in (*BALANCE_KEYS, *RATES):
        if key in settings:
            yield config_record(BROKER_RESOURCE, EVERY_BROKER, key, None)


def under_replicated_count(image: MetadataImage) -> int:
    """Return the number of partitions with replicas out of sync. Replicas that a reassignment is
    adding do not count."""
    return sum(
        not set(state.replicas).difference(state.adding).issubset(state.isr)
        for topic in image.topics.values()
        for _, state in topic.partitions.items()
    )


class ThrottleLists:
    """Changes of the topics' lists of throttled replicas, collected over many moves."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._added: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
        self._removed: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)

    def add(self, move: StoredMove) -> None:
        """Add the replicas between which a move copies records to the lists of throttled replicas.
        Each present replica of the partition may be the sender."""
        for key, replicas in _listed(move):
            self._added[key] |= replicas

    def remove(self, move: StoredMove) -> None:
        """Remove the replicas between which a move copies records from the topics' lists of
        throttled replicas."""
        for key, replicas in _listed(move):
            self._removed[key] |= replicas

    def records(self) -> Iterator[Record]:
        """Yield the metadata records that change the topics' lists of throttled replicas. A list of
        all replicas (*) is not changed."""
        for topic, key in sorted({*self._added, *self._removed}):
            if topic not in self._image.topic_ids:
                continue
            text = self._image.config(TOPIC_RESOURCE, topic).get(key, "")
            found = throttled_replicas(text)
            if found.is_all:
                continue
            named = (found.named - self._removed[topic, key]) | self._added[topic, key]
            if named != found.named:
                after = str(ThrottledReplicas(frozenset(named))) if named else None
                yield config_record(TOPIC_RESOURCE, topic, key, after)


def _listed(move: StoredMove) -> Iterator[tuple[tuple[str, str], set[tuple[int, int]]]]:
    if move.is_copy:
        topic, partition = move.at
        yield (topic, LEADER_REPLICAS), {(partition, one) for one in move.before}
        yield (topic, FOLLOWER_REPLICAS), {(partition, one) for one in move.adding}


def without(image: MetadataImage, partitions: Iterable[TopicPartition]) -> list[Record]:
    """Return the metadata records that remove partitions from the stored balance plan, because a
    client has decided on the partitions' replicas.

    Returns no records if the plan contains none of these partitions.
    """
    gone = set(partitions)
    moves = stored_moves(image)
    kept = [move for move in moves if move.at not in gone]
    if len(kept) == len(moves):
        return []
    lists = ThrottleLists(image)
    for move in moves:
        if move.at in gone:
            lists.remove(move)
    return [*lists.records(), *plan_records(image, kept)]

"""Page that lists topics with search, sizes and rates, and has a form that creates a topic.

One small request returns the names of all topics. Only the topics on the present page of the list
are described, so the cost does not depend on the number of topics.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_topics import (
    BY_CLUSTER_DEFAULT,
    PartitionDescription,
    TopicDescription,
)
from ottla.console.form_values import form_number
from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.live_views import every
from ottla.console.page_types import Action, Live, Page, PageRequest, PageView
from ottla.console.views.brokers import rates_of
from ottla.insight.facts.log_dirs_driver import BrokerDirectories, ask_for_replicas
from ottla.insight.rules.traffic_rates import TopicRates
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.values import frozen

PARTITIONS_MAX = 2_000
"""Maximum number of partitions whose details the console requests for one page of the topic
list."""
SIZES_S = 3.0
LIVE_S = 10.0
"""Interval, in seconds, between two updates of the list of topics while its page is open."""
NAME_CHARS_MAX = 249
SETTINGS_MAX = 100
SETTINGS_CHARS_MAX = 20_000
TOPIC_PATH = "/topics/{topic}"


@frozen(kw_only=True)
class TopicRow:
    """Row about one topic in the list of topics. Its details are None if they are not known."""

    name: str
    is_internal: bool
    problem: str = ""
    """Reason why the topic's details are unknown. Empty if they are known."""
    partition_count: int | None = None
    replica_count: int | None = None
    """Number of replicas of each partition of the topic. None if it is not known."""
    is_cut: bool = False
    """True if the topic has further partitions that are not counted in the row."""
    leaderless_count: int = 0
    under_replicated_count: int = 0
    size_bytes: int | None = None
    """Total size, in bytes, of the topic's replicas at the brokers that responded. None if it is
    not known."""
    rates: TopicRates | None = None


async def topics(request: PageRequest) -> PageView:
    """Return the page that lists topics."""
    shows_internal = request.query.get("internal", "") == "1"
    names = await request.admin.list_topic_names()
    shown = [one for one in names if shows_internal or one not in INTERNAL_TOPICS]
    found = listing(shown, request.query, text_of=lambda one: one, sorts={"name": lambda one: one})
    rows = await topic_rows(request.admin, found.rows)
    return PageView(
        context={
            "topics": found.with_rows(rows),
            "shows_internal": shows_internal,
            "internal_count": sum(one in INTERNAL_TOPICS for one in names),
            "has_topics": bool(shown),
        }
    )


async def topic_rows(admin: Admin, names: Sequence[str]) -> list[TopicRow]:
    """Return the rows about the topics `names` for the list of topics, in the order of `names`."""
    described: dict[str, TopicDescription | RefusedError] = {}
    rates: Mapping[str, TopicRates] = {}

    async def describe() -> None:
        nonlocal described
        described = await admin.describe_topics(names, partition_count_max=PARTITIONS_MAX)

    async def measure() -> None:
        nonlocal rates
        found = await rates_of(admin)
        rates = {} if found is None else {one.topic: one for one in found.topics}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(describe)
        nursery.start_soon(measure)
    sizes = await sizes_of(admin, [one for one in described.values() if _is_described(one)])
    return [topic_row(one, described.get(one), sizes, rates.get(one)) for one in names]


def topic_row(
    name: str,
    described: TopicDescription | RefusedError | None,
    sizes: Mapping[str, int] | None,
    rates: TopicRates | None,
) -> TopicRow:
    """Return the row about one topic in the list of topics. `sizes` has the total size of all
    replicas, in bytes, by topic."""
    is_internal = name in INTERNAL_TOPICS
    if not isinstance(described, TopicDescription):
        problem = (
            f"the page has more than {PARTITIONS_MAX:,} partitions"
            if described is None
            else described.message
        )
        return TopicRow(name=name, is_internal=is_internal, problem=problem, rates=rates)
    partitions = described.partitions
    return TopicRow(
        name=name,
        is_internal=described.is_internal,
        partition_count=len(partitions),
        is_cut=not described.is_complete,
        replica_count=max((len(one.replicas) for one in partitions), default=0),
        leaderless_count=sum(one.leader is None for one in partitions),
        under_replicated_count=sum(len(one.in_sync) < len(one.replicas) for one in partitions),
        size_bytes=None if sizes is None else sizes.get(name, 0),
        rates=rates,
    )


def _is_described(one: TopicDescription | RefusedError) -> bool:
    return isinstance(one, TopicDescription)


async def sizes_of(
    admin: Admin, described: Iterable[TopicDescription | RefusedError]
) -> dict[str, int] | None:
    """Return the total size of all replicas of each topic, in bytes, or None if no broker reports
    sizes."""
    topics = [one for one in described if isinstance(one, TopicDescription)]
    wanted: defaultdict[NodeId, list[TopicPartition]] = defaultdict(list)
    for one in topics:
        for node, partitions in replicas_by_broker(one.name, one.partitions).items():
            wanted[node] += partitions
    if not wanted:
        return {}
    found = await replica_directories(admin, wanted)
    return None if found is None else size_by_topic(found)


def replicas_by_broker(
    topic: str, partitions: Iterable[PartitionDescription]
) -> dict[NodeId, list[TopicPartition]]:
    """Return the partitions of a topic by the ids of the brokers that have a replica of the
    partition."""
    found: defaultdict[NodeId, list[TopicPartition]] = defaultdict(list)
    for one in partitions:
        for node in one.replicas:
            found[node].append(TopicPartition(topic, one.partition))
    return dict(found)


async def replica_directories(
    admin: Admin, partitions_of: Mapping[NodeId, Sequence[TopicPartition]]
) -> list[BrokerDirectories] | None:
    """Return the log directories of brokers, with the replicas of the partitions in
    `partitions_of`. Returns None if no broker reports them."""
    found = await ask_for_replicas(admin, partitions_of, timeout_s=SIZES_S)
    known = [one for one in found if not one.failure]
    return known or None


def size_by_topic(found: Iterable[BrokerDirectories]) -> dict[str, int]:
    """Return the total size of all replicas of each topic, in bytes."""
    sizes: defaultdict[str, int] = defaultdict(int)
    for broker in found:
        for directory in broker.directories:
            for at, replica in directory.replicas.items():
                sizes[at.topic] += replica.size_bytes
    return dict(sizes)


async def create(request: PageRequest) -> PageView:
    """Create the topic in the form. Returns a redirect to its page."""
    form = request.form
    name = form.get("name", "").strip()
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise PageError(
            HTTPStatus.BAD_REQUEST, f"the name of a topic has 1 to {NAME_CHARS_MAX} characters"
        )
    await request.admin.create_topic(
        name,
        partition_count=_count("partitions", form.get("partitions", "")),
        replication_factor=_count("replicas", form.get("replicas", "")),
        configs=parse_settings(form.get("settings", "")),
    )
    return PageView(
        context={},
        location=address(TOPIC_PATH, {"topic": name}),
        notice=f"Topic {name} was created.",
    )


def parse_settings(text: str) -> dict[str, str]:
    """Parse topic settings in a text with one KEY=VALUE per line. Returns the values by key. Raises
    ConfigError if a line has another form."""
    lines = [line.strip() for line in text[: SETTINGS_CHARS_MAX + 1].splitlines() if line.strip()]
    if len(text) > SETTINGS_CHARS_MAX or len(lines) > SETTINGS_MAX:
        raise ConfigError("settings", f"are too many; {SETTINGS_MAX} lines are allowed")
    found = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not (equals and key.strip()):
            raise ConfigError("settings", f"have the line {line[:100]!r}; it must be KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def _count(name: str, text: str) -> int:
    """Return the positive number in a form field. For a blank field, return the value that selects
    the cluster's default."""
    return form_number(name, text, least=1) if text.strip() else BY_CLUSTER_DEFAULT


PAGES = (
    Page(
        name="topics",
        path="/topics",
        title="Topics",
        command="ottla topic list",
        view=topics,
        section="Data",
        key="t",
        lives=(Live(name="topics", path="/live/topics", stream=every(LIVE_S, topics)),),
        actions=(
            Action(
                name="topic-create",
                path="/topics/create",
                command="ottla topic create {name}",
                run=create,
            ),
        ),
    ),
)

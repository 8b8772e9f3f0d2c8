"""Pages of one topic: its partitions with leaders, replicas, offsets and sizes, and its settings
with source and difference from the default. Forms change settings, add partitions and delete the
topic."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from http import HTTPStatus

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigChange, ConfigEntry, ConfigResource
from ottla.client.admin_parts.admin_topics import PartitionDescription, TopicDescription
from ottla.console.form_values import form_number
from ottla.console.http_errors import PageError
from ottla.console.links import address
from ottla.console.listing import ListPage, listing
from ottla.console.live_views import every
from ottla.console.page_types import Action, Live, Page, PageRequest, PageView, UserRole
from ottla.console.partition_offsets_driver import known_offsets
from ottla.console.setting_rows import SettingRow, setting_rows
from ottla.console.views.brokers import rates_of
from ottla.console.views.topics import (
    PARTITIONS_MAX,
    TOPIC_PATH,
    replica_directories,
    replicas_by_broker,
)
from ottla.insight.facts.log_dirs_driver import BrokerDirectories
from ottla.insight.facts.topics.tier_driver import tiered_topics
from ottla.insight.rules.config_losses import losses_of
from ottla.insight.rules.traffic_rates import TopicRates
from ottla.model.amounts import counted
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.model.values import frozen
from ottla.wire.offset_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED

LIVE_S = 5.0
"""Interval, in seconds, between two updates of a topic's page while the page is open."""
TIERED_S = 3.0
"""Maximum seconds for finding out whether a topic is tiered."""
SETTINGS_PATH = "/topics/{topic}/settings"
OFFSET_DIGITS_MAX = 18
VALUE_CHARS_MAX = 32_767
ALL = -1
"""Special offset in a DeleteRecords request that stands for the end of a partition."""
SHOWN = 5
PARTITION_SORTS = {"partition": lambda one: one.partition}


@frozen(kw_only=True)
class PartitionRow:
    """Table row about one partition of a topic. Offsets and size are None if they are not known."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    eligible: tuple[int, ...] | None
    """Broker ids of the partition's eligible leader replicas. None if the cluster does not report
    them."""
    last_known_eligible: tuple[int, ...] | None
    offline: tuple[int, ...]
    start_offset: int | None = None
    end_offset: int | None = None
    size_bytes: int | None = None
    """Size, in bytes, of the partition's largest replica. None if it is not known."""
    local_start_offset: int | None = None
    """First offset on the disks of brokers, if the topic is tiered."""
    copied_offset: int | None = None
    """Last offset that is copied to the object store, or -1 if no offset is copied. None if the
    topic is not tiered or the offset is not known."""

    @property
    def only_copied(self) -> int | None:
        """Number of offsets whose records are only in the object store. None if it is not known."""
        if self.start_offset is None or self.local_start_offset is None:
            return None
        return max(0, self.local_start_offset - self.start_offset)

    @property
    def offset_count(self) -> int | None:
        """Number of offsets between the partition's start and end. It equals the number of records
        if no record was compacted. None if an offset is not known."""
        if self.start_offset is None or self.end_offset is None:
            return None
        return self.end_offset - self.start_offset

    @property
    def state(self) -> str:
        """State of the partition in words."""
        if self.leader is None:
            return "no leader"
        return "under-replicated" if len(self.in_sync) < len(self.replicas) else "in sync"

    @property
    def kind(self) -> str:
        """Kind of the badge that shows the partition's state: good, warning or bad."""
        return {"no leader": "bad", "under-replicated": "warning"}.get(self.state, "good")

    @property
    def is_preferred(self) -> bool:
        """True if the partition's first replica leads it."""
        return bool(self.replicas) and self.leader == self.replicas[0]


@frozen(kw_only=True)
class TopicSummary:
    """Summary of a topic as a whole, for its page."""

    name: str
    topic_id: str
    is_internal: bool
    partition_count: int
    replica_count: int
    leaderless_count: int
    under_replicated_count: int
    is_cut: bool
    """True if the topic has more partitions than its page shows."""
    rates: TopicRates | None


@frozen(kw_only=True)
class PendingChange:
    """A change of a topic's setting that the user must confirm, because it deletes records or puts
    them at risk."""

    key: str
    value: str | None
    """New value of the setting, or None to restore the default."""
    losses: tuple[str, ...]


async def topic(request: PageRequest) -> PageView:
    """Return the page that shows a topic and its partitions."""
    admin, name = request.admin, request.path["topic"]
    described = await describe(admin, name)
    found = listing(
        described.partitions,
        request.query,
        text_of=lambda one: f"{one.partition} {one.leader}",
        sorts=PARTITION_SORTS,
    )
    rates = await rates_of(admin)
    is_tiered = await _is_tiered(admin, name)
    rows = await partition_rows(admin, name, found, is_tiered=is_tiered)
    own = {} if rates is None else {one.topic: one for one in rates.topics}
    return PageView(
        context={
            "topic": summary_of(described, own.get(name)),
            "partitions": found.with_rows(rows),
            "has_eligible": any(one.eligible is not None for one in rows),
            "is_tiered": is_tiered,
        }
    )


async def describe(admin: Admin, name: str) -> TopicDescription:
    """Return the cluster's description of a topic. Raises RefusedError if the topic does not
    exist."""
    found = (await admin.describe_topics([name], partition_count_max=PARTITIONS_MAX)).get(name)
    if isinstance(found, TopicDescription):
        return found
    if found is not None:
        raise RefusedError(found.code, f"topic {name!r}: {found.message}")
    raise PageError(HTTPStatus.NOT_FOUND, f"there is no topic {name!r}")


def summary_of(described: TopicDescription, rates: TopicRates | None) -> TopicSummary:
    """Return the summary of a topic, for its page."""
    partitions = described.partitions
    return TopicSummary(
        name=described.name,
        topic_id=str(described.topic_id),
        is_internal=described.is_internal,
        partition_count=len(partitions),
        replica_count=max((len(one.replicas) for one in partitions), default=0),
        leaderless_count=sum(one.leader is None for one in partitions),
        under_replicated_count=sum(len(one.in_sync) < len(one.replicas) for one in partitions),
        is_cut=not described.is_complete,
        rates=rates,
    )


async def _is_tiered(admin: Admin, name: str) -> bool:
    """Return whether a topic is tiered. Returns False if the user may not read its settings, or if
    they are not available in time."""
    try:
        with trio.fail_after(TIERED_S):
            return bool(await tiered_topics(admin, [name]))
    except (OttlaError, trio.TooSlowError):
        return False


async def partition_rows(
    admin: Admin, name: str, page: ListPage[PartitionDescription], *, is_tiered: bool = False
) -> list[PartitionRow]:
    """Return table rows about the partitions on one page of a topic, with their offsets and sizes.
    Rows of a tiered topic also have the offsets of its two tiers."""
    places = [TopicPartition(name, one.partition) for one in page.rows]
    leaders = {at: one.leader for at, one in zip(places, page.rows, strict=True)}
    offsets: dict[int, dict[TopicPartition, int]] = {EARLIEST: {}, LATEST: {}}
    if is_tiered:
        offsets |= {EARLIEST_LOCAL: {}, LATEST_TIERED: {}}
    directories: list[BrokerDirectories] | None = None

    async def look_up(time_ms: int) -> None:
        offsets[time_ms] = await known_offsets(admin, leaders, time_ms)

    async def measure() -> None:
        nonlocal directories
        directories = await replica_directories(admin, replicas_by_broker(name, page.rows))

    async with trio.open_nursery() as nursery:
        for time_ms in offsets:
            nursery.start_soon(look_up, time_ms)
        if places:
            nursery.start_soon(measure)
    sizes = size_by_partition(directories or ())
    return [
        PartitionRow(
            partition=one.partition,
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            replicas=one.replicas,
            in_sync=one.in_sync,
            eligible=one.eligible,
            last_known_eligible=one.last_known_eligible,
            offline=one.offline,
            start_offset=offsets[EARLIEST].get(at),
            end_offset=offsets[LATEST].get(at),
            size_bytes=sizes.get(at),
            local_start_offset=offsets.get(EARLIEST_LOCAL, {}).get(at),
            copied_offset=offsets.get(LATEST_TIERED, {}).get(at),
        )
        for at, one in zip(places, page.rows, strict=True)
    ]


def size_by_partition(found: Iterable[BrokerDirectories]) -> dict[TopicPartition, int]:
    """Return the size of each partition's largest replica in bytes."""
    sizes: defaultdict[TopicPartition, int] = defaultdict(int)
    for broker in found:
        for directory in broker.directories:
            for at, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[at] = max(sizes[at], replica.size_bytes)
    return sizes


async def topic_settings(request: PageRequest) -> PageView:
    """Return the page that shows a topic's settings."""
    return await _settings_view(request, None)


async def _settings_view(request: PageRequest, pending: PendingChange | None) -> PageView:
    rows = setting_rows(await read_settings(request.admin, request.path["topic"]), ConfigKind.TOPIC)
    is_own = request.query.get("settings", "") == "changed"
    shown = [one for one in rows if one.is_changed or not is_own]
    return PageView(
        context={
            "settings": listing(shown, request.query, text_of=_text_of, sorts={"key": _key_of}),
            "shows_changed_only": is_own,
            "changed_count": sum(one.is_changed for one in rows),
            "pending": pending,
        },
        template="topic_settings",
    )


async def read_settings(admin: Admin, name: str) -> Mapping[str, ConfigEntry]:
    """Return all settings of a topic, by key."""
    resource = ConfigResource(ConfigKind.TOPIC, name)
    return await admin.describe_configs(resource, has_synonyms=True, has_documentation=True)


async def alter(request: PageRequest) -> PageView:
    """Change one setting of a topic, or restore its default. The user must confirm a change that
    deletes records or puts them at risk."""
    name, key = request.path["topic"], request.form.get("key", "").strip()
    value = None if request.form.get("reset") else request.form.get("value", "").strip()
    if not key:
        raise ConfigError("key", "is missing; name the setting")
    if value is not None and len(value) > VALUE_CHARS_MAX:
        raise ConfigError("value", f"is longer than {VALUE_CHARS_MAX:,} characters")
    before = {one.key: one for one in _rows(await read_settings(request.admin, name))}.get(key)
    after = value
    if after is None and before is not None:
        after = before.default
    losses = losses_of([(key, before.value if before is not None else None, after)])
    if losses and request.role < UserRole.ADMIN:
        raise PageError(
            HTTPStatus.FORBIDDEN, f"this needs the role admin, because {'; '.join(losses)}"
        )
    if losses and not request.form.get("accept"):
        pending = PendingChange(key=key, value=value, losses=tuple(losses))
        return await _settings_view(request, pending)
    changes: dict[str, ConfigChange] = {key: value}
    await request.admin.alter_topic_configs(name, changes)
    done = (
        f"{key} of topic {name} has its default again."
        if value is None
        else (f"{key} of topic {name} is {value} now.")
    )
    return PageView(context={}, location=address(SETTINGS_PATH, request.path), notice=done)


async def add_partitions(request: PageRequest) -> PageView:
    """Add partitions to a topic, up to the total number in the form. Returns a redirect to the page
    of the topic."""
    name, total = (
        request.path["topic"],
        form_number("total", request.form.get("total", ""), least=1),
    )
    await request.admin.create_partitions(name, total)
    return PageView(
        context={},
        location=address(TOPIC_PATH, request.path),
        notice=f"Topic {name} has {total:,} partitions. New records of a key may go to another "
        "partition than the old ones.",
    )


async def trim(request: PageRequest) -> PageView:
    """Delete the records before an offset of one partition, or all records of the topic. Returns a
    redirect to the page of the topic."""
    name = request.path["topic"]
    if request.form.get("all"):
        described = await describe(request.admin, name)
        before = {TopicPartition(name, one.partition): ALL for one in described.partitions}
    else:
        partition = form_number("partition", request.form.get("partition", ""))
        offset = form_number("before", request.form.get("before", ""), digits_max=OFFSET_DIGITS_MAX)
        before = {TopicPartition(name, partition): offset}
    outcomes = await request.admin.try_delete_records(before)
    refusals = {at: one for at, one in outcomes.items() if isinstance(one, RefusedError)}
    for at, refusal in refusals.items():
        raise RefusedError(refusal.code, f"partition {at.partition}: {refusal.message}")
    begins = ", ".join(f"{at.partition} at {one}" for at, one in list(outcomes.items())[:SHOWN])
    return PageView(
        context={},
        location=address(TOPIC_PATH, request.path),
        notice=f"Records of topic {name} were deleted. It now begins in partition {begins}"
        f"{', …' if len(outcomes) > SHOWN else ''}.",
    )


async def elect(request: PageRequest) -> PageView:
    """Elect the first replica of each partition of a topic as the leader. Returns a redirect to the
    page of the topic."""
    name = request.path["topic"]
    described = await describe(request.admin, name)
    places = [TopicPartition(name, one.partition) for one in described.partitions]
    outcomes = await request.admin.try_elect_leaders(places)
    refusals = {
        at: one
        for at, one in outcomes.items()
        if one is not None and one.code is not ErrorCode.ELECTION_NOT_NEEDED
    }
    for at, refusal in refusals.items():
        raise RefusedError(refusal.code, f"partition {at.partition}: {refusal.message}")
    count = sum(one is None for one in outcomes.values())
    return PageView(
        context={},
        location=address(TOPIC_PATH, request.path),
        notice=f"{counted(count, 'partition')} of topic {name} got another leader.",
    )


async def delete(request: PageRequest) -> PageView:
    """Delete a topic and its records. Returns a redirect to the list of topics."""
    name = request.path["topic"]
    await request.admin.delete_topic(name)
    return PageView(context={}, location="/topics", notice=f"Topic {name} was deleted.")


def _rows(settings: Mapping[str, ConfigEntry]) -> list[SettingRow]:
    return setting_rows(settings, ConfigKind.TOPIC)


def _text_of(one: SettingRow) -> str:
    return f"{one.key} {one.documentation}"


def _key_of(one: SettingRow) -> str:
    return one.key


PAGES = (
    Page(
        name="topic",
        path=TOPIC_PATH,
        title="Topic",
        command="ottla topic describe {topic}",
        covers=("ottla topic storage",),
        view=topic,
        lives=(Live(name="topic", path="/live/topics/{topic}", stream=every(LIVE_S, topic)),),
        actions=(
            Action(
                name="topic-add-partitions",
                path="/topics/{topic}/partitions/add",
                command="ottla topic add-partitions {topic} --to {total}",
                run=add_partitions,
            ),
            Action(
                name="topic-elect",
                path="/topics/{topic}/elect",
                command="ottla topic elect {topic}",
                run=elect,
            ),
            Action(
                name="topic-trim",
                path="/topics/{topic}/trim",
                command="ottla topic trim {topic} --before {offset}",
                run=trim,
                role=UserRole.ADMIN,
                confirms="topic",
            ),
            Action(
                name="topic-delete",
                path="/topics/{topic}/delete",
                command="ottla topic delete {topic}",
                run=delete,
                role=UserRole.ADMIN,
                confirms="topic",
            ),
        ),
    ),
    Page(
        name="topic_settings",
        path=SETTINGS_PATH,
        title="Settings of a topic",
        command="ottla config get --topic {topic} --all",
        covers=("ottla config diff", "ottla topic alter"),
        view=topic_settings,
        actions=(
            Action(
                name="topic-alter",
                path="/topics/{topic}/settings/alter",
                command="ottla config set KEY=VALUE --topic {topic}",
                run=alter,
            ),
        ),
    ),
)

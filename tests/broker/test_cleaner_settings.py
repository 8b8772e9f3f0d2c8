"""Settings of compaction that change while a broker runs, for the cleaner and for its logs."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio

from ottla.broker.cluster.settings.dynamic_settings import CLEANER_SETTINGS
from ottla.client import Admin, ConfigKind, ConfigResource, open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.storage.cleaner.cleaner_driver import LogCleaner

VALUES: dict[str, tuple[str, Any]] = {
    "log.cleaner.backoff.ms": ("500", 500),
    "log.cleaner.dedupe.buffer.size": ("2097152", 2_097_152),
    "log.cleaner.io.buffer.load.factor": ("0.5", 0.5),
    "log.cleaner.io.buffer.size": ("65536", 65_536),
    "log.cleaner.io.max.bytes.per.second": ("1000000", 1e6),
    "log.cleaner.threads": ("2", 2),
}

OF_LOGS: dict[str, tuple[str, str, str, Any]] = {
    "log.cleaner.delete.retention.ms": ("delete.retention.ms", "delete_retention_ms", "70", 70),
    "log.cleaner.max.compaction.lag.ms": (
        "max.compaction.lag.ms",
        "max_compaction_lag_ms",
        "9000",
        9_000,
    ),
    "log.cleaner.min.cleanable.ratio": (
        "min.cleanable.dirty.ratio",
        "min_cleanable_dirty_ratio",
        "0.25",
        0.25,
    ),
    "log.cleaner.min.compaction.lag.ms": (
        "min.compaction.lag.ms",
        "min_compaction_lag_ms",
        "800",
        800,
    ),
    "log.cleanup.policy": ("cleanup.policy", "is_compacted", "compact", True),
}
"""Of each default of a broker: the topic's key, the log's field, a value, and what the log has."""


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for the effect of a change: a broker applies it after the controller."""
    with trio.fail_after(60):
        while not is_so():
            await trio.sleep(0.01)


def has(cleaner: LogCleaner, field: str, value: Any) -> bool:
    return bool(getattr(cleaner.config, field) == value)


def test_every_dynamic_setting_of_the_cleaner_is_changed_here() -> None:
    assert VALUES.keys() == CLEANER_SETTINGS.keys()


@pytest.mark.parametrize("name", ["1", ""], ids=["one broker", "the cluster"])
async def test_the_cleaner_takes_each_change_and_its_taking_back(name: str) -> None:
    async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
        cleaner = cluster.brokers[NodeId(1)].logs.cleaner
        broker = ConfigResource(ConfigKind.BROKER, name)
        for key, (text, value) in VALUES.items():
            await admin.alter_configs(broker, {key: text})
            await until(partial(has, cleaner, CLEANER_SETTINGS[key], value))
        assert (await admin.describe_cleaner(NodeId(1))).thread_count == 2
        await admin.alter_configs(broker, dict.fromkeys(VALUES))
        await until(lambda: cleaner.config == CleanerConfig())


async def open_log(admin: Admin, broker: Any) -> Any:
    await admin.create_topic("t", partition_count=1, replication_factor=1)
    at = TopicPartition("t", 0)
    await until(lambda: broker.logs.get(at) is not None)
    return broker.logs.get(at)


@pytest.mark.parametrize("key", OF_LOGS)
async def test_a_log_takes_the_brokers_default_and_the_topics_own_setting_before_it(
    key: str,
) -> None:
    topic_key, field, text, value = OF_LOGS[key]
    async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
        log = await open_log(admin, cluster.brokers[NodeId(1)])
        before = getattr(log.config, field)
        assert before != value
        everywhere = ConfigResource(ConfigKind.BROKER, "")
        own = ConfigResource(ConfigKind.TOPIC, "t")

        await admin.alter_configs(everywhere, {key: text})
        await until(lambda: getattr(log.config, field) == value)
        await admin.alter_configs(everywhere, {key: None})
        await until(lambda: getattr(log.config, field) == before)
        await admin.alter_configs(own, {topic_key: text})
        await until(lambda: getattr(log.config, field) == value)

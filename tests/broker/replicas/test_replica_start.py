"""Changes between the image of the recovery and the first published one."""

import pytest

from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from tests.broker.replicas.manager_bench import (
    FIRST,
    SECOND,
    ManagerBench,
    World,
    image_with,
    publish,
    with_setting,
)


async def recovered_by(managed: ManagerBench, image: MetadataImage, *names: str) -> None:
    """Have logs as a recovery by that image leaves them."""
    for name in names:
        topic = image.topic(name)
        assert topic is not None
        at = TopicPartition(name, 0)
        config = managed.manager.log_config_of(image, at)
        await managed.logs.create(at, topic.id, config)


async def test_a_topic_that_goes_while_the_broker_starts_is_deleted(
    world: World, managed: ManagerBench
) -> None:
    await recovered_by(managed, image_with(world, ("t", FIRST)), "t")
    await publish(managed, image_with(world))
    assert len(managed.logs) == 0


async def test_a_topic_that_is_made_again_while_the_broker_starts_serves(
    world: World, managed: ManagerBench
) -> None:
    await recovered_by(managed, image_with(world, ("t", FIRST)), "t")
    await publish(managed, image_with(world, ("t", SECOND)))
    assert managed.table.find("t", 0).leader_log().topic_id == SECOND


@pytest.mark.parametrize("is_set_before", [False, True])
async def test_settings_that_change_while_the_broker_starts_are_in_force(
    world: World, managed: ManagerBench, is_set_before: bool
) -> None:
    plain = image_with(world, ("t", FIRST))
    kept = with_setting(plain, "retention.ms", "-1")
    await recovered_by(managed, kept if is_set_before else plain, "t")
    await publish(managed, plain if is_set_before else kept)
    log = managed.table.find("t", 0).leader_log()
    assert log.config.retention_ms == (604_800_000 if is_set_before else -1)


async def test_a_name_that_another_topics_log_still_has_is_freed_for_its_new_topic(
    world: World, managed: ManagerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deletion failed, as a full disk makes it."""
    await publish(managed, image_with(world, ("t", FIRST)))

    async def fails(at: TopicPartition) -> None:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(managed.logs, "delete", fails)
        await publish(managed, image_with(world, ("t", SECOND)))
        assert managed.table.find("t", 0).log is None
    world.clock.now_ms += OPEN_RETRY_MS
    managed.manager.retry()
    await managed.work.wait_done()
    assert managed.table.find("t", 0).leader_log().topic_id == SECOND

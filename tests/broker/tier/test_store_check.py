"""A store that refuses the broker is reported when a tiered topic is created, or when a topic gets
tiered storage by its settings."""

from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.broker.tier.store_check_driver import CHECK_AGAIN_S, CREATION_TIMEOUT_S, StoreCheck
from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.resources import ConfigKind
from ottla.storage.tier.store_seam import StoreError, StoreRefusedError


class Probe:
    """A write to a store that fails as the test says."""

    def __init__(self) -> None:
        self.error: StoreError | None = None
        self.duration_s = 0.0
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1
        await trio.sleep(self.duration_s)
        if self.error is not None:
            raise self.error


async def test_only_a_refusal_forbids_a_tiered_topic(autojump_clock: Any) -> None:
    probe = Probe()
    check = StoreCheck(probe, is_usable=True)
    assert await check.refusal() == ""
    probe.error = StoreRefusedError("no bucket")
    assert await check.refusal() == ""  # the last result is a moment old
    await trio.sleep(CHECK_AGAIN_S)
    assert await check.refusal() == "no bucket"
    await check.require_usable()  # uploads decide whether the store is checked before the next one
    check.on_failure()
    with pytest.raises(StoreRefusedError):
        await check.require_usable()
    assert probe.count == 2
    probe.error = StoreError("down")
    await trio.sleep(CHECK_AGAIN_S)
    assert await check.refusal() == ""
    probe.error, probe.duration_s = None, 100
    await trio.sleep(CHECK_AGAIN_S)
    with trio.fail_after(CREATION_TIMEOUT_S + 1):
        assert await check.refusal() == ""


async def replaced(admin: Any, settings: dict[str, str]) -> None:
    await admin.replace_configs(ConfigResource(ConfigKind.TOPIC, "local"), settings)


async def test_a_tiered_topic_is_refused_in_a_sentence_and_others_are_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(store: object, cluster_id: str) -> None:
        raise StoreRefusedError("the bucket of the object store does not exist: b")

    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": "memory:",
    }
    with trio.fail_after(30):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            tiered = {"remote.storage.enable": "true"}
            await admin.create_topic("before", configs=tiered)
            (broker,) = cluster.brokers.values()
            assert broker.tier is not None
            check = broker.tier.refusal.__self__._check
            monkeypatch.setattr(check, "_probe", lambda: refuse(None, ""))
            monkeypatch.setattr(check, "_probed_at", -1e9)
            with pytest.raises(RefusedError, match="bucket of the object store does not") as caught:
                await admin.create_topic("after", configs=tiered)
            assert caught.value.code is ErrorCode.INVALID_CONFIG
            await admin.create_topic("local")
            same = (caught.value.code, caught.value.message)
            for change in (admin.alter_topic_configs("local", tiered), replaced(admin, tiered)):
                with pytest.raises(RefusedError) as altered:
                    await change
                assert (altered.value.code, altered.value.message) == same
            # The store is not asked about a topic that is tiered already, or stays local.
            await admin.alter_topic_configs("before", {**tiered, "segment.ms": "100000"})
            await admin.alter_topic_configs("local", {"remote.storage.enable": "false"})
            assert set(await admin.list_topics()) >= {"before", "local"}
            assert "after" not in await admin.list_topics()

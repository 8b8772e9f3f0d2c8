"""Output of `ottla status`: progress of a recovery, versions, under-replicated partitions."""

import trio

from ottla.cli.cluster.status import (
    _tier_lines,
    recovery_text,
    shown,
    status_of,
    tier_totals,
    under_replicated,
)
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.changes.cordon_driver import set_cordon
from ottla.insight.facts.survey_driver import SurveyedBroker, brokers_of
from ottla.model.version import VERSION
from ottla.wire.messages.describe_node_response import RecoveringLogDir


def recovering(done: int, *, segments: int = 3) -> RecoveringLogDir:
    return RecoveringLogDir(
        log_dir="/data", remaining_segments=segments, bytes_total=1_000, bytes_done=done
    )


def test_the_time_that_is_left_follows_from_what_was_done_meanwhile() -> None:
    assert recovery_text(recovering(400), 300) == "recovered 40 %, 3 segments left, some 6 s"
    assert recovery_text(recovering(401), 1) == "recovered 40 %, 3 segments left, some 2 s"


def test_no_remaining_time_is_estimated_without_progress_or_remaining_work() -> None:
    assert recovery_text(recovering(400), 400) == "recovered 40 %, 3 segments left"
    assert recovery_text(recovering(1_000, segments=0), 900) == "recovered 100 %"
    assert recovery_text(recovering(1_100, segments=0), 900) == "recovered 100 %"


async def test_brokers_show_their_versions_and_partitions_what_they_miss() -> None:
    with trio.fail_after(60):
        async with (
            open_test_cluster(broker_count=2) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic("orders", partition_count=2, replication_factor=2)
            assert await under_replicated(admin) == []
            found = await status_of(admin)
            assert [one["version"] for one in found["brokers"]] == [VERSION, VERSION]
            assert "VERSION" in shown(found) and VERSION in shown(found)
            while not (voters := (await status_of(admin))["quorum"]["voters"])[0]["version"]:
                await trio.sleep(0.01)  # the controller registers after its first metadata
            assert [one["version"] for one in voters] == [VERSION]
            *_, controller = shown(await status_of(admin)).splitlines()
            assert controller.split()[2:] == ["leader", "0", VERSION]

            await cluster.stop(2)

            while len(missing := await under_replicated(admin)) < 2:
                await trio.sleep(0.01)
            assert [one[:2] for one in missing] == [("orders", 0), ("orders", 1)]
            assert {tuple(one.missing) for one in missing} == {(2,)}
            assert all(one.isr == [1] and sorted(one.replicas) == [1, 2] for one in missing)
            (_, stopped) = (await status_of(admin))["brokers"]
            assert stopped["version"] is None


async def test_a_cordoned_broker_is_shown_as_such() -> None:
    with trio.fail_after(60):
        async with (
            open_test_cluster(broker_count=2) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await set_cordon(admin, 2, is_cordoned=True)

            while not (await brokers_of(admin, only=2))[0].is_cordoned:
                await trio.sleep(0.01)
            found = await status_of(admin)
            assert [one["cordoned"] for one in found["brokers"]] == [False, True]
            assert [one["standing"] for one in found["brokers"]] == ["active", "active"]
            assert shown(found).count("active, cordoned") == 1


def test_copies_of_segments_are_totalled_over_brokers() -> None:
    def broker(number: int, **metrics: float) -> SurveyedBroker:
        named = {key.replace("_", "."): value for key, value in metrics.items()}
        return SurveyedBroker(
            id=number, host="h", port=1, rack=None, is_fenced=False, metrics=named
        )

    assert tier_totals([broker(1)]) is None
    totals = tier_totals(
        [
            broker(1, tier_remote_bytes=3 << 30, tier_remote_segments=3, tier_lag_bytes=0),
            broker(2, tier_remote_bytes=1 << 30, tier_remote_segments=1, tier_lag_bytes=512,
                   tier_lag_segments=1, tier_failures=2),
        ]
    )  # fmt: skip
    assert totals == {
        "copied_bytes": 4 << 30,
        "copied_segments": 4,
        "waiting_bytes": 512,
        "waiting_segments": 1,
        "failures": 2,
    }
    assert _tier_lines(totals) == [
        "tier        4 GiB in 4 segments copied, 512 bytes in 1 segment wait, 2 failures of the "
        "object store; see 'ottla tier status'"
    ]

"""`ottla topic reassign --adapt`: the controllers make the moves of an operator."""

import pytest
import trio

from ottla.cli.cluster.moves.reassign import reassign
from ottla.client.admin import Admin
from ottla.insight.facts.stored_plan import read_stored_plan
from ottla.model.errors import ConfigError, RefusedError
from tests.cli.cluster.moves.test_throttled_moves import asked, moving_cluster

TIMEOUT_S = 30.0


async def replicas_of_orders(admin: Admin) -> list[int]:
    (topic,) = (await admin.cluster.metadata(["orders"])).topics
    return list(topic.partitions[0].replica_nodes)


async def test_the_controllers_make_the_moves_of_an_operator_under_their_throttle(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with moving_cluster() as (_, admin):
        (before,) = await replicas_of_orders(admin)
        after = 3 - before

        words = f"orders --brokers {after} --yes --adapt --throttle 200k --no-wait"
        assert await reassign(admin, asked(words)) == 0
        assert "'ottla cluster balance --status' shows them" in capsys.readouterr().err
        with trio.fail_after(TIMEOUT_S):
            while not (plan := await read_stored_plan(admin)).moves:
                pass
        assert [move.after for move in plan.moves] == [(after,)]
        assert plan.rate == 200_000
        with pytest.raises(RefusedError, match="is in progress"):
            await reassign(admin, asked("orders --brokers 1,2 --yes --adapt"))
        await admin.alter_broker_configs(None, {"ottla.balance.plan": None})
        assert await replicas_of_orders(admin) == [before]

        assert await reassign(admin, asked(f"orders --brokers {after} --yes --adapt")) == 0
        assert "1 partition changed in" in capsys.readouterr().err
        assert await replicas_of_orders(admin) == [after]


async def test_what_the_controllers_cannot_make_is_refused() -> None:
    async with moving_cluster() as (_, admin):
        for words, reason in (
            ("orders --adapt", "belongs to --brokers"),
            ("--cancel --adapt", "belongs to --brokers"),
            ("orders --brokers 1,2 -r 2 --adapt", "number of replicas of orders-0"),
        ):
            with pytest.raises(ConfigError, match=reason):
                await reassign(admin, asked(words))
        assert not await admin.list_reassignments()

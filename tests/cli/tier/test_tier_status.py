"""`ottla tier status`: offsets of tiered topics in a running cluster."""

import json
from argparse import Namespace

import pytest
import trio

from ottla.cli.tier.tier_status import cells, status
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight.facts.topics.tier_driver import TieredPartition
from ottla.model.ids import TopicPartition


async def test_a_cluster_without_tiered_topics_has_an_empty_status(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with trio.fail_after(30):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            assert await status(admin, Namespace(topic=["orders"], format="json")) == 0
            shown = capsys.readouterr()
            assert json.loads(shown.out) == []
            assert "topic orders is not tiered" in shown.err
            assert await status(admin, Namespace(topic=[], format="table")) == 0
            assert "no topic is tiered" in capsys.readouterr().err


def test_records_of_one_tier_are_counted() -> None:
    at = TopicPartition("orders", 0)
    row = TieredPartition(
        at, start_offset=10, local_start_offset=70, copied_offset=89, end_offset=100
    )
    assert (row.only_copied, row.not_copied) == (60, 10)
    assert cells(row)[3] == 89
    new = TieredPartition(at, start_offset=0, local_start_offset=0, copied_offset=-1, end_offset=5)
    assert (new.only_copied, new.not_copied, cells(new)[3]) == (0, 5, None)
    # A leader that has raised its log start above what is copied has lost nothing.
    assert new._replace(start_offset=4).not_copied == 1

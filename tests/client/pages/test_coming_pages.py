"""docs/from-*.md: on each page, the other client's programs and Ottla's print the same."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import ottla.testing
from ottla.client import ConsumerConfig, ProducerConfig
from ottla.client.aio import open_admin
from ottla.model.settings.declare import definitions
from ottla.testing.sync_cluster import SyncCluster

DOCS = Path(__file__).parents[3] / "docs"
KEYWORD_PAGES = ("from-aiokafka.md", "from-kafka-python.md")
PAGES = ("from-confluent-kafka.md", *KEYWORD_PAGES)
KEYS = {
    "max_batch_size": "batch.size",
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.truststore.location",
}
"""Kafka's key for each keyword of another client that is not Kafka's key with underscores."""


class Transcript(NamedTuple):
    """Lines that the programs of one client print, sorted, and the offsets they committed."""

    created: list[str]
    produced: list[str]
    waiting: list[str]
    consumed: list[str]
    done: list[str]
    billed: list[str]
    billed_offsets: dict[int, int]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SyncCluster]:
    with ottla.testing.cluster() as opened:
        yield opened


def blocks(page: str) -> list[str]:
    """Return the programs of a page: four pairs, and perhaps one of settings."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)


async def billed_offsets(bootstrap: str) -> dict[int, int]:
    """Return the offsets that the transactions committed, by partition of `orders`."""
    async with open_admin(bootstrap) as admin:
        found = await admin.group_offsets("billing-2")
        return {at.partition: one.offset for at, one in found.items() if one.offset > 0}


def run_all(
    programs: list[str], cluster: SyncCluster, capsys: pytest.CaptureFixture[str]
) -> Transcript:
    """Run the programs of one client on an empty cluster, and empty it again."""

    def run(program: str) -> list[str]:
        capsys.readouterr()
        program = program.replace("localhost:9092", cluster.bootstrap)
        exec(compile(program, "a page", "exec"), {"__name__": "__main__"})
        return sorted(capsys.readouterr().out.splitlines())

    admin, produce, consume, transaction = programs
    printed = Transcript(
        created=run(admin),
        produced=run(produce),
        waiting=run(admin),
        consumed=run(consume),
        done=run(admin),
        billed=run(transaction),
        billed_offsets=asyncio.run(billed_offsets(cluster.bootstrap)),
    )
    cluster.reset()
    return printed


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_both_clients_print_the_same(
    page: str, cluster: SyncCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = blocks(page)

    theirs = run_all(programs[0:8:2], cluster, capsys)
    ours = run_all(programs[1:8:2], cluster, capsys)

    assert ours == theirs
    assert ours.created == ["0 0 0", "1 0 0", "2 0 0"]
    assert len(ours.produced) == len(ours.consumed) == len(ours.billed) == 3
    assert sum(int(line.split()[2]) for line in ours.waiting) == 3
    assert [line.split()[2] for line in ours.done] == ["0", "0", "0"]
    assert sum(ours.billed_offsets.values()) == 3


@pytest.mark.parametrize("page", KEYWORD_PAGES)
def test_the_fields_of_the_settings_table_have_the_keys_of_its_keywords(page: str) -> None:
    known = {**definitions(ProducerConfig), **definitions(ConsumerConfig)}
    section = (DOCS / page).read_text("utf-8").split("## Settings")[1].split("```")[0]
    pairs = re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", section, re.MULTILINE)

    assert len(pairs) > 10
    for keyword, field in pairs:
        assert known[KEYS.get(keyword, keyword.replace("_", "."))].field_name == field


@pytest.mark.parametrize("page", KEYWORD_PAGES)
def test_the_settings_with_a_login_are_accepted(page: str) -> None:
    names: dict[str, ConsumerConfig] = {}
    exec(compile(blocks(page)[8], page, "exec"), names)

    assert names["CONFIG"].login() is not None

"""`ottla consume --share`: records of a queue are printed and accepted."""

import sys

import pytest
import trio

from ottla.cli.main import run
from ottla.client import ConfigKind, ConfigResource, open_admin, open_producer
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster

__all__ = ["ottla_cluster"]

END_S = 60


@pytest.fixture
async def filled(ottla_cluster: ClusterUnderTest) -> ClusterUnderTest:
    """A cluster with ten mails, and a group that takes them from the start."""
    async with open_admin(ottla_cluster.bootstrap) as admin:
        await admin.create_topic("mails", partition_count=2)
        group = ConfigResource(ConfigKind.GROUP, "mail")
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await producer.send_many("mails", [b"mail %d" % one for one in range(10)])
    return ottla_cluster


async def consume(cluster: ClusterUnderTest, *words: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-m", "ottla.cli", "consume", "mails", "--share", "mail", *words]
    command += ["--bootstrap", cluster.bootstrap]
    with trio.fail_after(END_S):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
    return done.returncode, sorted(done.stdout.decode().splitlines()), done.stderr.decode()


async def test_each_record_is_printed_once(filled: ClusterUnderTest) -> None:
    code, first, messages = await consume(filled, "-c", "4")
    assert code == 0 and len(first) == 4
    assert "4 records accepted as a member of share group mail" in messages
    code, rest, _ = await consume(filled, "-e")
    assert code == 0
    assert sorted(first + rest) == [f"mail {one}" for one in range(10)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--group", "g"], "--share"),
        (["-p", "0"], "--partition"),
        (["-o", "end"], "share.auto.offset.reset"),
        (["--isolation-level", "read_uncommitted"], "share.isolation.level"),
        (["--regex"], "whole names"),
    ],
)
def test_options_that_a_share_group_lacks_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["consume", "mails", "--share", "mail", "--bootstrap", "localhost:1", *words]) != 0
    assert message in capsys.readouterr().err

"""`ottla consume` of several topics, by patterns, and as a member of a group that commits."""

import signal
import subprocess
import sys
from functools import partial

import pytest
import trio

from ottla.cli.main import run
from ottla.cli.records.wanted_topics import WantedTopics
from ottla.client import open_admin, open_producer
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ConfigError

__all__ = ["ottla_cluster"]

GROUP = "readers"
END_S = 60
RECORDS = 5

Output = tuple[int, list[str], str]


@pytest.mark.parametrize(
    ("words", "is_regex", "matching"),
    [
        (["a", "b"], False, {"a", "b"}),
        (["^a"], False, {"a", "ab", "a.b"}),
        (["^a$"], False, {"a"}),
        (["^a|b"], False, {"a", "ab", "a.b", "b"}),
        (["a.b"], False, {"a.b"}),
        (["a.?b?", "b"], True, {"a", "ab", "a.b", "b"}),
        (["a"], True, {"a"}),
        (["^a", "b"], False, {"a", "ab", "a.b", "b"}),
    ],
)
def test_a_word_with_a_circumflex_is_a_pattern_and_with_an_option_all_are(
    words: list[str], is_regex: bool, matching: set[str]
) -> None:
    wanted = WantedTopics(words, is_regex=is_regex)
    assert set(filter(wanted.matches, ("a", "ab", "a.b", "b", "cab"))) == matching


def test_what_is_no_regular_expression_is_named() -> None:
    with pytest.raises(ConfigError, match=r"TOPIC: '\^\(' is no regular expression"):
        WantedTopics(["a", "^("], is_regex=False)


@pytest.fixture
async def filled(ottla_cluster: ClusterUnderTest) -> ClusterUnderTest:
    """A cluster with two topics of orders, and another one."""
    async with open_producer(ottla_cluster.bootstrap) as producer:
        for topic in ("orders-a", "orders-b", "payments"):
            for number in range(RECORDS):
                await producer.send(topic, b"%s %d" % (topic.encode(), number))
    return ottla_cluster


async def consume(cluster: ClusterUnderTest, *words: str) -> Output:
    """Run the command in a process of its own; return its code, sorted output and messages."""
    command = [sys.executable, "-m", "ottla.cli", "consume", *words]
    command += ["--bootstrap", cluster.bootstrap]
    with trio.fail_after(END_S):
        done = await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )
    return done.returncode, sorted(done.stdout.decode().splitlines()), done.stderr.decode()


async def committed(cluster: ClusterUnderTest) -> dict[str, int]:
    """Return how many records of each topic the group has done with."""
    found: dict[str, int] = {}
    async with open_admin(cluster.bootstrap) as admin:
        offsets = await admin.group_offsets(GROUP)
        for at, one in offsets.items():
            found[at.topic] = found.get(at.topic, 0) + max(0, one.offset)
    return found


def lines(*topics: str) -> list[str]:
    return sorted(f"{topic} {number}" for topic in topics for number in range(RECORDS))


async def test_several_topics_and_patterns_are_read_without_a_group(
    filled: ClusterUnderTest,
) -> None:
    assert (await consume(filled, "orders-a", "payments", "-e"))[:2] == (
        0,
        lines("orders-a", "payments"),
    )
    code, output, said = await consume(filled, "^orders", "-e")
    assert (code, output) == (0, lines("orders-a", "orders-b"))
    assert "10 records read from orders-a, orders-b" in said
    assert (await consume(filled, "--regex", ".*a.*", "-e", "-f", "%t %s\\n"))[1] == [
        f"{line.split()[0]} {line}" for line in lines("orders-a", "payments")
    ]


async def test_a_member_goes_on_where_the_group_has_committed(filled: ClusterUnderTest) -> None:
    read = partial(consume, filled, "^orders", "-G", GROUP, "-o", "beginning")

    code, first, _ = await read("-c", "3")
    assert (code, len(first)) == (0, 3)
    assert sum((await committed(filled)).values()) == 3

    code, rest, said = await read("-e")
    assert (code, sorted(first + rest)) == (0, lines("orders-a", "orders-b"))
    assert f"7 records read as a member of group {GROUP}" in said
    assert await committed(filled) == {"orders-a": RECORDS, "orders-b": RECORDS}
    assert (await read("-e"))[:2] == (0, [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_ends_a_member_which_commits_what_it_has_printed(
    number: signal.Signals, filled: ClusterUnderTest
) -> None:
    command = [sys.executable, "-m", "ottla.cli", "consume", "payments", "-G", GROUP]
    command += ["-o", "beginning", "--bootstrap", filled.bootstrap]
    with trio.fail_after(END_S):
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        printed = b""
        while printed.count(b"\n") < RECORDS:
            printed += await process.stdout.receive_some()
        process.send_signal(number)
        assert await process.wait() == 130

    assert await committed(filled) == {"payments": RECORDS}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["ordres-a"], "there is no topic 'ordres-a' (did you mean 'orders-a'?)"),
        (["^nothing"], "there is no topic of which the name matches ^nothing"),
        (["orders-a", "orders-b", "-p", "0"], "--partition: belongs to one topic"),
        (["^orders", "-p", "0"], "--partition: belongs to one topic"),
        (["orders-a", "-p", "0", "-G", GROUP], "--partition: is assigned by the group"),
        (["orders-a", "-o", "5", "-G", GROUP], "--offset: is '5'; with --group it must be"),
        (["nothing", "-G", GROUP], "there is no topic 'nothing'"),
    ],
)
async def test_what_cannot_be_meant_is_refused_in_one_sentence(
    words: list[str], reason: str, filled: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["consume", *words, "--bootstrap", filled.bootstrap]
    assert await trio.to_thread.run_sync(run, line) == 1
    assert reason in capsys.readouterr().err

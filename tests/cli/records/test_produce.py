"""`ottla produce --transactional-id`: all lines count, or none, on a real broker."""

import argparse
import io
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from ottla.cli.records import consume, produce
from ottla.cli.verbs import declare
from ottla.client.admin import open_admin
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError

TIMEOUT_S = 60


class Input:
    """Standard input of lines, which may end in an error."""

    def __init__(self, *lines: bytes, fault: Exception | None = None) -> None:
        self._lines = lines
        self._fault = fault
        self.buffer = self

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines
        if self._fault is not None:
            raise self._fault

    def isatty(self) -> bool:
        """Hand on each line at once."""
        return True


async def ottla(command: Any, bootstrap: str, *words: str) -> int:
    """Run a command with a loop of its own while the cluster's loop runs."""
    parser = argparse.ArgumentParser()
    declare(parser, command)
    arguments = parser.parse_args([*words, "--bootstrap", bootstrap])
    return int(await trio.to_thread.run_sync(command.run, arguments))


async def consumed(bootstrap: str, level: str, monkeypatch: Any) -> list[str]:
    """Return the output of `ottla consume -e`."""
    out = io.TextIOWrapper(io.BytesIO())
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", out)
        await ottla(consume, bootstrap, "orders", "-e", "-K", ":", "--isolation-level", level)
    out.seek(0)
    return sorted(out.read().splitlines())


async def test_the_lines_of_a_whole_input_are_one_transaction(monkeypatch: Any) -> None:
    words = ("orders", "--transactional-id", "pay", "-K", ":", "-z", "lz4")
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=2)
            monkeypatch.setattr("sys.stdin", Input(b"a:1\n", b"b:2\n"))
            assert await ottla(produce, cluster.bootstrap, *words) == 0
            fault = OSError("the input is torn")
            monkeypatch.setattr("sys.stdin", Input(b"c:3\n", b"d:4\n", fault=fault))
            with pytest.raises(OSError, match="torn"):
                await ottla(produce, cluster.bootstrap, *words)
            committed = await consumed(cluster.bootstrap, "read_committed", monkeypatch)
            assert committed == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--acks", "1"], "a transaction needs all"),
        (["-p", "7"], "the topic has 0 to 0"),
    ],
)
async def test_what_no_transaction_can_have_is_one_sentence(words: list[str], said: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("orders", partition_count=1)
            with pytest.raises(ConfigError, match=said):
                await ottla(
                    produce, cluster.bootstrap, "orders", "--transactional-id", "pay", *words
                )


async def test_a_timeout_that_the_broker_refuses_ends_the_command() -> None:
    settings = {"transaction.max.timeout.ms": "1000"}
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster(settings=settings) as cluster,
            open_admin(cluster.bootstrap) as admin,
        ):
            await admin.create_topic("orders", partition_count=1)
            with pytest.raises(RefusedError) as refused:
                await ottla(produce, cluster.bootstrap, "orders", "--transactional-id", "pay")
            assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

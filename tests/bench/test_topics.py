"""The topics of a benchmark run are created and always deleted; topics of the user are kept."""

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from ottla.bench import commands
from ottla.bench.load import Load
from ottla.bench.result import Result
from ottla.bench.topics import fresh_name, open_topics
from ottla.cli.main import run
from ottla.client import open_admin
from ottla.client.testing import ClusterUnderTest
from ottla.client.testing.fixtures import ottla_cluster
from ottla.model.errors import ErrorCode, RefusedError
from ottla.node.local.interrupts_driver import lasting_interrupts

__all__ = ["ottla_cluster"]

END_S = 240
COUNT = "50"

Run = Callable[..., Awaitable[int]]


@pytest.fixture
def bench(ottla_cluster: ClusterUnderTest) -> Run:
    """`ottla bench` beside the cluster's loop."""

    async def started(*words: str) -> int:
        line = ["bench", *words, "--bootstrap", ottla_cluster.bootstrap]
        return await trio.to_thread.run_sync(run, line)

    return started


async def topics_of(cluster: ClusterUnderTest) -> list[str]:
    async with open_admin(cluster.bootstrap) as admin:
        return list(await admin.list_topics())


def test_no_two_runs_have_the_same_topic() -> None:
    assert len({fresh_name() for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "words",
    [
        ("produce", "--count", COUNT),
        ("consume", "--count", COUNT),
        ("e2e", "--count", "3"),
        ("requests", "--count", COUNT),
        ("commits", "--count", COUNT, "--connections=2"),
        ("clients", "--count", COUNT, "--rounds=1"),
    ],
    ids=lambda words: words[0],
)
async def test_a_run_leaves_no_topic_behind(
    words: Sequence[str],
    bench: Run,
    ottla_cluster: ClusterUnderTest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await bench(*words) == 0

    assert await topics_of(ottla_cluster) == []
    assert "topic" not in capsys.readouterr().err


async def test_consume_reads_only_what_its_own_run_has_written(
    bench: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for count in ("50", "60"):
        assert await bench("consume", "--count", count, "--format=json") == 0
        assert f'"count": {count},' in capsys.readouterr().out


async def test_a_topic_that_the_user_names_is_kept_and_the_run_says_so(
    bench: Run, ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await bench("produce", "--count", COUNT, "--topic=mine") == 0

    assert await topics_of(ottla_cluster) == ["mine"]
    assert "kept topic mine" in capsys.readouterr().err
    assert await bench("consume", "--count", COUNT, "--topic=mine") == 0


async def test_a_new_topic_is_kept_on_request(
    bench: Run, ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await bench("produce", "--count", COUNT, "--keep") == 0

    (name,) = await topics_of(ottla_cluster)
    assert f"kept topic {name}" in capsys.readouterr().err


async def test_a_run_that_fails_leaves_no_topic_behind(
    bench: Run, ottla_cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(load: Load, progress: object) -> Result:
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "a record did not come")

    monkeypatch.setitem(commands.LOADS, "e2e", fail)

    assert await bench("e2e", "--count=1") == 1
    assert await topics_of(ottla_cluster) == []


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        (("e2e", "--count=1000000"), signal.SIGINT, 130),
        (("e2e", "--count=1000000"), signal.SIGTERM, 130),
        (("steady", "--rate=1000", "--ledger=ledger"), signal.SIGINT, 0),
    ],
)
async def test_a_run_that_is_interrupted_leaves_no_topic_behind(
    words: Sequence[str],
    number: signal.Signals,
    code: int,
    ottla_cluster: ClusterUnderTest,
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger"
    command = [sys.executable, "-m", "ottla.cli", "bench", *words]
    command += ["--bootstrap", ottla_cluster.bootstrap]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with (tmp_path / "stderr").open("wb") as stderr:
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(
                    trio.run_process,
                    command,
                    check=False,
                    capture_stdout=True,
                    stderr=stderr,
                    cwd=tmp_path,
                    env=environment,
                )
            )
            with trio.move_on_after(END_S) as patience:
                async with open_admin(ottla_cluster.bootstrap) as admin:
                    while not await admin.list_topics():
                        await trio.sleep(0.05)
                while words[0] == "steady" and not (
                    ledger.exists() and ledger.stat().st_size > 1_000
                ):
                    await trio.sleep(0.05)
                process.send_signal(number)
                await process.wait()
            if patience.cancelled_caught:
                # faulthandler writes where each thread stands, which the assertion shows.
                process.send_signal(signal.SIGABRT)

    assert process.returncode == code, (tmp_path / "stderr").read_text()
    assert await topics_of(ottla_cluster) == []


def test_an_interrupt_that_c_code_lost_ends_the_run_at_its_next_progress() -> None:
    with pytest.raises(KeyboardInterrupt), lasting_interrupts() as check:
        check()
        with suppress(KeyboardInterrupt):  # as C code does that makes an object
            signal.raise_signal(signal.SIGTERM)
        check()


def test_sigterm_waits_until_trios_own_frames_have_ended() -> None:
    went_on = []

    @trio.lowlevel.enable_ki_protection
    def terminate() -> None:
        signal.raise_signal(signal.SIGTERM)
        went_on.append(True)

    async def run() -> None:
        terminate()
        await trio.sleep_forever()

    with open_topics("localhost:1", None, is_kept=False), pytest.raises(KeyboardInterrupt):
        trio.run(run)
    assert went_on


def test_a_cluster_that_has_gone_is_named_with_what_is_left_in_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_topics("localhost:1", None, is_kept=False) as topics:
        name = topics.claim(topics.name)

    assert f"topic {name} could not be deleted" in capsys.readouterr().err

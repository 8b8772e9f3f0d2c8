"""The programs of docs/client.md run unchanged."""

import re
from pathlib import Path

import pytest
import trio

from ottla.client.testing import ClusterUnderTest

PAGE = (Path(__file__).parents[3] / "docs" / "client.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = {
    "list_topics": ["b'message 0'", "b'message 9'"],
    "readings-many": ["0 0 "],
    "poll_batches": ["499.5"],
    "asyncio.run": ["RecordMetadata(topic='hello'", "b'from asyncio'"],
    "to_json": ["customer 7 9.5"],
    "protobuf": ["1700000000"],
    "fastavro": ["21.5"],
    "partition_by": ["b'islands' True", "b'mainland' False"],
    "exclude=": ["audit-logins b'ann'"],
    "MarkingProducer": ["1 delivered"],
}


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == len(PRINTED)


@pytest.mark.parametrize("mark", PRINTED)
async def test_a_program_prints_what_it_wrote(
    mark: str, ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    if mark == "fastavro":
        pytest.importorskip("fastavro")
    (program,) = (one for one in PROGRAMS if mark in one)
    program = program.replace("localhost:9092", ottla_cluster.bootstrap)
    names = {"__name__": "__main__"}
    await trio.to_thread.run_sync(exec, compile(program, f"client.md: {mark}", "exec"), names)
    printed = capsys.readouterr().out
    for text in PRINTED[mark]:
        assert text in printed

"""The programs of docs/client-schemas.md run unchanged."""

import re
from pathlib import Path

import pytest
import trio

from ottla.client.testing import ClusterUnderTest
from tests.client.registry.registry_server import serve_registry

PAGE = (Path(__file__).parents[3] / "docs" / "client-schemas.md").read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = {
    "avro-readings": "north 21.5\n",
    "json-orders": "order 7\n",
    "proto-times": "seconds 1700000000\n",
    "file_registry": "b'\\x00\\x00\\x00\\x00\\x01\\nhello'\nhello\n",
}


def test_every_program_is_run() -> None:
    assert len(PROGRAMS) == len(PRINTED)


async def test_the_programs_print_what_they_wrote(
    ottla_cluster: ClusterUnderTest, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serve_registry(tmp_path) as server:
        for mark, expected in PRINTED.items():
            (program,) = (one for one in PROGRAMS if mark in one)
            program = program.replace("localhost:9092", ottla_cluster.bootstrap)
            code = compile(
                program.replace("http://localhost:8081", server.url), f"schemas: {mark}", "exec"
            )
            await trio.to_thread.run_sync(exec, code, {"__name__": "__main__"})
            assert capsys.readouterr().out == expected

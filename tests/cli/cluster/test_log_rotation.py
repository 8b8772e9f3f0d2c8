"""`ottla up` keeps DIR/logs/broker-1.log: full files become .1, .2, …, and the oldest go."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.cluster

FILE_BYTES_MAX = 1_024
FILES_KEPT = 1
STARTS = 5
"""Each logs about half a file: the lines of the first one have gone after the last."""


def test_full_log_files_are_renamed_and_the_oldest_go(up: Callable[..., Any]) -> None:
    for _ in range(STARTS):
        cluster = up(
            "--port=0",
            f"--set=log.file.max.bytes={FILE_BYTES_MAX}",
            f"--set=log.file.max.count={FILES_KEPT}",
        )
        cluster.stop()
        cluster.path.unlink()  # lest the next start seems to be ready at once

    folder = cluster.directory / "logs"
    names = ["broker-1.log.1", "broker-1.log"]
    assert sorted(path.name for path in folder.glob("broker-1.log*")) == sorted(names)
    texts = [(folder / name).read_text() for name in names]
    assert all(0 < len(text) <= FILE_BYTES_MAX for text in texts)
    lines = "".join(texts).splitlines()
    times = [line[: len("2026-11-23 20:41:22,537")] for line in lines]
    assert times == sorted(times)
    assert all(" [broker 1] " in line for line in lines)
    assert " node.stopped " in lines[-1]
    assert 0 < sum(" node.stopped " in line for line in lines) < STARTS

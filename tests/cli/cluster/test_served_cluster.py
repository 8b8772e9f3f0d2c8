"""The process of `ottla up` while its nodes run: the size of its log."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.cli.cluster.served_cluster import ServedCluster
from ottla.node.local.resting_driver import LOG_BYTES_MAX


class RestlessCluster:
    """A cluster whose nodes keep ending, so that its process never rests."""

    def watch(self, look_s: float, look: Callable[[], None], rest: Callable[[], None]) -> int:
        look()
        return 0

    def stop(self) -> None:
        pass


def test_the_log_of_a_process_that_never_rests_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    with log.open("wb") as file:
        file.truncate(LOG_BYTES_MAX + 1)
    cluster: Any = RestlessCluster()
    served = ServedCluster(
        cluster=cluster, directory=tmp_path, restarts=True, is_removed=False, log=log
    )

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert served.run(lambda: 0) == 0
    finally:
        signal.signal(signal.SIGTERM, before)

    assert log.stat().st_size == 0

"""What local processes cost, as the kernel counts it: CPU seconds and resident memory."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.model.errors import ConfigError

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
CPUCLOCK_SCHED = 2
KIB = 1024
NANOSECONDS_PER_SECOND = 1_000_000_000


class Usage(NamedTuple):
    """CPU seconds used so far and resident bytes now, over all processes measured."""

    user_s: float
    system_s: float
    rss_bytes: int

    def since(self, earlier: "Usage") -> "Usage":
        """Return what was used since an earlier reading; memory as it is now."""
        return Usage(self.user_s - earlier.user_s, self.system_s - earlier.system_s, self.rss_bytes)


def usage_of(pids: Sequence[int]) -> Usage:
    """Read the usage of some processes; raise ConfigError naming one that does not run."""
    user = system = rss = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            raise ConfigError("--pid", f"is {pid}; no process of that id runs here") from None
        user += int(fields[11])
        system += int(fields[12])
        rss += int(fields[21])
    return Usage(user / TICKS_PER_SECOND, system / TICKS_PER_SECOND, rss * PAGE_BYTES)


def shared_once_bytes(pids: Sequence[int]) -> int:
    """Return the memory of processes, a page of several processes shared among them (PSS).

    What they share with other processes of the machine counts in part; resident memory counts a
    page that two of them share twice.
    """
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * KIB


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes, all their threads included, to the nanosecond."""
    # A process's own clock, by the number that the kernel gives it (clock_getcpuclockid).
    return sum(time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED) for pid in pids)


def main_thread_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of the processes' main threads, where a node's loop runs."""
    # By the scheduler's own count: ticks are too coarse for some seconds of a calm loop.
    paths = (Path(f"/proc/{pid}/task/{pid}/schedstat") for pid in pids)
    return sum(int(path.read_text().split()[0]) for path in paths) / NANOSECONDS_PER_SECOND


def tree_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, those that have ended included."""
    ticks = 0
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended; its parent has its time
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = sum(map(int, fields[11:15]))
    for pid in spent:
        ancestor = pid
        while ancestor != root and ancestor in parents:
            ancestor = parents[ancestor]
        ticks += spent[pid] if ancestor == root else 0
    return ticks / TICKS_PER_SECOND

"""Resource use of local processes, as reported by the kernel: CPU seconds and resident memory."""

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
    """Resource use of local processes: CPU seconds used so far, and resident bytes now, summed over
    all of them."""

    user_s: float
    system_s: float
    rss_bytes: int

    def since(self, earlier: "Usage") -> "Usage":
        """Return the CPU seconds used since the resource use `earlier` was measured, and the
        current memory."""
        return Usage(self.user_s - earlier.user_s, self.system_s - earlier.system_s, self.rss_bytes)


def usage_of(pids: Sequence[int]) -> Usage:
    """Return the resource use of the processes with the given ids. Raises ConfigError with the id
    of a process that does not run."""
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
    """Return the memory of processes in bytes, with each shared page counted once (PSS): its size
    is divided by the number of processes that share it.

    If other processes of the machine share a page, their share is not included. In resident memory,
    a page that two of the given processes share would be counted twice.
    """
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * KIB


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of processes, including all their threads, with nanosecond
    resolution."""
    # This clock id denotes the CPU clock of the process (clock_getcpuclockid).
    return sum(time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED) for pid in pids)


def main_thread_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of the processes' main threads, in which a node's event loop runs."""
    # Read from the scheduler's statistics: ticks are too coarse for some seconds of a mostly idle
    # loop.
    paths = (Path(f"/proc/{pid}/task/{pid}/schedstat") for pid in pids)
    return sum(int(path.read_text().split()[0]) for path in paths) / NANOSECONDS_PER_SECOND


def tree_seconds(root: int) -> float:
    """Return the CPU seconds of a process and its descendants, including those that have ended."""
    ticks = 0
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # The process has just ended; its time is counted in its parent.
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        spent[pid] = sum(map(int, fields[11:15]))
    for pid in spent:
        ancestor = pid
        while ancestor != root and ancestor in parents:
            ancestor = parents[ancestor]
        ticks += spent[pid] if ancestor == root else 0
    return ticks / TICKS_PER_SECOND

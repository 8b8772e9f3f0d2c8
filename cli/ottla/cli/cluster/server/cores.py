"""Finds the number of processor cores that this process may use."""

import os
from pathlib import Path

AUTO = "auto"
"""Value of the setting for the number of brokers on a host: one broker per processor core."""
CPU_QUOTA_FILE = "/sys/fs/cgroup/cpu.max"


def machine_cores() -> int:
    """Return the number of processor cores that this process may use, including the limit of a CPU
    quota of its control group."""
    return usable_cores(len(os.sched_getaffinity(0)), _text_of(Path(CPU_QUOTA_FILE)))


def usable_cores(affinity: int, quota: str) -> int:
    """Return the number of usable processor cores. `affinity` is the number of cores on which the
    process may run. `quota` is the text of the control group's file cpu.max: time and period in
    microseconds, or `max`."""
    limit, _, period = quota.strip().partition(" ")
    if not limit.isdecimal() or not period.isdecimal() or int(period) == 0:
        return affinity
    return max(1, min(affinity, int(limit) // int(period)))


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

"""Load that runs in a separate process during a measurement. The process prints the latencies when
the load ends."""

import subprocess
import sys
from abc import ABC, abstractmethod
from typing import Self

from ottla.model.errors import ErrorCode, RefusedError

STOP_TIMEOUT_S = 60
"""Maximum seconds that a load's process may still run after its standard input was closed."""


class HelperProcess(ABC):
    """Context manager that runs a load as a process. The process works until its standard input
    ends, which is the end of the block."""

    name: str
    """Name of the load in the error message if its process fails."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, *arguments]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        printed = self._process.communicate(timeout=STOP_TIMEOUT_S)[0]
        if self._process.returncode:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{self.name} beside it failed")
        for line in printed.splitlines():
            self.take(line.split())

    @abstractmethod
    def take(self, words: list[str]) -> None:
        """Process one line that the load's process has printed, split into `words`."""

"""Fuzzes one target and measures it: guided by coverage if atheris is installed, otherwise by
mutation alone."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from ottla.jepsen.fuzz import plain_driver
from ottla.jepsen.fuzz.judge import FuzzFinding
from ottla.jepsen.fuzz.target import FuzzTarget

ATHERIS, PLAIN = "atheris", "plain"
GRACE_SECONDS = 90
"""Time in seconds that the fuzzing process may run beyond its time limit, for imports,
instrumentation and the last input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    """Result of fuzzing one target: measured values, and the inputs that it handled incorrectly."""

    target: str
    driver: str
    inputs: int
    refused: int
    """Number of inputs that the fuzz target refused correctly. All other inputs were valid."""
    measured: int
    """Number of inputs for which the memory allocated by the fuzz target was measured."""
    seconds: float
    slowest_ms: float
    findings: tuple[FuzzFinding, ...]

    def row(self) -> dict[str, Any]:
        """Return the measured values of this fuzzing run by name, as a row of a table."""
        return {
            "target": self.target,
            "driver": self.driver,
            "inputs": self.inputs,
            "inputs_per_s": round(self.inputs / max(0.001, self.seconds)),
            "refused": self.refused,
            "measured": self.measured,
            "seconds": round(self.seconds, 1),
            "slowest_ms": round(self.slowest_ms, 1),
            "findings": len(self.findings),
        }


def has_atheris() -> bool:
    """Return whether atheris (the coverage-guided fuzzer) is installed."""
    return find_spec("atheris") is not None


def hunt(
    target: FuzzTarget, *, driver: str, seconds: float, seed: int = 0, kept: Iterable[bytes] = ()
) -> FuzzReport:
    """Fuzz one target for `seconds`. `seed` determines the random inputs. `kept` are inputs from
    earlier runs. Returns a report with measured values, and with the inputs that the target handled
    incorrectly."""
    if driver == PLAIN:
        return _by_mutation(target, seconds, seed, kept)
    return _by_coverage(target, seconds, seed, kept)


def _by_mutation(
    target: FuzzTarget, seconds: float, seed: int, kept: Iterable[bytes]
) -> FuzzReport:
    judge = plain_driver.fuzz(target, seed=seed, seconds=seconds, kept=kept)
    return FuzzReport(
        target=target.name,
        driver=PLAIN,
        inputs=judge.input_count,
        refused=judge.refused_count,
        measured=judge.measured_count,
        seconds=seconds,
        slowest_ms=judge.slowest_ms,
        findings=tuple(judge.findings.values()),
    )


def _by_coverage(
    target: FuzzTarget, seconds: float, seed: int, kept: Iterable[bytes]
) -> FuzzReport:
    with tempfile.TemporaryDirectory(prefix="ottla-fuzz-") as folder:
        inputs, report = Path(folder, "inputs"), Path(folder, "report.json")
        inputs.mkdir()
        for data in (*target.seeds(Random(f"{target.name} {seed}")), *kept):
            (inputs / blake2b(data, digest_size=8).hexdigest()).write_bytes(data)
        # libFuzzer interprets a seed of 0 as a request to choose one.
        words = (target.name, str(seconds), str(seed + 1), str(inputs), str(report))
        ended = subprocess.run(
            [sys.executable, "-m", "ottla.jepsen.fuzz.atheris_driver", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=seconds + GRACE_SECONDS,
            check=False,
        )
        found = json.loads(report.read_text()) if report.exists() else {}
        findings = [
            FuzzFinding(
                target.name, one["kind"], one["where"], one["what"], bytes.fromhex(one["data"])
            )
            for one in found.get("findings", ())
        ]
        if ended.returncode:
            findings.append(_end_of(target, ended, Path(folder)))
        return FuzzReport(
            target=target.name,
            driver=ATHERIS,
            inputs=found.get("inputs", 0),
            refused=found.get("refused", 0),
            measured=found.get("measured", 0),
            seconds=found.get("seconds", seconds),
            slowest_ms=found.get("slowest_ms", 0.0),
            findings=tuple(findings),
        )


def _end_of(
    target: FuzzTarget, ended: "subprocess.CompletedProcess[bytes]", folder: Path
) -> FuzzFinding:
    """Return a report of the input that ended the fuzzing process early, because the target hung or
    crashed on it."""
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    data = next((path.read_bytes() for path in folder.glob("report.json.*")), b"")
    what = f"the process ended with {ended.returncode}: {''.join(last)}"
    return FuzzFinding(target.name, "end", target.name_of(data), what, data)

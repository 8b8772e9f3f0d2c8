"""Coverage-guided fuzzing with atheris, in a process of its own, because libFuzzer never returns.

`python -m ottla.jepsen.fuzz.atheris_driver TARGET SECONDS SEED INPUTS REPORT` starts with the files
in the folder INPUTS, and adds inputs that reach new code. It writes REPORT (JSON) periodically and
at the end. An input that the target handles incorrectly does not end the process.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ottla.jepsen.fuzz.judge import Judge

REPORT_SECONDS = 5.0
HANG_SECONDS = 30
"""Time limit in seconds for one fuzzing input. If an input exceeds it, the process ends and prints
its stack."""


def main(arguments: list[str]) -> None:
    """Fuzz the target that the command line names, for SECONDS seconds. Never returns, because
    libFuzzer ends the process."""
    import atheris

    name, seconds, seed, inputs, report = arguments
    with atheris.instrument_imports(include=["ottla"]):
        from ottla.jepsen.fuzz.table import target_of

        target = target_of(name)
    _instrument_compiled_codecs(atheris)
    judge = Judge(target)
    started = written = time.monotonic()
    ends_at = started + float(seconds)

    def take(data: bytes) -> None:
        nonlocal written
        judge.take(data)
        now = time.monotonic()
        if now - written >= REPORT_SECONDS or now >= ends_at:
            written = now
            _write(Path(report), judge, now - started)
        if now >= ends_at:
            os._exit(0)

    options = [
        f"-max_len={target.input_bytes_max}",
        f"-seed={seed}",
        f"-timeout={HANG_SECONDS}",
        f"-artifact_prefix={report}.",
        "-rss_limit_mb=2048",
        "-print_final_stats=0",
        "-verbosity=1",
    ]
    atheris.Setup(["fuzz", *options, inputs], take, enable_python_coverage=True)
    atheris.Fuzz()


def _instrument_compiled_codecs(atheris: Any) -> None:
    """Instrument the codec functions, so that libFuzzer measures their coverage. The import hook
    of atheris misses them, since they are generated at their first use."""
    from ottla.wire import codec

    run = codec._run

    def instrumented(*arguments: Any) -> Any:
        return atheris.instrument_func(run(*arguments))

    vars(codec)["_run"] = instrumented


def _write(path: Path, judge: Judge, seconds: float) -> None:
    content = {
        "inputs": judge.input_count,
        "refused": judge.refused_count,
        "measured": judge.measured_count,
        "slowest_ms": round(judge.slowest_ms, 2),
        "seconds": round(seconds, 1),
        "findings": [
            {"kind": one.kind, "where": one.where, "what": one.what, "data": one.data.hex()}
            for one in judge.findings.values()
        ],
    }
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])

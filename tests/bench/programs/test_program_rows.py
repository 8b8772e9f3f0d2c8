"""Benchmarks whose load is a program of another maker: its output, and the figures of the page."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.bench.performance.performance_page import UNITS
from ottla.bench.performance.performance_rows import GOALS
from ottla.bench.programs import program_rows as rows_of_programs
from ottla.bench.programs.franz_client import FranzRun
from ottla.bench.programs.java_tools import (
    EndToEndByTool,
    ProducedByTool,
    consumed_of,
    end_to_end_of,
    produced_of,
)
from ottla.bench.programs.program_rows import PROGRAMS, program_rows
from ottla.model.errors import RefusedError

PRODUCED = """\
Warmup first 50000 records. Steady state results will print after the complete test summary.
In steady state.
105793 records sent, 21150.1 records/sec (20.17 MB/sec), 1176.3 ms avg latency, \
1466.0 ms max latency.
200000 records sent, 20584.6 records/sec (19.63 MB/sec), 1199.32 ms avg latency, \
1682.00 ms max latency, 1154 ms 50th, 1569 ms 95th, 1654 ms 99th, 1679 ms 99.9th.
150000 steady state records sent, 23169.5 records/sec (22.10 MB/sec), 1151.40 ms avg latency, \
1466.00 ms max latency, 1132 ms 50th, 1424 ms 95th, 1456 ms 99th, 1462 ms 99.9th.
"""
CONSUMED = (
    "2026-11-30 03:38:16:850, 2026-11-30 03:38:21:873, 143.0550, 28.4800, 150004, 29863.4282, "
    "2331, 2692, 53.1408, 55722.1397\n"
)
END_TO_END = """\
Topic "t2" does not exist. Will create topic with 1 partition(s) and replication factor = 1
0\t116.537861
1000\t3.871009
Avg latency: 5.9736 ms
Percentiles: 50th = 4, 99th = 25, 99.9th = 37
"""


def test_the_records_of_the_warm_up_are_not_in_a_producers_result() -> None:
    assert produced_of(PRODUCED) == ProducedByTool(23169.5, 1132, 1456, 1462)


def test_the_time_of_joining_is_not_in_a_consumers_rate() -> None:
    assert consumed_of(CONSUMED) == 55722.1397


def test_an_end_to_end_result_has_its_mean_and_percentiles() -> None:
    assert end_to_end_of(END_TO_END) == EndToEndByTool(5.9736, 25, 37)


@pytest.mark.parametrize("parse", [produced_of, consumed_of, end_to_end_of])
def test_output_without_a_result_is_refused_with_its_end(parse: Any) -> None:
    with pytest.raises(RefusedError, match=r"printed no result: .*no brokers"):
        parse("Timed out: no brokers\n")


def test_each_row_has_figures_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = SimpleNamespace(bootstrap="127.0.0.1:1", pids={})
    programs: dict[str, Any] = {
        "produce_by_tool": ProducedByTool(1.0, 2, 3, 4),
        "consume_rate_by_tool": 5.0,
        "end_to_end_by_tool": EndToEndByTool(6.0, 7, 8),
        "run_franz": FranzRun(9, 3.0),
    }
    for name, result in programs.items():
        monkeypatch.setattr(rows_of_programs, name, lambda *_, _result=result, **__: _result)

    found = {row.name: row.run(cluster, 1) for row in program_rows(Path("jars"), Path("franz"))}

    assert found["kafka-e2e-latency, 100 B, acks=all"] == {
        "end_to_end_mean_ms": 6.0,
        "end_to_end_p99_ms": 7,
        "cpu_us_per_record": 0.0,
    }
    assert found["franz-go, consume, 100 B"]["records_per_second"] == 3.0
    for figures in found.values():
        assert set(figures) <= set(GOALS[PROGRAMS])
        assert set(figures) <= set(UNITS)


def test_rows_of_a_missing_program_are_left_out() -> None:
    names = [row.name for row in program_rows(Path("jars"), None)]
    assert len(names) == 4
    assert not any("franz" in name for name in names)

"""Kafka's tool ShareConsumerPerformance: what its reports say."""

from ottla.bench.queues.java_consumers import ConsumedShare, ToolReports

HEAD = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg"
TIMES = "2026-11-29 02:19:52:386, 2026-11-29 02:19:53:862, 0.0001, 0.0001, 0.6775"


def report(count: int, consumer: int) -> str:
    return f"{TIMES}, {count}, 1476 for share consumer {consumer}"


def reports_of(lines: list[str], count: int) -> ConsumedShare | None:
    used_s = iter(range(100))
    reports = ToolReports(count, lambda: float(next(used_s)))
    for at, line in enumerate(lines):
        reports.take(line, float(at))
    return reports.result


def test_time_and_cpu_count_from_the_first_record_until_half_of_all() -> None:
    lines = [HEAD, report(1, 1), report(50, 2), report(300, 1), report(350, 2), report(500, 2)]
    assert reports_of(lines, 1_000) == ConsumedShare(649, 3.0, 1.0)


def test_two_reports_in_one_line_are_both_read() -> None:
    lines = [report(1, 1), report(500, 12) + report(500, 2)]
    assert reports_of(lines, 1_000) == ConsumedShare(1_000, 1.0, 1.0)


def test_the_last_line_counts_if_the_reports_are_too_few() -> None:
    lines = [HEAD, report(1, 1), report(100, 1), f"{TIMES}, 1000, 6807\n"]
    assert reports_of(lines, 1_000) == ConsumedShare(999, 2.0, 1.0)


def test_a_run_that_ends_early_has_no_result() -> None:
    lines = [HEAD, report(1, 1), report(100, 1), f"{TIMES}, 400, 6807\n"]
    assert reports_of(lines, 1_000) is None

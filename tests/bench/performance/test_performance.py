"""`ottla bench performance`: the stored results, and the page generated from them."""

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.bench import groups
from ottla.bench.clients import ClientInstallation
from ottla.bench.floor.floor import FLOOR
from ottla.bench.local_cluster import open_local_cluster
from ottla.bench.performance import performance, performance_rows
from ottla.bench.performance.performance import (
    LIBRDKAFKA,
    MeasuredGroup,
    PerformanceRun,
    form_of,
    forms_of,
    groups_of,
    read_reports,
    read_sittings,
)
from ottla.bench.performance.performance_page import (
    BEGIN,
    END,
    measured_of,
    measured_part,
    missed,
    with_measured,
)
from ottla.bench.performance.performance_plots import draw_all
from ottla.bench.performance.performance_rows import GOALS, ONE, ROWS, THREE
from ottla.bench.result import Result
from ottla.cli.main import run
from ottla.model.errors import ConfigError, ErrorCode
from ottla.wire import codec
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

MACHINE = {
    "date": "2026-11-24",
    "cpu": "A CPU",
    "cores": 2,
    "memory_gib": 24,
    "kernel": "6.1",
    "python": "3.11.7",
    "kafka": "4.3.0",
}


def sitting(group: str = "requests", topology: str = ONE) -> MeasuredGroup:
    made = MeasuredGroup(group=group, topology=topology, machine=MACHINE)
    for ours, theirs in ((1_000.0, 500.0), (1_100.0, 510.0), (900.0, 400.0)):
        made.add("Fetch", "ottla", {"requests_per_second": ours, "cpu_us_per_request": 30.0})
        made.add("Fetch", "compiled", {"requests_per_second": 300.0, "cpu_us_per_request": 10.0})
        made.add("Fetch", "kafka", {"requests_per_second": theirs, "cpu_us_per_request": 20.0})
    return made


def test_a_page_has_medians_spreads_and_ratios_with_met_goals_in_bold() -> None:
    text = measured_part([sitting()], {})

    assert "A CPU, 2 cores, 24 GiB" in text
    rows = [line for line in text.splitlines() if line.startswith("| Fetch")]
    assert rows == [
        "| Fetch | requests/s | 1,000 (900–1,100) | **2.00** | 300 | 0.60 | 500 (400–510) | ≥ 1 |",
        "| Fetch | CPU µs each | 30 | 1.50 | 10 | **0.50** | 20 | ≤ 1 |",
    ]


def test_a_group_with_a_floor_has_its_column_and_how_many_times_it_each_form_costs() -> None:
    found = sitting()
    found.add("Fetch", FLOOR, {"requests_per_second": 2_000.0, "cpu_us_per_request": 5.0})
    found.add("Metadata", "ottla", {"requests_per_second": 800.0})
    found.add("Metadata", "kafka", {"requests_per_second": 400.0})

    lines = measured_part([found], {}).splitlines()

    head = next(line for line in lines if line.startswith("| row"))
    assert head == (
        "| row | figure | Ottla | ÷ Kafka | × floor | compiled | ÷ Kafka | × floor | Kafka "
        "| floor | goal |"
    )
    rows = [line for line in lines if line.startswith(("| Fetch", "| Metadata"))]
    assert rows == [
        "| Fetch | requests/s | 1,000 (900–1,100) | **2.00** | 2.00 | 300 | 0.60 | 6.67 "
        "| 500 (400–510) | 2,000 | ≥ 1 |",
        "| Fetch | CPU µs each | 30 | 1.50 | 6.00 | 10 | **0.50** | 2.00 | 20 | 5 | ≤ 1 |",
        "| Metadata | requests/s | 800 | **2.00** ? | – | – | – | – | 400 | – | ≥ 1 |",
    ]


def test_each_form_of_the_client_has_a_column_beside_librdkafka(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = {"ottla": 500, "compiled": 1_100, LIBRDKAFKA: 1_000}
    measured: list[tuple[str, dict[str, ClientInstallation]]] = []

    def runs(bootstrap: str, *, clients: dict[str, ClientInstallation], **_: object) -> Any:
        measured.append((bootstrap, clients))
        return {"what": "clients"} | {
            f"produce 100 B, {label}": {
                "per_second": rates[label],
                "cpu_us_each": 2.0,
                "thread_share": 0.9,
            }
            for label in clients
        }

    def servers(_: PerformanceRun) -> Any:
        names = ("ottla", "compiled", "kafka")
        return nullcontext(
            {name: SimpleNamespace(bootstrap=f"{name}:1", all_pids=[]) for name in names}
        )

    monkeypatch.setattr(performance, "run_clients", runs)
    monkeypatch.setattr(performance, "version_of", lambda _: "none")
    monkeypatch.setattr(performance, "form_of", lambda python: f"form of {python}")
    monkeypatch.setattr(performance, "SETTLE_S", 0.0)
    monkeypatch.setattr(PerformanceRun, "_servers", servers)
    PerformanceRun(
        jars=tmp_path,
        directory=tmp_path,
        groups=["client"],
        topology=ONE,
        rounds=1,
        timeout_s=60.0,
        forms={"compiled": "/venv/bin/python"},
    ).run(lambda _: None)

    assert measured == [
        (
            "compiled:1",
            {
                "ottla": ClientInstallation("ottla", sys.executable),
                "compiled": ClientInstallation("ottla", "/venv/bin/python"),
                LIBRDKAFKA: ClientInstallation("confluent-kafka", sys.executable),
            },
        )
    ]
    text = measured_part(read_sittings(tmp_path), {})
    assert (
        "| row | figure | Ottla | ÷ librdkafka | compiled | ÷ librdkafka | librdkafka | goal |"
        in text
    )
    assert "| Produce 100 B | records/s | 500 | 0.50 ? | 1,100 | **1.10** ? | 1,000 | ≥ 1 |" in text
    assert "| Produce 100 B | CPU of the application's thread ÷ time | 0.9 | 1.00 ? |" in text
    assert "One broker serves all clients: that of the column compiled." in text


def test_rows_that_miss_their_goal_are_named() -> None:
    assert missed([sitting()]) == ["one: Fetch, CPU µs each: 1.50 (≤ 1)"]
    assert missed([sitting()], "compiled") == ["one: Fetch, requests/s: 0.60 (≥ 1)"]


def test_a_row_without_a_goal_is_shown_and_never_missed() -> None:
    found = sitting("conditions")

    assert missed([found]) == []
    rows = [line for line in measured_part([found], {}).splitlines() if line.startswith("| Fetch")]
    assert rows[0].endswith("| 2.00 | 300 | 0.60 | 500 (400–510) | – |")


def test_only_what_stands_between_the_marks_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert with_measured(page, "new") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    with pytest.raises(ConfigError, match="without the lines"):
        measured_of("a page")


def dates_of(measured: str) -> list[str]:
    return re.findall("^Measured on (.*?):", measured, re.MULTILINE)


def test_sections_remain_with_their_date_until_their_group_is_measured_again() -> None:
    old = [sitting(), sitting("conditions", THREE)]
    report = {"what": "security", "rows": []}
    first = measured_part(old, {}, [report])
    later = {**MACHINE, "date": "2026-12-01", "kafka": "4.4.0"}
    again = MeasuredGroup(group="requests", topology=ONE, machine=later, values=sitting().values)

    second = measured_part([again], {}, earlier=first)
    third = measured_part([again], {}, [report], earlier=second)

    assert second.splitlines()[0].startswith("Measured on 2026-12-01: ")
    headings = [line for line in first.splitlines() if line.startswith("#")]
    assert [line for line in second.splitlines() if line.startswith("#")] == headings
    assert dates_of(second) == ["2026-12-01", "2026-11-24", "2026-11-24"]
    assert dates_of(third) == ["2026-12-01", "2026-11-24"]
    assert third.splitlines().count("### Security") == 1


def test_sittings_are_kept_and_read_again(tmp_path: Path) -> None:
    sitting().keep(tmp_path)
    sitting("admin", THREE).keep(tmp_path)
    found = read_sittings(tmp_path)
    assert [(one.group, one.topology) for one in found] == [("requests", ONE), ("admin", THREE)]
    assert found[0].values["Fetch"]["cpu_us_per_request"]["kafka"] == [20.0] * 3
    with pytest.raises(ConfigError, match="no measurement is kept"):
        read_sittings(tmp_path / "other")


def test_a_page_is_made_without_measuring(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"# Performance\n{BEGIN}\n{END}\n")
    sitting().keep(tmp_path / "results")

    assert run(["bench", "performance", f"--out={tmp_path / 'results'}", f"--page={page}"]) == 0

    assert "performance-requests.svg" in page.read_text()
    assert "1.50 (≤ 1)" in capsys.readouterr().out


def test_the_same_values_make_the_same_picture(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for directory in (first, second):
        directory.mkdir()
        assert draw_all([sitting()], directory) == {"requests": "performance-requests.svg"}
    name = "performance-requests.svg"
    assert (first / name).read_bytes() == (second / name).read_bytes()


def test_every_group_with_rows_has_goals() -> None:
    assert {group for group, _ in ROWS} <= set(GOALS)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no 'speed'"):
        groups_of("requests,speed")
    for text in ("compiled", "ottla=/bin/sh", "compiled=/no/python"):
        with pytest.raises(ConfigError, match="LABEL=PYTHON"):
            forms_of([text])
    assert forms_of([f"again={sys.executable}"]) == {"again": sys.executable}


def test_without_jars_and_page_there_is_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "performance", f"--out={tmp_path}"]) != 0
    assert "or --page must be given" in capsys.readouterr().err


def test_what_is_kept_is_json_that_people_can_read(tmp_path: Path) -> None:
    sitting().keep(tmp_path)
    kept = json.loads((tmp_path / "requests-one.json").read_text())
    assert kept["machine"] == MACHINE


def test_a_ratio_that_the_rounds_do_not_decide_is_marked() -> None:
    made = MeasuredGroup(group="memory", topology=ONE, machine=MACHINE)
    made.add("idle", "ottla", {"resident_mb": 50.0})
    made.add("idle", "kafka", {"resident_mb": 1_000.0})

    assert "| 50 | **0.05** ? | 1,000 | ≤ 0.1 |" in measured_part([made], {})


def test_the_page_says_which_form_each_column_is() -> None:
    forms = {"ottla": "interpreted, Python 3.11.7", "new": "compiled, Python 3.13.0"}
    made = MeasuredGroup(group="requests", topology=ONE, machine={**MACHINE, "forms": forms})

    text = measured_part([made], {})

    assert "Ottla: interpreted, Python 3.11.7. new: compiled, Python 3.13.0." in text


def test_an_interpreter_tells_its_form_and_one_without_ottla_is_refused(tmp_path: Path) -> None:
    assert "Python 3." in form_of(sys.executable)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    with pytest.raises(ConfigError, match="has no Ottla"):
        form_of(str(other))


def test_reports_of_other_benchmarks_are_a_section_without_goals(tmp_path: Path) -> None:
    spread = {"median": 20.0, "lowest": 19.0, "highest": 21.0}
    row: dict[str, Any] = {"row": "produce-tls13", "figure": "cpu_s_per_gb", "ratio": 0.5}
    row |= {"ottla": spread, "kafka": {**spread, "median": 40.0}, "verdict": "undecided"}
    sitting().keep(tmp_path)
    (tmp_path / "security.json").write_text(json.dumps({"what": "security", "rows": [row]}))
    (tmp_path / "alone.json").write_text(json.dumps({"what": "a", "warm": [{"row": "x"}]}))

    text = measured_part(read_sittings(tmp_path), {}, read_reports(tmp_path))

    assert text.index("### Security") > text.index("## Further rows, without goals")
    assert "| produce-tls13 | cpu_s_per_gb | 20 (19–21) | 0.50 ? | 40 (19–21) |" in text
    assert "### A" not in text


@pytest.fixture
def of_two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Kafka by a second ottla cluster, and shorten the rows."""

    def theirs(_jars: Path, settings: dict[str, Any]) -> Any:
        return open_local_cluster(controllers=1, brokers=1, **settings)

    monkeypatch.setattr(performance, "_open_one_kafka", theirs)
    monkeypatch.setattr(performance, "version_of", lambda _: "none")
    monkeypatch.setattr(performance, "SETTLE_S", 0.0)
    monkeypatch.setattr(performance_rows, "SINGLES", 20)


def run_of(tmp_path: Path, group: str, timeout_s: float = 120.0) -> None:
    PerformanceRun(
        jars=tmp_path,
        directory=tmp_path / "results",
        groups=[group],
        topology=ONE,
        rounds=1,
        timeout_s=timeout_s,
        forms={},
    ).run(lambda _: None)


@pytest.mark.usefixtures("of_two_clusters")
def test_a_row_is_measured_on_both_servers_and_kept(tmp_path: Path) -> None:
    run_of(tmp_path, "latency")

    (found,) = read_sittings(tmp_path / "results")
    p50 = found.values["End to end, acks=all"]["p50_ms"]
    assert {server: len(values) for server, values in p50.items()} == {"ottla": 1, "kafka": 1}
    assert found.machine["forms"] == {"ottla": form_of(sys.executable)}


@pytest.mark.usefixtures("of_two_clusters")
def test_requests_under_quotas_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performance_rows, "REQUESTS", {(10, 1): 200, (50, 5): 500})
    monkeypatch.setitem(ROWS, ("conditions", ONE), performance_rows.CONDITIONS[:1])

    run_of(tmp_path, "conditions")

    (found,) = read_sittings(tmp_path / "results")
    (figures,) = found.values.values()
    assert list(figures) == ["requests_per_second", "cpu_us_per_request"]


def test_a_producer_is_measured_until_the_compaction_beside_it_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = iter([1_000, 1_000, 700, 400])
    cluster: Any = SimpleNamespace(bootstrap="127.0.0.1:1", pids={}, leader=lambda _: 1)
    produced = Result(what="", count=10, payload_bytes=50_000_000, seconds=0.5)
    for name, value in {
        "fill_dirty": lambda *_: None,
        "compact": lambda *_: None,
        "log_bytes": lambda *_: next(sizes),
        "produce": lambda *_: produced,
    }.items():
        monkeypatch.setattr(performance_rows, name, value)

    figures = performance_rows.CONDITIONS[-1].run(cluster, 1)

    assert next(sizes, None) is None  # two loads: the third look found it done
    assert figures["mb_per_second"] == 100.0


@pytest.mark.usefixtures("of_two_clusters")
def test_starts_of_one_broker_are_measured_without_deaths(tmp_path: Path) -> None:
    run_of(tmp_path, "lifecycle")

    (found,) = read_sittings(tmp_path / "results")
    assert list(found.values["1 + 1 nodes"]) == ["start_to_ready_s"]


@pytest.mark.usefixtures("of_two_clusters")
def test_rounds_before_a_failure_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter(range(100))

    def fails_in_round_two(*_: object) -> dict[str, float]:
        if next(calls) >= 4:
            raise KeyboardInterrupt
        return {"p50_ms": 1.0}

    row = performance_rows.PerformanceRow("End to end", fails_in_round_two)
    monkeypatch.setitem(ROWS, ("latency", ONE), [row])
    run = PerformanceRun(
        jars=tmp_path,
        directory=tmp_path / "results",
        groups=["latency"],
        topology=ONE,
        rounds=2,
        timeout_s=120.0,
        forms={},
    )
    with pytest.raises(KeyboardInterrupt):
        run.run(lambda _: None)

    (found,) = read_sittings(tmp_path / "results")
    assert found.values["End to end"]["p50_ms"] == {"ottla": [1.0], "kafka": [1.0]}


def test_a_commit_is_asked_for_again_until_the_coordinator_has_its_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    answers = iter([commit_answer(code) for code in codes])
    monkeypatch.setattr(groups, "answer_to", lambda *_: next(answers))
    monkeypatch.setattr(groups, "ASK_AGAIN_S", 0.0)
    member = JoinGroupResponse(generation_id=-1, member_id="")

    small = groups._commit_of(("127.0.0.1", 1), "group", "topic", 0, member)

    assert small.answer == commit_answer(ErrorCode.NONE)
    assert next(answers, None) is None


def commit_answer(code: ErrorCode) -> bytes:
    row = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    topic = OffsetCommitResponseTopic(name="topic", partitions=[row])
    body = codec.encode(OffsetCommitResponse(topics=[topic]), groups.COMMIT_VERSION)
    return b"\0\0\0\0\0" + bytes(body)  # a correlation id and no tagged fields

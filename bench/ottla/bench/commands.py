"""The command `ottla bench …`, which measures a Kafka-compatible cluster under load."""

import argparse
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ottla.bench.authorizer import WAYS, run_decisions
from ottla.bench.client_metrics.telemetry import run_telemetry
from ottla.bench.client_metrics.telemetry_beside import run_beside
from ottla.bench.client_work import WORKS
from ottla.bench.clients import RECORD_BYTES, run_clients
from ottla.bench.clusters import MEASUREMENTS
from ottla.bench.faults.audit import audit, login_of, read_back
from ottla.bench.faults.ledger import read_ledger
from ottla.bench.faults.steady import SteadyLoad, Writer
from ottla.bench.faults.timeline import as_svg, as_text, longest_gap
from ottla.bench.floor.floor import ROWS as FLOOR_ROWS
from ottla.bench.floor.floor import as_table as as_floor_table
from ottla.bench.floor.floor import run_floor
from ottla.bench.groups import run_commits, run_rebalances
from ottla.bench.kafka.beside_kafka import BesideWork, rows_of, run_beside_kafka
from ottla.bench.kafka.comparison import SERVERS, as_table
from ottla.bench.kafka.security import ROWS as SECURITY_ROWS
from ottla.bench.kafka.security import run_security
from ottla.bench.kafka.security_rows import SecurityWork
from ottla.bench.kafka.transactions_beside import ROWS as TRANSACTION_ROWS
from ottla.bench.kafka.transactions_beside import run_transactions
from ottla.bench.load import Load, consume, end_to_end, produce
from ottla.bench.performance.performance import (
    PerformanceRun,
    forms_of,
    groups_of,
    read_reports,
    read_sittings,
)
from ottla.bench.performance.performance_page import (
    measured_of,
    measured_part,
    missed,
    with_measured,
)
from ottla.bench.performance.performance_plots import draw_all
from ottla.bench.processes import usage_of
from ottla.bench.requests import run_requests
from ottla.bench.result import Result
from ottla.bench.scale.host_scale import HEADERS, broker_counts, run_scale
from ottla.bench.scale.host_scale import rows_of as scale_rows
from ottla.bench.scrape import run_scrapes
from ottla.bench.spark import spark_commands
from ottla.bench.tables import table_of, table_of_figures
from ottla.bench.topics import RunTopics, open_topics
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.node.local.interrupts_driver import lasting_interrupts

HEALTHY = 0
UNHEALTHY = 2
CONNECT_TIMEOUT_S = 5.0
LOADS = {"produce": produce, "consume": consume, "e2e": end_to_end}


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark that the command-line arguments name, and print the measured values.
    Returns the exit code."""
    if arguments.verb in MEASUREMENTS:
        return _measure_clusters(arguments)
    if bootstrap := vars(arguments).get("bootstrap_server"):
        _check_reached(bootstrap)
    if arguments.verb in spark_commands.MEASUREMENTS:
        return spark_commands.run(arguments)
    own = OWN_RUNS.get(arguments.verb)
    if own is not None:
        return own(arguments)
    if arguments.verb == "commits":
        arguments.partitions = max(arguments.partitions, arguments.connections)
    with _topics(arguments) as topics:
        load = replace(_load(arguments), topic=topics.name)
        # The other loads run Trio, and no C code that may lose a KeyboardInterrupt.
        lasting = lasting_interrupts() if arguments.verb in LOADS else nullcontext(_no_check)
        with lasting as check:
            result = _run_load(arguments, topics, load, check)
        show(result, is_json=arguments.format == "json")
    return HEALTHY


def _run_load(
    arguments: argparse.Namespace, topics: RunTopics, load: Load, check: Callable[[], None]
) -> Result:
    """Create the topic of a load, fill it if the load reads its own records, measure the load, and
    return the result. `check` raises KeyboardInterrupt if the run is to end."""
    topics.make(load)
    if arguments.verb == "consume" and topics.is_own:
        with _progress("fill", load.count) as progress:
            produce(load, _checked(progress, check))
    with _progress(arguments.verb, load.count) as progress:
        before = usage_of(arguments.pid)
        result = _measured(arguments, load, _checked(progress, check))
        if arguments.pid:
            result = replace(result, usage=usage_of(arguments.pid).since(before))
    return result


def _checked(progress: Callable[[int], None], check: Callable[[], None]) -> Callable[[int], None]:
    """Wrap a progress function so that `check` is called before each update of the progress."""

    def checked(done: int) -> None:
        check()
        progress(done)

    return checked


def _no_check() -> None:
    pass


def _topics(arguments: argparse.Namespace) -> AbstractContextManager[RunTopics]:
    """Return the topics of a benchmark's run. They are deleted at the end of the run unless the
    user named them or asked to keep them."""
    return open_topics(arguments.bootstrap_server, arguments.topic, is_kept=arguments.keep)


def _load(arguments: argparse.Namespace) -> Load:
    """Return the load that the command-line options of a benchmark describe. Other fields have the
    defaults of `Load`."""
    given = {field.name for field in fields(Load)} & vars(arguments).keys()
    bootstrap = vars(arguments).get("bootstrap_server", "")
    options = {name: vars(arguments)[name] for name in given - {"topic"}}
    return Load(bootstrap=bootstrap, **options)


def _measured(arguments: argparse.Namespace, load: Load, progress: Callable[[int], None]) -> Result:
    if arguments.verb == "commits":
        return run_commits(
            _address(load.bootstrap),
            topic=load.topic,
            count=load.count,
            connections=arguments.connections,
            in_flight=arguments.in_flight,
            has_members=arguments.members,
            progress=progress,
        )
    if arguments.verb == "requests":
        return run_requests(
            _address(load.bootstrap),
            kind=arguments.kind,
            topic=load.topic,
            count=load.count,
            connections=arguments.connections,
            in_flight=arguments.in_flight,
            progress=progress,
        )
    return LOADS[arguments.verb](load, progress)


def _measure_clients(arguments: argparse.Namespace) -> int:
    """Run the same work with Ottla's client and with other clients, one after the other. Prints the
    seconds and CPU seconds of each client, and returns the exit code."""
    runs = arguments.rounds * len(WORKS) * len(RECORD_BYTES)
    with _topics(arguments) as topics, _progress(arguments.verb, runs) as progress:
        figures = run_clients(
            arguments.bootstrap_server,
            topics=topics,
            count=arguments.count,
            rounds=arguments.rounds,
            progress=progress,
        )
    if arguments.format == "json":
        print(json.dumps(figures))
    else:
        _print_clients(figures)
    return HEALTHY


def _print_clients(figures: dict[str, Any]) -> None:
    rows = [
        (name, row["per_second"], f"{row['cpu_us_each']:.2f} µs", f"{row['thread_share']:.2f}")
        for name, row in figures.items()
        if isinstance(row, dict)
    ]
    print(table_of(("MEDIANS", "RECORDS/S", "CPU-FOR-EACH", "THREAD-SHARE"), rows))


def _measure_rebalances(arguments: argparse.Namespace) -> int:
    """Create a new group of many members in each round, rebalance it, and print the durations of
    the rebalances. Returns the exit code."""
    with _progress(arguments.verb, arguments.rounds) as progress:
        figures = run_rebalances(
            _address(arguments.bootstrap_server),
            members=arguments.connections,
            heartbeat_s=arguments.heartbeat_ms / 1_000,
            rounds=arguments.rounds,
            progress=progress,
        )
    _show_figures(figures, is_json=arguments.format == "json")
    return HEALTHY


def _measure_authorizer(arguments: argparse.Namespace) -> int:
    """Measure authorization decisions in this process, and print the cost of each kind of decision.
    Returns the exit code."""
    with _progress(arguments.verb, WAYS) as progress:
        figures = run_decisions(count=arguments.entries, rounds=arguments.rounds, progress=progress)
    _show_figures(figures, is_json=arguments.format == "json")
    return HEALTHY


def _measure_scrapes(arguments: argparse.Namespace) -> int:
    """Fetch a broker's metrics repeatedly, and measure the latency of small requests during the
    fetches. Returns the exit code."""
    with _progress(arguments.verb, arguments.rounds) as progress:
        figures = run_scrapes(
            _address(arguments.bootstrap_server),
            _address(arguments.metrics),
            rounds=arguments.rounds,
            progress=progress,
        )
    _show_figures(figures, is_json=arguments.format == "json")
    return HEALTHY


def _measure_telemetry(arguments: argparse.Namespace) -> int:
    """Measure a broker to which many clients push metrics. Returns exit code 2 if a push got no
    response, or an error response, and 0 otherwise."""
    seconds = arguments.seconds
    if arguments.produce_rate:
        return _measure_telemetry_beside(arguments, seconds)
    with _progress(arguments.verb, int(seconds)) as progress:
        result = run_telemetry(
            _address(arguments.bootstrap_server),
            clients=arguments.connections,
            seconds=seconds,
            pids=arguments.pid,
            progress=progress,
        )
    show(result, is_json=arguments.format == "json")
    return _health_of_pushes(result.notes)


def _measure_telemetry_beside(arguments: argparse.Namespace, seconds: float) -> int:
    """Measure the latency of a steady producer while many clients push metrics in every second
    phase. Returns the exit code."""
    address = _address(arguments.bootstrap_server)
    with _topics(arguments) as topics, _progress(arguments.verb, int(seconds)) as progress:
        load = Load(bootstrap=arguments.bootstrap_server, topic=f"{topics.name}-beside")
        topics.make(load)
        figures = run_beside(
            address,
            clients=arguments.connections,
            seconds=seconds,
            rate=arguments.produce_rate,
            topic=load.topic,
            pids=arguments.pid,
            progress=progress,
        )
    _show_figures(figures, is_json=arguments.format == "json")
    return _health_of_pushes(figures)


def _health_of_pushes(figures: dict[str, Any]) -> int:
    is_clean = not (figures["lost"] or figures["codes"].keys() - {"NONE"})
    return HEALTHY if is_clean else UNHEALTHY


def _check_reached(bootstrap: str) -> None:
    """Raise ConfigError if no broker of the cluster can be reached. Without this check, clients
    would retry for a long time, and log each retry."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except ValueError:
        raise ConfigError("--bootstrap-server", "must be host:port") from None
    reasons = []
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reasons.append(f"{host}:{port} ({error.strerror or error})")
        else:
            return
    raise ConfigError("--bootstrap-server", f"no broker is reached at {', '.join(reasons)}")


def _address(bootstrap: str) -> tuple[str, int]:
    try:
        return parse_bootstrap(bootstrap)[0]
    except ValueError:
        raise ConfigError("--bootstrap-server", "must be host:port") from None


def _measure_clusters(arguments: argparse.Namespace) -> int:
    """Start a cluster of three controllers and three brokers for a measurement, and print the
    measured values. Returns the exit code."""
    with _progress(arguments.verb, arguments.rounds) as progress:
        figures = MEASUREMENTS[arguments.verb](arguments.rounds, progress)
    _show_figures(figures, is_json=arguments.format == "json")
    return HEALTHY


def _measure_beside_kafka(arguments: argparse.Namespace) -> int:
    """Start Ottla and Apache Kafka, and compare them. Returns the exit code."""
    rows = rows_of(arguments.rows)
    work = BesideWork(
        load=_load(arguments),
        singles=arguments.singles,
        requests=arguments.requests,
        connections=arguments.connections,
        in_flight=arguments.in_flight,
    )
    with _progress(arguments.verb, 2 * len(rows) * (arguments.rounds + 1)) as progress:
        report = run_beside_kafka(
            arguments.kafka,
            rows,
            work,
            rounds=arguments.rounds,
            timeout_s=arguments.timeout,
            settings=dict(map(_assignment, arguments.set)),
            progress=progress,
        )
    if arguments.format == "json":
        print(json.dumps(report.figures()))
        return HEALTHY
    print(as_table(report.comparisons), end="\n\n")
    before, after = report.load_averages
    print(f"Kafka {report.version}; {report.rounds} of {arguments.rounds} rounds", end="; ")
    print(f"load of the machine {before:g} before, {after:g} after")
    return HEALTHY


def _measure_floor(arguments: argparse.Namespace) -> int:
    """Compare a broker with the smallest program that makes the same system calls. Returns the exit
    code."""
    runs = 2 * len(FLOOR_ROWS) * (arguments.rounds + 1)
    with _progress(arguments.verb, runs) as progress:
        report = run_floor(rounds=arguments.rounds, progress=progress)
    is_json = arguments.format == "json"
    print(json.dumps(report.figures()) if is_json else as_floor_table(report))
    return HEALTHY


def _measure_scale(arguments: argparse.Namespace) -> int:
    """Measure clusters with different numbers of brokers on this machine. Returns the exit code."""
    counts = broker_counts(arguments.brokers)
    with _progress(arguments.verb, len(set(counts)) * arguments.rounds) as progress:
        found = run_scale(
            counts, requests=arguments.requests, rounds=arguments.rounds, progress=progress
        )
    if arguments.format == "json":
        print(json.dumps(found))
    else:
        print(table_of(HEADERS, scale_rows(found)))
    return HEALTHY


def _measure_performance(arguments: argparse.Namespace) -> int:
    """Run the benchmarks of some groups of rows in docs/performance.md and store the measured
    values, or generate the page from stored values. Returns the exit code."""
    if arguments.kafka is not None:
        PerformanceRun(
            jars=arguments.kafka,
            directory=arguments.out,
            groups=groups_of(arguments.groups),
            topology=arguments.topology,
            rounds=arguments.rounds,
            timeout_s=arguments.timeout,
            forms=forms_of(arguments.form),
            queue_records=arguments.queue_records,
        ).run(lambda text: print(text, file=sys.stderr, flush=True))
    elif arguments.page is None:
        raise ConfigError("--kafka", "or --page must be given: measure, or make the page")
    sittings = read_sittings(arguments.out)
    if arguments.page is not None:
        pictures = draw_all(sittings, arguments.page.parent)
        page = arguments.page.read_text()
        text = measured_part(
            sittings, pictures, read_reports(arguments.out), earlier=measured_of(page)
        )
        arguments.page.write_text(with_measured(page, text))
    for line in missed(sittings):
        print(line)
    return HEALTHY


def _measure_security(arguments: argparse.Namespace) -> int:
    """Start Ottla and Apache Kafka, and measure the cost of security to both. Returns the exit
    code."""
    work = SecurityWork(
        records=arguments.count,
        handshake_s=arguments.handshake_seconds,
        requests=arguments.requests,
        connections=arguments.connections,
        in_flight=arguments.in_flight,
        entries=arguments.entries,
    )
    runs = len(SERVERS) * len(SECURITY_ROWS) * (arguments.rounds + 1)
    with _progress(arguments.verb, runs) as progress:
        report = run_security(
            arguments.kafka,
            work,
            rounds=arguments.rounds,
            timeout_s=arguments.timeout,
            progress=progress,
        )
    print(json.dumps(report.figures()) if arguments.format == "json" else report.text())
    return HEALTHY


def _measure_transactions(arguments: argparse.Namespace) -> int:
    """Measure Ottla's transactions. With --kafka, also measure the transactions of Apache Kafka.
    The two servers are then measured alternately. Returns the exit code."""
    if arguments.kafka is not None and arguments.brokers != 1:
        raise ConfigError("--brokers", "must be 1 beside Kafka, which has one node")
    servers = 1 if arguments.kafka is None else 2
    runs = servers * len(TRANSACTION_ROWS) * (arguments.rounds + 1)
    with _progress(arguments.verb, runs) as progress:
        report = run_transactions(
            arguments.kafka,
            brokers=arguments.brokers,
            seconds=arguments.seconds,
            rounds=arguments.rounds,
            timeout_s=arguments.timeout,
            progress=progress,
        )
    print(json.dumps(report.figures()) if arguments.format == "json" else report.text())
    return HEALTHY


def _measure_steady(arguments: argparse.Namespace) -> int:
    """Write records at a steady rate, then read all of them back. Returns exit code 0 if every
    acknowledged record is stored exactly once and in order, and 2 otherwise."""
    # The settings are parsed first, so that an invalid one creates no topic.
    settings = dict(_assignment(text) for text in arguments.set)
    with _topics(arguments) as topics:
        names = tuple(topics.name.split(","))
        for name in names:
            topics.make(replace(_load(arguments), topic=name, login=login_of(settings)))
        return _write_steadily(arguments, names, settings)


def _write_steadily(
    arguments: argparse.Namespace, topics: tuple[str, ...], settings: dict[str, str]
) -> int:
    load = _load(arguments)
    steady = SteadyLoad(
        bootstrap=load.bootstrap,
        topics=topics,
        rate=arguments.rate,
        seconds=arguments.seconds or float("inf"),
        record_bytes=load.record_bytes,
        linger_ms=load.linger_ms,
        acks=load.acks,
        codec=load.codec,
        settings=settings,
    )
    with tempfile.TemporaryDirectory() as directory:
        path = arguments.ledger or Path(directory) / "ledger"
        with _progress("steady", int(arguments.seconds or 0)) as progress:
            sent = Writer(steady, path).run(progress)
        ledger = read_ledger(path)
    verdict = audit(ledger, read_back(load.bootstrap, sent.places, sent.run_id, steady.settings))
    is_json = arguments.format == "json"
    figures: dict[str, Any] = {
        "what": "steady",
        "seconds": round(sent.seconds, 3),
        "sent": sent.count,
        "per_second": round(sent.count / sent.seconds),
        "failed": ledger.failed,
        "failures": dict(sent.failures),
        "unanswered": sent.unanswered,
        **verdict.figures(),
    }
    if is_json:
        gaps = {str(row.place): round(longest_gap(row).seconds, 3) for row in ledger.answers}
        print(json.dumps(figures | {"longest_gap_s": gaps}))
    else:
        print(as_text(ledger), end="\n\n")
        _print_figures({name: value for name, value in figures.items() if value not in ([], {})})
    if arguments.svg:
        arguments.svg.write_text(as_svg(ledger, title=f"{', '.join(topics)} at {load.bootstrap}"))
    return HEALTHY if verdict.is_clean else UNHEALTHY


OWN_RUNS: dict[str, Callable[[argparse.Namespace], int]] = {
    "authorizer": _measure_authorizer,
    "beside": _measure_beside_kafka,
    "clients": _measure_clients,
    "floor": _measure_floor,
    "performance": _measure_performance,
    "rebalance": _measure_rebalances,
    "scale": _measure_scale,
    "scrape": _measure_scrapes,
    "security": _measure_security,
    "steady": _measure_steady,
    "telemetry": _measure_telemetry,
    "transactions": _measure_transactions,
}
"""Benchmarks that have a function of their own, by the name of their subcommand. All other
benchmarks run one load and print its measured values."""


def show(result: Result, *, is_json: bool) -> None:
    """Print the measured values of a benchmark's result, one per line, or as JSON if `is_json`."""
    _show_figures(result.figures(), is_json=is_json)


def _show_figures(figures: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        print(json.dumps(figures))
    else:
        _print_figures(figures)


def _print_figures(figures: dict[str, Any]) -> None:
    print(table_of_figures(figures))


@contextmanager
def _progress(what: str, count: int) -> Iterator[Callable[[int], None]]:
    """Draw a progress bar of the benchmark on a terminal, if the extra `bench` is installed."""
    if not sys.stderr.isatty() or find_spec("rich") is None:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=count)
        yield lambda done: bar.update(task, completed=done)


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--set", f"is {text!r}; it must be KEY=VALUE")
    return key, value

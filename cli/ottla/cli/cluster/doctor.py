"""`ottla doctor`: checks Spark on this machine, and the retention, listeners and certificates of a
cluster."""

import argparse
import os
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ottla.cli.common import CONNECTION, FORMAT, bootstrap_of, counted, print_json, run_async
from ottla.cli.options import option
from ottla.cli.security.doctor_certificates import look_at_file
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.cli.verbs import verb
from ottla.client.admin import open_admin
from ottla.insight.facts.topics.retention_driver import TopicAges, topic_ages
from ottla.insight.rules import certificate_findings, listener_findings
from ottla.insight.rules.retention_findings import retention_findings
from ottla.model.errors import ConfigError
from ottla.model.settings.security.tls import TlsConfig
from ottla.pipeline.doctor.doctor import (
    AnswerState,
    DoctorAnswer,
    brokers_finding,
    findings,
    is_fit,
    is_worth_a_trial,
    trial_finding,
)
from ottla.pipeline.doctor.doctor_facts import look
from ottla.pipeline.doctor.doctor_trial import ROWS, TIMEOUT_SECONDS, try_query

UNHEALTHY = 2
RETENTION_COLUMNS = ("TOPIC", "STATE", "FOUND", "CURE")
COLUMNS = ("QUESTION", "STATE", "FOUND", "CURE")


async def _look_at_retention(arguments: argparse.Namespace) -> int:
    topics: list[TopicAges] = []
    async with open_admin(bootstrap_of(arguments)) as admin:
        async for some in topic_ages(admin):
            topics += some
    held_up = list(retention_findings(topics, int(time.time() * 1_000)))
    if arguments.format == "json":
        rows = [
            {
                "topic": one.topic,
                "partitions": list(one.partitions),
                "newest_ms": one.newest_ms,
                "cure": one.cure,
            }
            for one in held_up
        ]
        print_json({"fit": not held_up, "topics": len(topics), "findings": rows})
    elif held_up:
        rows_shown = [(one.topic, AnswerState.FAILED, one.found, one.cure) for one in held_up]
        print_table(RETENTION_COLUMNS, rows_shown)
    else:
        note(f"no record of {counted(len(topics), 'topic')} is ahead of the clock")
    return UNHEALTHY if held_up else 0


async def _look_at_listeners(arguments: argparse.Namespace) -> int:
    # The other subjects open no connection.
    from ottla.client.network.tls import TLS
    from ottla.insight.facts.listeners_driver import look_at_listeners

    if arguments.addresses:
        if arguments.bootstrap_server or arguments.dir is not None:
            raise ConfigError(
                arguments.addresses, "is given, and so is another cluster; leave out one of them"
            )
        arguments.bootstrap_server = arguments.addresses
    addresses = bootstrap_of(arguments)
    dialer = TLS.get()
    config = TlsConfig() if dialer is None else dialer.config
    now = datetime.now(UTC)
    found = [
        listener_findings.judge(facts, now) for facts in await look_at_listeners(addresses, config)
    ]
    is_good = listener_findings.is_fit(found)
    if arguments.format == "json":
        print_json({"fit": is_good, "findings": [one.as_json for one in found]})
    else:
        print_table(listener_findings.COLUMNS, [one.row for one in found])
    return 0 if is_good else UNHEALTHY


def _look_at_certificates(arguments: argparse.Namespace) -> int:
    authority = None if arguments.ca is None else Path(arguments.ca)
    found = look_at_file(Path(arguments.file), authority=authority)
    is_good = certificate_findings.is_fit(found)
    if arguments.format == "json":
        rows = [
            {
                "where": one.where,
                "subject": one.subject,
                "names": list(one.names),
                "valid_until": None if one.valid_until is None else one.valid_until.isoformat(),
                "state": one.state,
                "cure": one.cure or None,
            }
            for one in found
        ]
        print_json({"fit": is_good, "findings": rows})
    else:
        print_table(certificate_findings.COLUMNS, [one.row for one in found])
    return 0 if is_good else UNHEALTHY


def _look_at_spark(arguments: argparse.Namespace) -> int:
    if arguments.timeout <= 0:
        raise ConfigError("--timeout", f"is {arguments.timeout:g}; it must be above 0 seconds")
    facts = look(os.environ)
    found = list(findings(facts))
    bootstrap = ""
    if arguments.bootstrap_server or arguments.dir:
        bootstrap = ",".join(f"{host}:{port}" for host, port in bootstrap_of(arguments))
    if not arguments.no_query:
        trial = None
        if is_worth_a_trial(found):
            java = next(java for java in facts.javas if not java.problem)
            trial = try_query(
                os.environ,
                java_home=java.home,
                master=arguments.master,
                bootstrap=bootstrap,
                timeout_seconds=arguments.timeout,
            )
            if arguments.verbose:
                note(trial.log)
        found.append(trial_finding(trial, ROWS))
        if bootstrap:
            found.append(brokers_finding(trial.reached if trial else None))
    fit = is_fit(found)
    if arguments.format == "json":
        print_json({"fit": fit, "findings": [_as_json(finding) for finding in found]})
    else:
        print_table(COLUMNS, [(one.name, one.state, one.found, one.cure) for one in found])
    return 0 if fit else UNHEALTHY


def _as_json(finding: DoctorAnswer) -> dict[str, str | None]:
    return {
        "question": finding.name,
        "state": AnswerState(finding.state).value,
        "found": finding.found,
        "cure": finding.cure or None,
    }


VERBS = (
    verb(
        "spark",
        "check Java, Python packages, workers, a small query, and brokers if they are named",
        _look_at_spark,
        option(
            "--master MASTER", "master that runs the query (default: local[1])", default="local[1]"
        ),
        option(
            "--timeout SECONDS",
            "time for the query, in seconds (default: %(default)g)",
            type=float,
            default=TIMEOUT_SECONDS,
        ),
        option("--no-query", "do not start Spark"),
        option("--verbose", "show the output of Spark too"),
        *CONNECTION,
        FORMAT,
    ),
    verb(
        "retention",
        "find topics that keep records too long because a timestamp is ahead of the clock",
        lambda arguments: run_async(partial(_look_at_retention, arguments)),
        *CONNECTION,
        FORMAT,
    ),
    verb(
        "certificates",
        "check a node's certificates: expiry, names, issuers",
        _look_at_certificates,
        option("file FILE", "settings of a broker or controller, or a certificate in PEM"),
        option("--ca FILE", "CAs in PEM that should have issued a certificate in PEM"),
        FORMAT,
    ),
    verb(
        "listeners",
        "check encryption, certificates and logins of addresses from outside",
        lambda arguments: run_async(partial(_look_at_listeners, arguments)),
        option(
            "addresses HOST:PORT,…",
            "addresses to check (default: the brokers of the cluster)",
            nargs="?",
        ),
        *CONNECTION,
        FORMAT,
    ),
)

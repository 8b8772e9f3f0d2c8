"""Our decisions beside those of Kafka's own StandardAuthorizer, over random ACLs and requests.

`answers.txt` holds the answers of Kafka 4.4.0. If OTTLA_KAFKA_JARS names a directory with the jars
of a Kafka release, it is asked again, about more (ranges of addresses only from 4.4 on). Addresses
of version 6 are written as Java writes them, since Kafka compares texts. No request is about a name
that begins with `*`: Kafka skips the wildcard's ACLs there, also those that deny; see
`test_the_wildcard_holds_for_a_name_that_begins_with_it`.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest

from ottla.metadata.acl_table import AclTable
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.acls import (
    OPERATIONS,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig

HERE = Path(__file__).parent / "kafka_authorizer"
ANSWERS = HERE / "answers.txt"
PROGRAM = HERE / "AnswerQuestions.java"
JARS = "OTTLA_KAFKA_JARS"
CASES_KEPT, CASES_ASKED = 300, 4_000
SEED = 22

BEGINS_WITH_WILDCARD = "*a"
NAMES = [
    "*",
    BEGINS_WITH_WILDCARD,
    "a",
    "ab",
    "abc",
    "abcd",
    "b",
    "ba",
    "hardcode",
    "hard",
    "ä",
    "kafka-cluster",
]
PRINCIPALS = ["User:root", "User:al", "User:bo", "User:*", "Group:al", "User:al:b"]
ADDRESSES = ["10.0.0.1", "10.1.0.1", "192.168.3.4", "2001:db8:0:0:0:0:0:1"]
HOSTS = ["*", "*", "*", "10.0.0.1", "192.168.3.4", "2001:db8:0:0:0:0:0:1", "a-name"]
RANGES = ["10.0.0.0/16", "10.0.0.9/8", "0.0.0.0/0", "2001:db8::/32", "192.168.3.4/32", "no/8"]
TYPES = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER]
ENTRY_OPERATIONS = [one for one in AclOperation if one >= AclOperation.ALL]


class Question(NamedTuple):
    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class Case(NamedTuple):
    allows_without_entry: bool
    entries: list[AclEntry]
    questions: list[Question]

    def lines(self) -> Iterator[str]:
        yield f"rules\t{int(self.allows_without_entry)}"
        for one in self.entries:
            yield (
                f"entry\t{int(one.resource_type)}\t{one.resource_name}\t{int(one.pattern_type)}\t"
                f"{one.principal}\t{one.host}\t{int(one.operation)}\t{int(one.permission)}"
            )
        for principal, host, operation, kind, name in self.questions:
            asked = f"{principal}\t{host}\t{int(operation)}\t{int(kind)}"
            yield f"somewhere\t{asked}" if name is None else f"resource\t{asked}\t{name}"

    def answers(self) -> Iterator[str]:
        table = AclTable().with_entries(
            {UUID(int=number): entry for number, entry in enumerate(self.entries)}
        )
        rules = AuthorizerConfig(
            super_users=frozenset({"User:root"}), allow_everyone=self.allows_without_entry
        )
        authorizer = StandardAuthorizer(rules, acls=table)
        for principal, host, operation, kind, name in self.questions:
            if name is None:
                is_allowed = authorizer.is_allowed_somewhere(principal, host, operation, kind)
            else:
                is_allowed = authorizer.is_allowed(principal, host, operation, kind, name)
            yield "1" if is_allowed else "0"


def cases(count: int, *, has_ranges: bool = True) -> list[Case]:
    return [one_case(Random(SEED + number), has_ranges=has_ranges) for number in range(count)]


def one_case(random: Random, *, has_ranges: bool) -> Case:
    names = random.sample(NAMES, 5)
    types = random.sample(TYPES, 2)
    hosts = HOSTS + RANGES if has_ranges else HOSTS
    entries = {
        AclEntry(
            resource_type=random.choice(types),
            resource_name=random.choice(names),
            pattern_type=random.choice([PatternType.LITERAL, PatternType.PREFIXED]),
            principal=random.choice(PRINCIPALS[1:]),
            host=random.choice(hosts),
            operation=random.choice(ENTRY_OPERATIONS),
            permission=random.choice([AclPermission.DENY, *3 * [AclPermission.ALLOW]]),
        ): None
        for _ in range(random.choice([0, 1, 3, 8, 20]))
    }
    questions = []
    for _ in range(12):
        kind = random.choice(types)
        questions.append(
            Question(
                random.choice(PRINCIPALS[:3] + PRINCIPALS[4:]),
                random.choice(ADDRESSES),
                random.choice(OPERATIONS[kind]),
                kind,
                random.choice(
                    [None, *3 * [name for name in names if name != BEGINS_WITH_WILDCARD]]
                ),
            )
        )
    return Case(random.random() < 0.4, list(entries), questions)


def test_kafkas_answers_are_ours() -> None:
    asked = cases(CASES_KEPT)
    kept = ANSWERS.read_text().split()

    assert len(kept) == CASES_KEPT
    for case, kafka_said in zip(asked, kept, strict=True):
        assert "".join(case.answers()) == kafka_said, "\n".join(case.lines())


def test_the_kept_answers_are_of_both_kinds() -> None:
    kept = ANSWERS.read_text()

    assert min(kept.count("0"), kept.count("1")) > 500


def test_a_kafka_at_hand_answers_as_we_do(tmp_path: Path) -> None:
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's authorizer was NOT asked here")
    has_ranges = not any(Path(jars).glob("kafka-metadata-4.[0-3].*.jar"))
    asked = cases(CASES_ASKED, has_ranges=has_ranges)

    kafka_said = ask_kafka(asked, f"{jars}/*", tmp_path)

    for case, answers in zip(asked, kafka_said, strict=True):
        assert "".join(case.answers()) == answers, "\n".join(case.lines())


def ask_kafka(asked: list[Case], class_path: str, directory: Path) -> list[str]:
    """Return Kafka's answers, those of one case a text."""
    compiler = ["javac", "-d", str(directory), "-cp", class_path, str(PROGRAM)]
    subprocess.run(compiler, check=True, timeout=300)
    text = "".join(f"{line}\n" for case in asked for line in case.lines())
    program = ["java", "-cp", f"{directory}:{class_path}"]
    program.append("org.apache.kafka.metadata.authorizer.AnswerQuestions")
    ran = subprocess.run(program, input=text, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    answers = iter(ran.stdout.split())
    return ["".join(next(answers) for _ in case.questions) for case in asked]

"""Checker of a producer-ids history: brokers never allocate a producer id twice, and the epochs of
a transactional id rise.

The module is pure. Values: init has null -> [producer_id, epoch].

- duplicate-producer-id: two initialisations received the same id, but do not share a transactional
  id.
- epoch-went-back: a transactional id received an epoch that is not above an earlier one.
"""

from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Operation


def check_producer_ids(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on the producer ids and epochs that producers received."""
    findings = Findings("producer-ids")
    owners: dict[int, list[Operation]] = {}
    given = [
        operation
        for operation in history.operations("init")
        if operation.kind is EventKind.OK and operation.value is not None
    ]
    for operation in given:
        owners.setdefault(operation.value[0], []).append(operation)
    for producer_id, operations in owners.items():
        names = {operation.extra.get("transactional_id") for operation in operations}
        if len(operations) > 1 and (len(names) > 1 or None in names):
            findings.add(
                "duplicate-producer-id",
                f"producer id {producer_id} was given {len(operations)} times",
                indexes(operations),
            )
        elif len(operations) > 1:
            _check_epochs(producer_id, operations, findings)
    findings.figures["given"] = len(given)
    findings.figures["producer_id_max"] = max(owners, default=None)
    return findings.verdict(facts)


def _check_epochs(producer_id: int, operations: list[Operation], findings: Findings) -> None:
    """Report epochs of one transactional id that do not rise with each initialisation. All
    operations have the same producer id."""
    newest: Operation | None = None
    for operation in sorted(operations, key=lambda operation: operation.index):
        if newest is not None:
            is_after = newest.index < operation.invoke.index
            is_lower = operation.value[1] < newest.value[1]
            if operation.value[1] == newest.value[1] or (is_after and is_lower):
                findings.add(
                    "epoch-went-back",
                    f"producer id {producer_id} was given epoch {operation.value[1]} "
                    f"after {newest.value[1]}",
                    indexes([newest, operation]),
                )
        if newest is None or operation.value[1] > newest.value[1]:
            newest = operation

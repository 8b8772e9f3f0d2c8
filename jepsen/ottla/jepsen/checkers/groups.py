"""Checker of a group history: the member that owns each partition, and the offsets committed for
it.

The module is pure. Source: rule R7 (`checkers/__init__.py`). A key is a partition.

- two-owners: a key belongs to two members within one generation (KIP-848: epoch).
- generation-went-back: a member acts in an older generation than it did before.
- old-generation-commit: a commit of an older generation overwrote an offset committed in a newer
  one.
- committed-unread: a group committed an offset above a record that none of its members received.

The rules of `registers.py` apply to fetches of committed offsets.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ottla.jepsen.checkers import registers
from ottla.jepsen.checkers.log_reading import indexes
from ottla.jepsen.checkers.verdict import Findings, RunFacts, Verdict
from ottla.jepsen.history import EventKind, History, Json, Operation

OWNING = ("assigned", "poll", "commit")
"""Names of operations and events that prove which member owned a key (partition) in a generation.
"""


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """Evidence that a group member owned a key (partition) in a generation: one operation of the
    member."""

    operation: Operation
    group: str
    member: str
    generation: int
    key: str


def check_groups(history: History, facts: RunFacts) -> Verdict:
    """Return the verdict on partition ownership and offset commits in all consumer groups of a
    history."""
    findings = Findings("groups")
    claims = list(_claims(history))
    _check_one_owner(claims, _clients(history), findings)
    _check_generations(claims, findings)
    _check_commits(claims, findings)
    _check_read_before_committed(history, findings)
    groups: dict[str, registers.RegisterGroup] = {}
    for operation in history.operations("commit", "fetch"):
        value = operation.value
        if isinstance(value, Mapping) and isinstance(value.get("keys"), Mapping):
            group = groups.setdefault(value["group"], registers.RegisterGroup())
            group.add(operation, value["keys"])
    registers.check_registers(groups, facts, findings)
    findings.figures["generations"] = len({(claim.group, claim.generation) for claim in claims})
    findings.figures["members"] = len({(claim.group, claim.member) for claim in claims})
    return findings.verdict(facts, allowed=registers.ALLOWED)


def _claims(history: History) -> Iterator[KeyClaim]:
    for operation in history.operations(*OWNING):
        value = operation.value
        if operation.kind is not EventKind.OK or not isinstance(value, Mapping):
            continue
        member, generation = value.get("member"), value.get("generation")
        if member is None or generation is None:
            continue
        for key in value.get("keys") or ():
            yield KeyClaim(operation, value["group"], member, generation, key)


def _clients(history: History) -> dict[tuple[str, str], int]:
    """Return the process number under which the events of each group member are recorded, by
    (group, member).

    A static member that rejoins has a new id in the same generation, and is still the same client.
    """
    return {
        (operation.value["group"], operation.value["member"]): operation.invoke.process
        for operation in history.operations("assigned", "revoked", "lost")
        if operation.value.get("member") is not None
    }


def _check_one_owner(
    claims: list[KeyClaim], clients: Mapping[tuple[str, str], int], findings: Findings
) -> None:
    owners: dict[tuple[str, int, str], KeyClaim] = {}
    for claim in claims:
        place = (claim.group, claim.generation, claim.key)
        owner = owners.setdefault(place, claim)
        if owner.member == claim.member:
            continue
        client = clients.get((claim.group, claim.member))
        if client is None or client != clients.get((owner.group, owner.member)):
            findings.add(
                "two-owners",
                f"{claim.group}: in generation {claim.generation} {claim.key} belongs to "
                f"{owner.member} and to {claim.member}",
                indexes([owner.operation, claim.operation]),
                claim.key,
            )


def _check_generations(claims: list[KeyClaim], findings: Findings) -> None:
    newest: dict[tuple[str, str], KeyClaim] = {}
    for claim in sorted(claims, key=lambda claim: claim.operation.index):
        before = newest.setdefault((claim.group, claim.member), claim)
        if claim.generation >= before.generation:
            newest[claim.group, claim.member] = claim
        elif before.operation.index < claim.operation.invoke.index:
            findings.add(
                "generation-went-back",
                f"{claim.group}: {claim.member} acted in generation {claim.generation} "
                f"after {before.generation}",
                indexes([before.operation, claim.operation]),
                claim.key,
            )


def _check_commits(claims: list[KeyClaim], findings: Findings) -> None:
    """Report every offset commit that began after a commit of a newer group generation was
    acknowledged."""
    moments: list[tuple[int, KeyClaim, bool]] = []
    for claim in claims:
        if claim.operation.invoke.f == "commit":
            moments.append((claim.operation.invoke.index, claim, True))
            moments.append((claim.operation.index, claim, False))
    newest: dict[tuple[str, str], KeyClaim] = {}
    for _, claim, is_begin in sorted(moments, key=lambda moment: moment[0]):
        before = newest.get((claim.group, claim.key))
        is_newest = before is None or before.generation <= claim.generation
        if before is not None and is_begin and not is_newest:
            findings.add(
                "old-generation-commit",
                f"{claim.group}: {claim.key} was committed in generation {claim.generation} "
                f"after {before.generation}",
                indexes([before.operation, claim.operation]),
                claim.key,
            )
        elif not is_begin and is_newest:
            newest[claim.group, claim.key] = claim


def _check_read_before_committed(history: History, findings: Findings) -> None:
    given: dict[tuple[str, str], set[int]] = {}
    known: dict[str, set[int]] = {}
    has_lost_polls: set[str] = set()
    for operation in history.operations("send", "poll"):
        value = operation.value
        if operation.invoke.f == "send":
            for _, key, at in value if operation.kind is EventKind.OK else ():
                if isinstance(at, list | tuple) and at[0] is not None:
                    known.setdefault(key, set()).add(at[0])
        elif isinstance(value, Mapping):
            keys = value.get("keys")
            if not isinstance(keys, Mapping):
                if operation.kind is EventKind.INFO:
                    has_lost_polls.add(value["group"])
                continue
            for key, records in keys.items():
                offsets = {offset for offset, _ in records}
                given.setdefault((value["group"], key), set()).update(offsets)
                known.setdefault(key, set()).update(offsets)
    ends: dict[tuple[str, str], tuple[int, Operation]] = {}
    for operation in history.operations("commit"):
        value = operation.value
        if operation.kind is EventKind.OK and isinstance(value, Mapping):
            for key, offset in _offsets(value).items():
                if offset > ends.get((value["group"], key), (-1, operation))[0]:
                    ends[value["group"], key] = (offset, operation)
    for (group, key), (end, operation) in ends.items():
        unread = sorted(
            offset
            for offset in known.get(key, set()) - given.get((group, key), set())
            if offset < end
        )
        if unread and group in has_lost_polls:
            findings.figures["unread_of_unknown_polls"] = len(unread)
        elif unread:
            findings.add(
                "committed-unread",
                f"{group}: {key} was committed up to {end}, "
                f"and no member was given {len(unread)} records below, first offset {unread[0]}",
                indexes([operation]),
                key,
            )


def _offsets(value: Mapping[str, Json]) -> Mapping[str, int]:
    keys = value.get("keys")
    return keys if isinstance(keys, Mapping) else {}

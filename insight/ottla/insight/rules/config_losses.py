"""Detects changes of settings that delete records, or put acknowledged records at risk. Pure."""

from collections.abc import Iterable

UNLIMITED = -1
RETENTIONS = frozenset(
    (
        "retention.ms",
        "retention.bytes",
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
        "log.retention.bytes",
    )
)
CLEANUP_POLICIES = ("cleanup.policy", "log.cleanup.policy")
UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC = "min.insync.replicas"


def losses_of(changes: Iterable[tuple[str, str | None, str | None]]) -> list[str]:
    """Return a clause for each change that deletes records or puts them at risk. The command
    includes the clauses in its question to the operator.

    A change is (key, value before, value after). The values are those that the broker reports; None
    means unknown.
    """
    return [clause for change in changes if (clause := _loss(*change))]


def _loss(key: str, before: str | None, after: str | None) -> str | None:
    if before == after:
        return None
    if key in RETENTIONS and _is_lower(before, after):
        return f"{key}={after} deletes records that {key}={before} keeps"
    if key in CLEANUP_POLICIES:
        added = _words(after) - _words(before)
        if added:
            return f"{key}={after} deletes records that {key}={before} keeps"
    if key == UNCLEAN_ELECTION and after == "true":
        return f"{key}=true may lose acknowledged records at an election"
    if key == MIN_INSYNC and after is not None and after.strip() == "1":
        return f"{key}=1 acknowledges records that only one replica has"
    return None


def _is_lower(before: str | None, after: str | None) -> bool:
    """Return whether a retention limit is lower than before. A negative value means that there is
    no limit."""
    try:
        old, new = int(before or UNLIMITED), int(after or UNLIMITED)
    except ValueError:
        return False  # the broker refuses it
    return new >= 0 and (old < 0 or new < old)


def _words(policy: str | None) -> set[str]:
    return {word.strip() for word in (policy or "").split(",") if word.strip()} - {"none"}

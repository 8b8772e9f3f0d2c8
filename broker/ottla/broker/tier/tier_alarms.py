"""Lasting failures of tiered storage on this broker, reported as problems in `ottla status`. Pure.

A single failure is only counted and repeated. A failure of the same work that has lasted for
`LASTING_MS` is a problem. A refusal by ACLs is a problem at once, because it ends only when an
operator acts.
"""

from collections.abc import Collection, Hashable, Iterator

from ottla.broker.tier.metadata_topic import REMOTE_METADATA_TOPIC
from ottla.model.amounts import counted, duration
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.settings.storage.tier import PROBLEM_PREFIX
from ottla.model.values import frozen

LASTING_MS = 30_000
"""Milliseconds after which a continuing failure is reported as a problem. With a smaller value, the
restart of an object store or of a leader alarms an operator."""

MAY_NOT = (
    f"the user of the brokers may not use the topic {REMOTE_METADATA_TOPIC}, so that nothing is "
    "copied; make it a super user (super.users), or run 'ottla acl create --allow USER --topic "
    f"{REMOTE_METADATA_TOPIC} --operation describe,create,read,write'"
)
"""Text about a refusal by ACLs, with advice for the operator."""


@frozen
class _Failure:
    """A continuing failure: the time of its first occurrence, and the reason of its last."""

    since_ms: int
    reason: str


def is_refusal(error: OttlaError | OSError) -> bool:
    """Return whether an error is a refusal by ACLs."""
    return isinstance(error, RefusedError) and error.code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )


class TierAlarms:
    """Current failures of tiered storage on one broker, by kind of work (such as copies) and by
    subject (such as a partition)."""

    def __init__(self) -> None:
        self._failures: dict[str, dict[Hashable, _Failure]] = {}
        self._refused: set[str] = set()
        """Kinds of work on the metadata topic that ACLs refuse."""

    def on_failure(self, work: str, subject: Hashable, reason: str, *, now_ms: int) -> None:
        """Record that a kind of work, such as "copies", has failed for a partition or another
        subject. `now_ms` is a monotonic time."""
        failures = self._failures.setdefault(work, {})
        before = failures.get(subject)
        failures[subject] = _Failure(now_ms if before is None else before.since_ms, reason)

    def on_success(self, work: str, subject: Hashable) -> None:
        """Record that a kind of work has succeeded for a partition or another subject. The failure
        then ends."""
        failures = self._failures.get(work)
        if failures is not None:
            failures.pop(subject, None)

    def forget(self, subject: Hashable) -> None:
        """Drop the failures of a partition for which this broker no longer works."""
        for failures in self._failures.values():
            failures.pop(subject, None)

    def keep_only(self, work: str, subjects: Collection[Hashable]) -> None:
        """Drop the failures of a kind of work for all subjects except `subjects`, for which this
        broker still does the work."""
        for subject in self._failures.get(work, {}).keys() - set(subjects):
            del self._failures[work][subject]

    def on_refusal(self, work: str) -> bool:
        """Record that ACLs refuse a kind of work on the metadata topic. Returns True if no other
        kind was refused before. The caller then logs `MAY_NOT`."""
        is_new = not self._refused
        self._refused.add(work)
        return is_new

    def on_permission(self, work: str) -> None:
        """Record that ACLs permit some work on the metadata topic."""
        self._refused.discard(work)

    def problems(self, now_ms: int) -> Iterator[str]:
        """Yield a problem description for each kind of work that ACLs refuse, or that has
        failed for LASTING_MS. A refusal is the cause of other failures, so these are not
        reported with it."""
        if self._refused:
            yield f"{PROBLEM_PREFIX}{MAY_NOT}"
            return
        for work, failures in sorted(self._failures.items()):
            lasting = [one for one in failures.values() if now_ms - one.since_ms >= LASTING_MS]
            if lasting:
                first = min(lasting, key=lambda one: one.since_ms)
                yield (
                    f"{PROBLEM_PREFIX}{work} of {counted(len(lasting), 'partition')} fail, for "
                    f"{duration(now_ms - first.since_ms)} by now: {first.reason}"
                )

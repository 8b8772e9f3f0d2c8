"""Cost of one authorization decision over ACLs, in this process.

The ACLs resemble those of a large company: literal and prefixed topics of very many users. Each
user has access from any address, from one address or from a range of addresses.  A broker answers
most authorizations from its cache.  After each change of an ACL, it decides once for each client
and resource without the cache.
"""

from collections.abc import Callable
from time import perf_counter_ns
from uuid import UUID

from ottla.metadata.acl_table import NO_ACLS, AclTable
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig

USERS = 1_000
HOSTS = ("*", "10.1.2.3", "10.0.0.0/8")
HOST = "10.1.2.3"
DECISIONS = 20_000
NS_PER_US = 1_000
SUPER_USER = "User:super"
WAYS = 8
"""Number of kinds of authorization decisions that the benchmark measures."""


def run_decisions(*, count: int, rounds: int, progress: Callable[[int], None]) -> dict[str, object]:
    """Return the microseconds of one authorization decision over `count` ACLs, by kind of decision.
    Each figure is the best of the rounds."""
    begun = perf_counter_ns()
    table = NO_ACLS.with_entries({UUID(int=at): _entry(at) for at in range(count)})
    built_ns = perf_counter_ns() - begun
    figures: dict[str, object] = {
        "entries": count,
        "build_ms": round(built_ns / NS_PER_US / 1_000, 1),
        "change_us": round(_best(rounds, lambda: _changed(table, count)), 2),
    }
    for at, (name, way) in enumerate(_ways(table, count).items(), 1):
        figures[f"{name}_us"] = round(_best(rounds, way), 3)
        progress(at)
    return figures


def _ways(table: AclTable, count: int) -> dict[str, Callable[[], int]]:
    """Return the functions to measure, by kind of authorization decision. Each function returns the
    number of decisions that it made."""
    authorizer = StandardAuthorizer(
        AuthorizerConfig(super_users=frozenset({SUPER_USER})), acls=table
    )
    read, topic = AclOperation.READ, ResourceType.TOPIC
    literal, prefixed = _entry(1), _entry(0)
    ranged = next(one for one in map(_entry, range(count)) if "/" in one.host)

    def remembered(principal: str, name: str) -> Callable[[], int]:
        def decide() -> int:
            for _ in range(DECISIONS):
                authorizer.is_allowed(principal, HOST, read, topic, name)
            return DECISIONS

        return decide

    def judged(principal: str, name: str) -> Callable[[], int]:
        def decide() -> int:
            for _ in range(DECISIONS // 10):
                authorizer.decide(principal, HOST, read, topic, name)
            return DECISIONS // 10

        return decide

    def new_names() -> int:
        for at in range(DECISIONS):
            authorizer.is_allowed("User:guest", HOST, read, topic, f"guess-{at}", is_logged=False)
        return DECISIONS

    def somewhere() -> int:
        fresh = StandardAuthorizer(AuthorizerConfig(), acls=table)
        fresh.is_allowed_somewhere(literal.principal, HOST, AclOperation.WRITE, topic)
        return 1

    return {
        "remembered": remembered(literal.principal, literal.resource_name),
        "super_user": remembered(SUPER_USER, literal.resource_name),
        "literal": judged(literal.principal, literal.resource_name),
        "prefixed": judged(prefixed.principal, f"{prefixed.resource_name}-and-more"),
        "range": judged(ranged.principal, ranged.resource_name),
        "denied": judged("User:guest", "nothing-of-that-name"),
        "new_names": new_names,
        "somewhere": somewhere,
    }


def _entry(at: int) -> AclEntry:
    """Return the benchmark's ACL number `at`. Every second ACL is prefixed, with one of twenty
    prefix lengths."""
    is_prefix = at % 2 == 0
    return AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name=f"team-{at:0{5 + at % 40 // 2}}" if is_prefix else f"topic-{at}",
        pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=f"User:{at % USERS}",
        host=HOSTS[at % len(HOSTS)],
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )


def _changed(table: AclTable, count: int) -> int:
    table.with_entries({UUID(int=count): _entry(count)})
    table.without_entries([UUID(int=0)])
    return 2


def _best(rounds: int, way: Callable[[], int]) -> float:
    """Run the function `way` `rounds` times. Returns the microseconds per authorization decision in
    the fastest round."""
    found = []
    for _ in range(rounds):
        begun = perf_counter_ns()
        done = way()
        found.append((perf_counter_ns() - begun) / done / NS_PER_US)
    return min(found)

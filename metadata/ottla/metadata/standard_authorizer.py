"""Decides by the access control entries of an image what a principal may do.  Pure.

The order is that of Kafka's StandardAuthorizer:

1. super users may do everything;
2. the entries that count are those of the resource's type whose pattern is its name, a beginning
   of its name, or the wildcard; whose principal is the client's or everyone; whose host is the
   client's; and whose operation is the one asked for, or, where they allow, one that implies it;
3. one entry that denies outweighs all that allow;
4. where none of either is found: denied if there is any entry for the resource, else
   `allow.everyone.if.no.acl.found`.

Invariant: RevokedAtOnce (a decision rests on the table given to `take` last, never on an older
one): what is remembered of decisions is forgotten with every change of an entry.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.metadata.acl_table import (
    NO_ACLS,
    NO_LENGTHS,
    NO_RULES,
    AclRule,
    AclTable,
    PatternKey,
    Rules,
)
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.acl_hosts import address_of
from ottla.model.acls import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    ResourceType,
)
from ottla.model.settings.authorizer import AuthorizerConfig

REMEMBERED_MAX = 20_000
"""Decisions that are remembered at most, at some 400 bytes each: half of them young, half old.
Fewer make a broker with many clients and topics decide the same again, for 10 µs; more cost
memory, which a client that asks for name after name can make a broker hold."""

NAME_CHARS_REMEMBERED_MAX = 512
"""Length of the longest name that a decision is remembered of; a group's name may have 32 KiB."""

LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
HARD_CODED = "hardcode"
"""The name by which Kafka asks first whether an operation is allowed on anything."""


class Judgement(NamedTuple):
    """A decision, and what it rests on."""

    is_allowed: bool
    reason: str
    """Kafka's name of the rule: SuperUser, MatchingAcl, DefaultAllow, DefaultDeny."""
    entry: AclEntry | None = None
    """The entry that decided, if one did."""


SUPER_USER = Judgement(True, "SuperUser")
DEFAULT_ALLOW = Judgement(True, "DefaultAllow")
DEFAULT_DENY = Judgement(False, "DefaultDeny")


Question = tuple[str, str, AclOperation, ResourceType, str | None]
"""(principal, host, operation, type of resource, name); without a name: on any resource."""


class StandardAuthorizer:
    """The `Authorizer` of a node, and a publisher: it decides by the newest image.

    What it remembers of decisions is bounded, and belongs to one table of entries.
    """

    is_active = True

    def __init__(
        self, config: AuthorizerConfig, audit: AuditLog | None = None, acls: AclTable = NO_ACLS
    ) -> None:
        """Decide by a table of entries; write to an audit log, or to none."""
        self._super_users = config.super_users
        self._allows_without_entry = config.allow_everyone
        self._audit = audit
        self._acls = acls
        self._lengths: dict[int, tuple[int, ...]] = {}
        self._young: dict[Question, Judgement] = {}
        self._old: dict[Question, Judgement] = {}
        self.allowed_count = 0
        """Decisions that allowed, since the start."""
        self.denied_count = 0
        """Decisions that did not."""

    @property
    def name(self) -> str:
        """The name of this publisher in reports of faults."""
        return "authorizer"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Decide by the newer image."""
        self.take(image.acls)

    @property
    def logs_allowed(self) -> bool:
        """Whether what is allowed is logged too: then it must be asked each time."""
        return self._audit is not None and self._audit.has_allowed

    @property
    def acls(self) -> AclTable:
        """The entries that are decided by."""
        return self._acls

    def take(self, acls: AclTable) -> None:
        """Decide by another table from now on."""
        if acls is self._acls:
            return
        self._acls = acls
        self._lengths, self._young, self._old = {}, {}, {}

    def is_allowed(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the operation on one resource is allowed."""
        question = (principal, host, operation, resource_type, name)
        found = self._young.get(question)
        if found is None:
            found = self._old.get(question)
            if found is None:
                found = self.judge(principal, host, operation, resource_type, name)
            self._remember(question, found)
        if found.is_allowed:
            self.allowed_count += 1
        else:
            self.denied_count += 1
        if is_logged and self._audit is not None:
            if not found.is_allowed:
                self._audit.denied(question, found.reason, found.entry)
            elif self._audit.has_allowed:
                self._audit.allowed(question, found.reason, found.entry)
        return found.is_allowed

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Return whether the operation is allowed on at least one resource of the type."""
        question = (principal, host, operation, resource_type, None)
        found = self._young.get(question)
        if found is None:
            found = self._old.get(question)
            if found is None:
                is_allowed = self._is_allowed_somewhere(principal, host, operation, resource_type)
                found = Judgement(is_allowed, "AnyResource")
            self._remember(question, found)
        return found.is_allowed

    def judge(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Judgement:
        """Decide without remembering or logging it, and return what the decision rests on."""
        if principal in self._super_users:
            return SUPER_USER
        patterns = self._patterns_over(resource_type, name)
        allowing: AclEntry | None = None
        for rule in self._rules_of(principal, patterns, operation, host):
            if rule.is_deny:
                return Judgement(False, "MatchingAcl", rule.entry)
            allowing = allowing or rule.entry
        if allowing is not None:
            return Judgement(True, "MatchingAcl", allowing)
        by_pattern = self._acls.by_pattern
        if self._allows_without_entry and not any(one in by_pattern for one in patterns):
            return DEFAULT_ALLOW
        return DEFAULT_DENY

    def _patterns_over(self, resource_type: ResourceType, name: str) -> list[PatternKey]:
        """Return the patterns under which a resource falls."""
        number = int(resource_type)
        patterns = [PatternKey(number, LITERAL, name)]
        if name != WILDCARD:
            patterns.append(PatternKey(number, LITERAL, WILDCARD))
        lengths = self._lengths.get(number)
        if lengths is None:
            lengths = tuple(self._acls.prefix_lengths.get(number, NO_LENGTHS))
            self._lengths[number] = lengths
        for length in lengths:
            if length > len(name):
                break
            patterns.append(PatternKey(number, PREFIXED, name[:length]))
        return patterns

    def _rules_of(
        self, principal: str, patterns: Iterable[PatternKey], operation: AclOperation, host: str
    ) -> Iterator[AclRule]:
        """Yield the rules of these patterns that decide an operation of a client."""
        bit = 1 << operation
        address = address_of(host)
        for buckets in self._buckets(principal):
            for pattern in patterns:
                for rule in buckets.get(pattern, ()):
                    if rule.operations & bit and rule.holds_at(host, address):
                        yield rule

    def _buckets(self, principal: str) -> Iterator[Rules]:
        by_principal = self._acls.by_principal
        yield by_principal.get(principal, NO_RULES)
        if principal != ANY_USER:
            yield by_principal.get(ANY_USER, NO_RULES)

    def _is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Decide as the default method of Kafka's Authorizer does.

        Only entries of the operation itself count there, and those of all operations.
        """
        if self.judge(principal, host, operation, resource_type, HARD_CODED).is_allowed:
            return True
        address = address_of(host)
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for buckets in self._buckets(principal):
            for pattern, rules in buckets.unordered_items():
                if pattern.resource_type != resource_type:
                    continue
                for rule in rules:
                    if rule.entry.operation not in (operation, AclOperation.ALL):
                        continue
                    if rule.holds_at(host, address):
                        (denied if rule.is_deny else allowed).add(pattern[1:])
        if (LITERAL, WILDCARD) in denied:
            return False
        if (LITERAL, WILDCARD) in allowed:
            return True
        lengths = {len(name) for kind, name in denied if kind == PREFIXED}
        return any(
            (kind, name) not in denied
            and not any((PREFIXED, name[:length]) in denied for length in lengths)
            for kind, name in allowed
        )

    def _remember(self, question: Question, found: Judgement) -> None:
        """Keep a decision among the young ones; when these are many, forget the old ones."""
        name = question[4]
        if name is not None and len(name) > NAME_CHARS_REMEMBERED_MAX:
            return
        if len(self._young) >= REMEMBERED_MAX // 2:
            self._old, self._young = self._young, {}
        self._young[question] = found

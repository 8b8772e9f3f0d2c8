"""Authorizes operations of principals by the ACLs of a metadata image; pure.

The rules and their order are those of Kafka's StandardAuthorizer:

1. Super users may do everything.
2. An entry applies if all of these match: the resource's type; the resource's name, by an equal
   name, a prefix or the wildcard; the principal, by its name or the wildcard; the client's host;
   and the operation, which an ALLOW entry may also imply.
3. A DENY entry that applies takes precedence over all ALLOW entries.
4. If no entry applies but the resource has entries, the operation is denied. If the resource has no
   entries, `allow.everyone.if.no.acl.found` decides.

Invariant: RevokedAtOnce (a decision uses the latest ACL table, never an older one). The authorizer
discards its cached decisions when any entry changes.
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
from ottla.model.security.acl_hosts import address_of
from ottla.model.security.acls import (
    ANY_USER,
    WILDCARD,
    AclEntry,
    AclOperation,
    PatternType,
    ResourceType,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig

REMEMBERED_MAX = 20_000
"""Maximum number of the authorizer's decisions in its cache, at about 400 bytes each. The cache has
two halves, for recent and for older decisions. With a smaller value, a broker with many clients and
topics computes decisions again, at 10 µs each. A larger value uses more memory, which a client can
fill by naming ever more resources."""

NAME_CHARS_REMEMBERED_MAX = 512
"""Maximum length in characters of a resource name for which the authorizer caches its decision. The
name of a group may have 32 KiB."""

LITERAL, PREFIXED = int(PatternType.LITERAL), int(PatternType.PREFIXED)
HARD_CODED = "hardcode"
"""Name of a resource that need not exist, as in Kafka. A principal that may perform an operation on
it may perform the operation on some resource of the type."""


class AuthorizationDecision(NamedTuple):
    """Decision of the authorizer on a principal's operation, and the reason for it."""

    is_allowed: bool
    reason: str
    """Kafka's name of the rule that led to the decision: SuperUser, MatchingAcl, DefaultAllow or
    DefaultDeny."""
    entry: AclEntry | None = None
    """ACL entry on which the decision is based, or None if the decision is not based on an
    entry."""


SUPER_USER = AuthorizationDecision(True, "SuperUser")
DEFAULT_ALLOW = AuthorizationDecision(True, "DefaultAllow")
DEFAULT_DENY = AuthorizationDecision(False, "DefaultDeny")


Question = tuple[str, str, AclOperation, ResourceType, str | None]
"""Input of an authorization decision: (principal, host, operation, resource type, name). If the
name is None, the question is whether the operation is allowed on any resource of the type."""


class StandardAuthorizer:
    """The authorizer of a node. As a metadata publisher it receives each new image, and decides by
    the ACLs of the newest one.

    Its cache of decisions is bounded, and is discarded when the ACLs change.
    """

    is_active = True

    def __init__(
        self, config: AuthorizerConfig, audit: AuditLog | None = None, acls: AclTable = NO_ACLS
    ) -> None:
        """Create an authorizer for an ACL table. If an audit log is given, the authorizer writes
        its decisions to that log."""
        self._super_users = config.super_users
        self._allows_without_entry = config.allow_everyone
        self._audit = audit
        self._acls = acls
        self._lengths: dict[int, tuple[int, ...]] = {}
        self._young: dict[Question, AuthorizationDecision] = {}
        self._old: dict[Question, AuthorizationDecision] = {}
        self.allowed_count = 0
        """Number of operations allowed since this authorizer was created."""
        self.denied_count = 0
        """Number of operations denied since this authorizer was created."""

    @property
    def name(self) -> str:
        """Name of the authorizer as a metadata publisher, in error reports."""
        return "authorizer"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Use the ACLs of the new metadata image for all further decisions."""
        self.take(image.acls)

    @property
    def logs_allowed(self) -> bool:
        """True if the audit log gets allowed operations too. Callers must then not cache
        permissions, so that every operation is logged."""
        return self._audit is not None and self._audit.has_allowed

    @property
    def acls(self) -> AclTable:
        """The ACL table that the authorizer currently uses."""
        return self._acls

    def take(self, acls: AclTable) -> None:
        """Replace the authorizer's ACL table, and discard its cached decisions."""
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
        """Return True if the ACLs allow a principal's operation on one resource. The audit log gets
        the decision if `is_logged`."""
        question = (principal, host, operation, resource_type, name)
        found = self._young.get(question)
        if found is None:
            found = self._old.get(question)
            if found is None:
                found = self.decide(principal, host, operation, resource_type, name)
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
        """Return True if the ACLs allow a principal's operation on at least one resource of the
        type."""
        question = (principal, host, operation, resource_type, None)
        found = self._young.get(question)
        if found is None:
            found = self._old.get(question)
            if found is None:
                is_allowed = self._is_allowed_somewhere(principal, host, operation, resource_type)
                found = AuthorizationDecision(is_allowed, "AnyResource")
            self._remember(question, found)
        return found.is_allowed

    def decide(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> AuthorizationDecision:
        """Return the decision on a principal's operation and the reason for it, without using the
        cache and without logging."""
        if principal in self._super_users:
            return SUPER_USER
        patterns = self._patterns_over(resource_type, name)
        allowing: AclEntry | None = None
        for rule in self._rules_of(principal, patterns, operation, host):
            if rule.is_deny:
                return AuthorizationDecision(False, "MatchingAcl", rule.entry)
            allowing = allowing or rule.entry
        if allowing is not None:
            return AuthorizationDecision(True, "MatchingAcl", allowing)
        by_pattern = self._acls.by_pattern
        if self._allows_without_entry and not any(one in by_pattern for one in patterns):
            return DEFAULT_ALLOW
        return DEFAULT_DENY

    def _patterns_over(self, resource_type: ResourceType, name: str) -> list[PatternKey]:
        """Return the resource patterns of ACL entries that may match a resource. Prefixes are
        included only if their length occurs among the entries."""
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
        """Yield the ACL rules with these resource patterns that apply to a client's operation."""
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
        """Return whether an operation is allowed on any resource of a type, as the default method
        of Kafka's Authorizer (authorizeByResourceType) decides.

        That method considers only ACLs for the operation itself, and ACLs for all operations.
        """
        if self.decide(principal, host, operation, resource_type, HARD_CODED).is_allowed:
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

    def _remember(self, question: Question, found: AuthorizationDecision) -> None:
        """Add an authorization decision to the recent half of the cache. A full recent half
        replaces the old half."""
        name = question[4]
        if name is not None and len(name) > NAME_CHARS_REMEMBERED_MAX:
            return
        if len(self._young) >= REMEMBERED_MAX // 2:
            self._old, self._young = self._young, {}
        self._young[question] = found

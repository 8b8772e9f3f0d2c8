"""Finds the causes of a denied operation: the ACL that denies it, or ACLs that almost allow it.
Pure."""

from collections.abc import Iterator, Mapping

from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.acl_facts import AclFacts
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.rules.acl_text import operation_named, principal_of, sentence_of, word_of
from ottla.metadata.standard_authorizer import AuthorizationDecision
from ottla.model.security.acls import (
    ANY_USER,
    CLUSTER_NAME,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.values import frozen

NEAR_MAX = 3
"""Maximum number of listed ACLs that nearly allow the denied operation."""
REASONS = {
    "SuperUser": "it is one of super.users",
    "DefaultAllow": "no entry is about it, and allow.everyone.if.no.acl.found is true",
    "DefaultDeny": "no entry allows it",
}
"""Sentences for the authorizer's rules that decide without an ACL, by Kafka's names of the
rules."""
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


@frozen
class DeniedRequest:
    """The subject of an explanation: an operation on a resource, such as reading a topic, that was
    or may be denied to a user."""

    principal: str
    host: str
    operation: AclOperation
    kind: ResourceType
    name: str

    @property
    def resource_words(self) -> tuple[str, ...]:
        """Command-line options that name the resource."""
        if self.kind is ResourceType.CLUSTER:
            return ("--cluster",)
        return (f"--{self.kind.name.lower().replace('_', '-')}", NameArgument(self.name))


def explain_denial(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why a user may not perform an operation."""
    request = request_of(values)
    noun = request.kind.name.lower().replace("_", " ")
    subject = (
        f"{word_of(request.operation)} of {request.principal} from {request.host} on {noun} "
        f"{request.name}"
    )
    acls = facts.acls
    if acls is None:
        return concluded("denial", subject, [], unknown=facts.unknown or ["ACLs: not read"])
    if not acls.settings.is_on:
        note = "every client may do everything: authorizer.class.name is not set"
        return concluded("denial", subject, [], notes=[note])
    found = acls.decide(
        request.principal, request.host, request.operation, request.kind, request.name
    )
    if found.is_allowed:
        return concluded("denial", subject, [], notes=[f"it is allowed: {reason_of(found)}"])
    if found.entry is not None:
        causes = [_denying_entry(request, found.entry)]
    else:
        causes = list(_near_entries(request, acls))[:NEAR_MAX] or [_no_entry(request)]
    return concluded("denial", subject, causes)


def reason_of(found: AuthorizationDecision) -> str:
    """Return the reason for an authorizer's decision as a sentence."""
    return REASONS[found.reason] if found.entry is None else sentence_of(found.entry)


def request_of(values: Mapping[str, str]) -> DeniedRequest:
    """Return the operation and resource that the parameters of the question "denial" describe."""
    kind, name = next(
        ((kind, values[key]) for key, kind in RESOURCES.items() if values.get(key)),
        (ResourceType.CLUSTER, CLUSTER_NAME),
    )
    return DeniedRequest(
        principal_of(values.get("user") or "ANONYMOUS"),
        values.get("host") or "127.0.0.1",
        operation_named(values.get("operation", "")) or AclOperation.ANY,
        kind,
        name,
    )


def _denying_entry(request: DeniedRequest, entry: AclEntry) -> Cause:
    words = ["acl", "delete", "--principal", NameArgument(entry.principal), *_pattern_words(entry)]
    words += ["--operation", word_of(entry.operation), "--host", NameArgument(entry.host)]
    return Cause(
        kind="denied-by-entry",
        summary=sentence_of(entry),
        evidence=_evidence(entry),
        remedy="a denying ACL outweighs all that allow: delete it, or narrow it",
        fix=command(*words),
        more=command("acl", "list", *request.resource_words, *_matching(request)),
    )


def _near_entries(request: DeniedRequest, acls: AclFacts) -> Iterator[Cause]:
    """Yield a cause for each ACL that would allow the denied operation if one of its fields
    differed."""
    for entry in acls.entries:
        if (
            entry.permission is not AclPermission.ALLOW
            or entry.resource_type is not request.kind
            or entry.principal not in (request.principal, ANY_USER)
        ):
            continue
        has_operation = entry.operation in (AclOperation.ALL, request.operation)
        fits = _fits(request, entry)
        is_everywhere = entry.host == WILDCARD
        if has_operation and fits and not is_everywhere:
            yield _near(
                request,
                entry,
                "host-differs",
                f"{sentence_of(entry)}, and the client is at {request.host}",
            )
        elif has_operation and not fits and _is_mistaken_pattern(request, entry):
            yield _near(
                request,
                entry,
                "pattern-differs",
                f"{sentence_of(entry)}, which does not match {request.name}",
            )
        elif fits and not has_operation:
            yield _near(
                request,
                entry,
                "operation-missing",
                f"{sentence_of(entry)}, but no entry allows {word_of(request.operation)}",
            )


def _fits(request: DeniedRequest, entry: AclEntry) -> bool:
    if entry.pattern_type is PatternType.PREFIXED:
        return request.name.startswith(entry.resource_name)
    return entry.resource_name in (request.name, WILDCARD)


def _is_mistaken_pattern(request: DeniedRequest, entry: AclEntry) -> bool:
    """Return whether an ACL's resource name is probably a mistyped form of the requested name.
    Either a prefix was stored as a literal name, or a prefix has the wrong case or a wrong end."""
    asked, given = request.name.casefold(), entry.resource_name.casefold()
    if entry.pattern_type is PatternType.PREFIXED:
        return bool(given) and asked[:1] == given[:1]
    return asked.startswith(given.rstrip("*")) or given.startswith(asked)


def _near(request: DeniedRequest, entry: AclEntry, kind: str, summary: str) -> Cause:
    return Cause(
        kind=kind,
        summary=summary,
        evidence=_evidence(entry),
        fix=_creation(request),
        more=command("acl", "list", "--principal", NameArgument(request.principal)),
    )


def _no_entry(request: DeniedRequest) -> Cause:
    return Cause(
        kind="no-entry",
        summary=f"no ACL allows {request.principal} to {word_of(request.operation)} there",
        fix=_creation(request),
        more=command("acl", "list", *request.resource_words, *_matching(request)),
    )


def _creation(request: DeniedRequest) -> str:
    name = request.principal.removeprefix("User:")
    user = NameArgument(request.principal if ":" in name else name)
    operation = word_of(request.operation)
    return command(
        "acl", "create", "--allow", user, *request.resource_words, "--operation", operation
    )


def _matching(request: DeniedRequest) -> tuple[str, ...]:
    return () if request.kind is ResourceType.CLUSTER else ("--matching",)


def _pattern_words(entry: AclEntry) -> tuple[str, ...]:
    words = DeniedRequest("", "", entry.operation, entry.resource_type, entry.resource_name)
    is_prefixed = entry.pattern_type is PatternType.PREFIXED
    return (*words.resource_words, *(("--prefixed",) if is_prefixed else ()))


def _evidence(entry: AclEntry) -> tuple[Evidence, ...]:
    return (
        Evidence("principal", entry.principal),
        Evidence("host", entry.host),
        Evidence("permission", entry.permission.name.lower()),
        Evidence("operation", word_of(entry.operation)),
        Evidence("resource", entry.resource_name),
        Evidence("pattern", entry.pattern_type.name.lower()),
    )

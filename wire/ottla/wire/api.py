"""Declaration of one API: a row of the table in `apis.py`, and the notation of such rows. Pure
values.

A row declares the versions and listeners of the API, and the ACL operations that a client must be
allowed. It also declares the node that decides a request, the form of a refusal, and the cost
bounds of a request. These declarations are not repeated elsewhere.
"""

from enum import Enum, Flag, StrEnum, auto

from ottla.model.errors import ErrorCode
from ottla.model.limits import USER_OPERATION_RECORDS_MAX
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.values import frozen

OWN_KEYS_FROM = 20000
"""The lowest API key of Ottla's own admin APIs."""

AUTHORIZATION_CODES: dict[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""Error code for a denied ACL operation, by the type of its resource. A `Need` may have another
code."""


class ListenerKind(Flag):
    """Kinds of nodes (broker, controller) that serve an API on their Kafka listeners."""

    BROKER = auto()
    CONTROLLER = auto()
    BOTH = BROKER | CONTROLLER


BROKER, CONTROLLER, BOTH = ListenerKind.BROKER, ListenerKind.CONTROLLER, ListenerKind.BOTH


class Scope(Enum):
    """Part of a request or response that is refused if ACLs deny the client an operation."""

    REQUEST = "the request"
    EACH = "each one named"
    """Scope in which only the element of the request whose operation is denied is refused. The
    response has the error code at the position of this element."""
    HIDDEN = "left out of the answer"
    OPTION = "an option"
    """Scope in which only the option of the request whose operation is denied is refused. The rest
    of the request is served."""


class When(StrEnum):
    """Condition under which a client needs permission for an ACL operation."""

    ALWAYS = ""
    TRANSACTIONAL = "with a transactional id"
    NOT_TRANSACTIONAL = "without a transactional id"
    TWO_PHASE = "with two-phase commit"
    CONSUMER = "from a consumer"
    FOLLOWER = "from a replica"
    OF_CLIENTS = "up to version 3"
    OF_BROKERS = "from version 4"
    GROUP_KEYS = "for groups"
    TRANSACTION_KEYS = "for transactional ids"
    SHARE_KEYS = "for share groups"
    TOPIC_CONFIGS = "for topics"
    GROUP_CONFIGS = "for groups' settings"
    CLUSTER_CONFIGS = "for brokers, loggers and client metrics"
    TOPIC_IDS = "by topic id"
    CREATING = "to create topics"
    OTHER_OWNER = "for another owner"
    OTHER_TOKENS = "for tokens of others"
    ON_CONTROLLERS = "on a controller"
    IN_SHARE_SESSION = "in a share session"


class Decider(Enum):
    """Kind of node that decides a client's request: the receiving broker, a coordinator or the
    controller."""

    BROKER = "broker"
    """The broker that received the request decides it."""
    COORDINATOR = "coordinator"
    """The broker that coordinates the group or the transaction named in the request decides it."""
    CONTROLLER = "controller"
    """The active controller decides the request; brokers forward it with its principal and
    address."""


@frozen(kw_only=True)
class Need:
    """One ACL operation that a client must be allowed for a request, with its resource, scope and
    error code."""

    operation: AclOperation
    resource: ResourceType
    scope: Scope = Scope.REQUEST
    named_by: str = ""
    """Path of the request field that contains the resource's name. If the resource is the cluster,
    it is the field with the elements that need the operation. Empty if the need applies to the
    whole request, or if the response names the resources."""
    when: When = When.ALWAYS
    code: ErrorCode
    is_somewhere: bool = False
    """True if permission for the ACL operation on any single resource of the type is sufficient."""
    hides_as: ErrorCode | None = None
    """Error code that replaces `code` if the client must not be informed that the resource exists.
    None if `code` is always used."""


@frozen
class AnyOf:
    """Several ACL operations. A client needs only one of them. If all are denied, the error code of
    the last operation is returned."""

    needs: tuple[Need, ...]


@frozen(kw_only=True)
class Parts:
    """Elements of a request that are authorized and refused one by one, before the handler runs.

    `Need.named_by` names the list of these elements. The handler of an API without `Parts`
    authorizes the elements itself.
    """

    single: str = ""
    """Name of the field with the only resource, in request versions that have no list of elements.
    Requests of these versions are refused as a whole."""
    lists_from: int = 0
    """The first version of the API whose request contains the list of elements."""
    is_served_empty: bool = False
    """True if the handler is called even after all elements of the request were refused."""


@frozen(kw_only=True)
class Refusal:
    """Differences between the response to a refused request of an API and the response that
    `refusals.py` derives from the schemas."""

    repeats: tuple[str, ...] = ()
    """Request fields whose values the root of a refusing response repeats."""
    nulls: tuple[str, ...] = ()
    """Fields that a refusal sets to null, apart from its error code, in versions of the API in
    which they are nullable."""
    element_repeats: tuple[str, ...] = ()
    """Arrays of a request whose elements the refusing response repeats, each in its corresponding
    element."""
    elements: str = ""
    """Path of the response's arrays that contain the elements of a refusal. Empty if they are at
    the root."""
    has_both: bool = False
    """True if each element of a refusal (the response to a refused request) contains the error code
    even if the response as a whole contains one."""
    has_elements: bool = True
    """True if a refusal (the response to a refused request) has an element for each element of the
    request."""
    is_unique: bool = False
    """True if a refusing response lists an element only once, even if the request contains it
    twice."""
    is_explained: bool = True
    """True if an error message accompanies the error code at the root of a refusal (the response to
    a refused request)."""


@frozen(kw_only=True)
class CostBounds:
    """Bounds of the cost of one request to an API, in addition to the size of its frame."""

    records_max: int = 2 * USER_OPERATION_RECORDS_MAX
    """Maximum number of metadata records that the controller may write for one request. It is
    Kafka's bound, doubled for the additional record that each requested change may need."""
    strict_from: int | None = None
    """The first version of the API that may be refused by the quota of controller mutations. None
    for an API that this quota does not charge."""
    is_exempt: bool = False
    """True if requests of the API are not charged to the request quota, because only brokers send
    them."""


DERIVED, USUAL_COST = Refusal(), CostBounds()


@frozen(kw_only=True)
class Api:
    """One API: a row of the API table. Versions up to `highest` can be decoded; versions up to
    `latest_stable` are advertised."""

    key: int
    name: str
    lowest: int
    highest: int
    flexible_from: int | None
    listener: ListenerKind = BROKER
    unstable_from: int | None = None
    advertised_from: int | None = None
    """The lowest version of the API listed in ApiVersions, or None if it is `lowest`."""
    is_served: bool = True
    """True if this release serves the API, either on a Kafka listener or by gRPC between nodes."""
    is_optional: bool = False
    """True if the broker decides at run time whether ApiVersions lists the API, as for client
    telemetry."""
    decider: Decider = Decider.BROKER
    needs: tuple[Need | AnyOf, ...] = ()
    """ACL operations that a client must be allowed for a request of the API. If empty, `why_open`
    contains the reason."""
    why_open: str = ""
    parts: Parts | None = None
    refusal: Refusal = DERIVED
    is_answer_kept: bool = False
    """True if the API's encoded response may be reused while the metadata image is the same."""
    cost: CostBounds = USUAL_COST

    @property
    def on_broker(self) -> bool:
        """True if the API is served on the listeners of brokers."""
        return BROKER in self.listener

    @property
    def is_forwarded(self) -> bool:
        """True if brokers forward requests of the API to the active controller."""
        return self.on_broker and self.decider is Decider.CONTROLLER

    @property
    def is_own(self) -> bool:
        """True if the API is one of Ottla's own admin APIs, which Kafka does not have."""
        return self.key >= OWN_KEYS_FROM

    @property
    def latest_stable(self) -> int:
        """Highest stable version of the API. It is below `lowest` if no version is stable."""
        return self.highest if self.unstable_from is None else self.unstable_from - 1

    @property
    def advertised(self) -> range:
        """The versions of the API that ApiVersions lists; empty for an API that is not listed."""
        if self.is_own:
            return range(0)
        lowest = self.lowest if self.advertised_from is None else self.advertised_from
        return range(lowest, self.latest_stable + 1)

    @property
    def single_needs(self) -> tuple[Need, ...]:
        """All ACL operations that this API's row declares for clients. Each alternative of an
        `AnyOf` is listed separately."""
        found: list[Need] = []
        for one in self.needs:
            found += one.needs if isinstance(one, AnyOf) else (one,)
        return tuple(found)

    def serves(self, version: int) -> bool:
        """Return whether the receiving node accepts a request of this version of the API."""
        return self.lowest <= version <= self.latest_stable


# --- the notation of the table ---------------------------------------------------------------


def need(
    operation: AclOperation,
    resource: ResourceType,
    named_by: str = "",
    scope: Scope = Scope.REQUEST,
    *,
    when: When = When.ALWAYS,
    code: ErrorCode | None = None,
    is_somewhere: bool = False,
) -> Need:
    """Return the declaration that a client needs an ACL operation on a resource. The default error
    code depends on the resource type."""
    return Need(
        operation=operation,
        resource=resource,
        scope=scope,
        named_by=named_by,
        when=when,
        code=AUTHORIZATION_CODES[resource] if code is None else code,
        is_somewhere=is_somewhere,
    )


def on_cluster(operation: AclOperation, *, when: When = When.ALWAYS) -> Need:
    """Return the declaration that a client needs an ACL operation on the cluster for the whole
    request."""
    return need(operation, ResourceType.CLUSTER, when=when)


def on_topics(
    operation: AclOperation, named_by: str = "topics.name", scope: Scope = Scope.EACH
) -> Need:
    """Return the declaration that a client needs an ACL operation on each topic named in the
    request. `named_by` is the field with the names."""
    return need(operation, ResourceType.TOPIC, named_by, scope)


def on_group(
    operation: AclOperation, named_by: str = "group_id", scope: Scope = Scope.REQUEST
) -> Need:
    """Return the declaration that a client needs an ACL operation on the group named in the
    request. `named_by` is the field with the name."""
    return need(operation, ResourceType.GROUP, named_by, scope)


def on_transaction(named_by: str = "transactional_id", *, when: When = When.ALWAYS) -> Need:
    """Return the declaration that a client needs the ACL operation Write on the transactional id in
    the request."""
    return need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named_by, when=when)


def on_configs(operation: AclOperation) -> tuple[Need, ...]:
    """Return the declarations that a client needs an ACL operation on the configuration of each
    named resource."""
    name = "resources.resource_name"
    return (
        need(operation, ResourceType.TOPIC, name, Scope.EACH, when=When.TOPIC_CONFIGS),
        need(operation, ResourceType.GROUP, name, Scope.EACH, when=When.GROUP_CONFIGS),
        need(operation, ResourceType.CLUSTER, name, Scope.EACH, when=When.CLUSTER_CONFIGS),
    )


def served(
    key: int,
    name: str,
    versions: str,
    *needs: Need | AnyOf,
    listener: ListenerKind = BROKER,
    decider: Decider = Decider.BROKER,
    is_served: bool = True,
    is_optional: bool = False,
    unstable_from: int | None = None,
    advertised_from: int | None = None,
    why_open: str = "",
    parts: Parts | None = None,
    refusal: Refusal = DERIVED,
    is_answer_kept: bool = False,
    cost: CostBounds = USUAL_COST,
) -> Api:
    """Return the row of the API table for an API that this release serves, unless `is_served` is
    False. Versions are written as in a schema: `3-13 flexible 9+`."""
    assert bool(needs) != bool(why_open), f"{name} needs something, or is open for a reason"
    spoken, _, flexible = versions.partition(" flexible ")
    lowest, _, highest = spoken.partition("-")
    return Api(
        key=key,
        name=name,
        lowest=int(lowest),
        highest=int(highest or lowest),
        flexible_from=int(flexible.removesuffix("+")) if flexible else None,
        listener=listener,
        decider=decider,
        is_served=is_served,
        is_optional=is_optional,
        unstable_from=unstable_from,
        advertised_from=advertised_from,
        needs=needs,
        why_open=why_open,
        parts=parts,
        refusal=refusal,
        is_answer_kept=is_answer_kept,
        cost=cost,
    )


def coordinated(
    key: int,
    name: str,
    versions: str,
    *needs: Need | AnyOf,
    parts: Parts | None = None,
    refusal: Refusal = DERIVED,
    unstable_from: int | None = None,
) -> Api:
    """Return the row of the API table for an API that the coordinator of a group or a transaction
    decides."""
    return served(
        key,
        name,
        versions,
        *needs,
        decider=Decider.COORDINATOR,
        parts=parts,
        refusal=refusal,
        unstable_from=unstable_from,
    )


def forwarded(
    key: int,
    name: str,
    versions: str,
    *needs: Need | AnyOf,
    why_open: str = "",
    refusal: Refusal = DERIVED,
    cost: CostBounds = USUAL_COST,
) -> Api:
    """Return the row of the API table for an API that brokers forward to the active controller."""
    return served(
        key,
        name,
        versions,
        *needs,
        listener=BOTH,
        decider=Decider.CONTROLLER,
        why_open=why_open,
        refusal=refusal,
        cost=cost,
    )


def between_nodes(key: int, name: str, versions: str) -> Api:
    """Return the row of the API table for an API that only nodes of the cluster send to a
    controller."""
    return served(
        key,
        name,
        versions,
        on_cluster(AclOperation.CLUSTER_ACTION),
        listener=CONTROLLER,
        decider=Decider.CONTROLLER,
    )


def not_served(
    key: int,
    name: str,
    versions: str,
    *needs: Need | AnyOf,
    listener: ListenerKind = BROKER,
    decider: Decider = Decider.BROKER,
    unstable_from: int | None = None,
) -> Api:
    """Return the row of the API table for a Kafka API that this release does not serve."""
    return served(
        key,
        name,
        versions,
        *needs,
        listener=listener,
        decider=decider,
        is_served=False,
        unstable_from=unstable_from,
    )

"""Generator of docs/reference/permissions.md from `wire/apis`: the ACL operations that each request
needs."""

from ottla.wire.api import AnyOf, Api, Decider, Need, Scope
from ottla.wire.apis import API
from ottla.wire.rpc_needs import RPC_NEEDS

COLUMNS = ("API", "operations", "without them", "decided by")

INTRODUCTION = (
    "# Required operations\n\nWhat a client must be allowed for each request, where "
    "`authorizer.class.name` is set ([security.md](../security.md)). "
    "Operations are Kafka's: an entry "
    "that allows Read, Write, Delete or Alter allows Describe too, and one that allows "
    "AlterConfigs allows DescribeConfigs. What the controller decides was forwarded by a broker, "
    "and is decided for the client itself.\n\n"
)


def permission_rows(*, is_own: bool) -> list[tuple[str, ...]]:
    """Return the rows of the permissions table for Kafka's APIs, or for Ottla's own APIs if
    `is_own`."""
    return [
        (
            row.name,
            "; ".join(dict.fromkeys(map(_needs, row.needs))) or f"none: {row.why_open}",
            "; ".join(dict.fromkeys(map(_refusal, row.needs))),
            _decider(row),
        )
        for row in API.values()
        if row.is_own == is_own
    ]


def rpc_rows() -> list[tuple[str, str]]:
    """Return the rows of the permissions table for the gRPC methods between nodes."""
    return [(f"`{path}`", _needs(need)) for path, need in RPC_NEEDS.items()]


def _decider(row: Api) -> str:
    if not row.on_broker:
        return "not served: nodes speak gRPC"
    if not row.needs:
        return ""
    return "controller" if row.decider is Decider.CONTROLLER else "broker"


def _needs(one: Need | AnyOf) -> str:
    if isinstance(one, AnyOf):
        return " or ".join(map(_need, one.needs)) + _when(one.needs[0])
    return _need(one) + _when(one)


def _need(need: Need) -> str:
    where = "any " if need.is_somewhere else ""
    return f"{where}{_words(need.resource.name)} {_words(need.operation.name)}"


def _when(need: Need) -> str:
    return f" ({need.when.value})" if need.when.value else ""


def _refusal(one: Need | AnyOf) -> str:
    """Return the effect of a missing permission. If a request needs one of several operations, the
    last operation decides."""
    need = one.needs[-1] if isinstance(one, AnyOf) else one
    code = need.hides_as or need.code
    if need.scope is Scope.HIDDEN:
        return f"{_words(need.resource.name)} is left out"
    if need.scope is Scope.OPTION:
        return "the option is not served"
    return f"{code.name} ({code.value})"


def _words(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))

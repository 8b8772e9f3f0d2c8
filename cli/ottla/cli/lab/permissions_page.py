"""docs/permissions.md: the operations that each request needs, from `wire/api_permissions`."""

from ottla.wire.api_permissions import (
    PERMISSIONS,
    RPC_PERMISSIONS,
    AnyOf,
    ApiPermission,
    Decider,
    Need,
    Scope,
)
from ottla.wire.apis import API, OWN_KEYS_FROM

COLUMNS = ("API", "operations", "without them", "decided by")

INTRODUCTION = (
    "# Required operations\n\nWhat a client must be allowed for each request, where "
    "`authorizer.class.name` is set ([security.md](security.md)). Operations are Kafka's: an entry "
    "that allows Read, Write, Delete or Alter allows Describe too, and one that allows "
    "AlterConfigs allows DescribeConfigs. What the controller decides was forwarded by a broker, "
    "and is decided for the client itself.\n\n"
)


def permission_rows(*, is_own: bool) -> list[tuple[str, ...]]:
    """Return the rows of the APIs: Kafka's, or our own."""
    return [
        (
            API[row.key].name,
            "; ".join(dict.fromkeys(map(_needs, row.needs))) or f"none: {row.why_open}",
            "; ".join(dict.fromkeys(map(_refusal, row.needs))),
            _decider(row),
        )
        for row in PERMISSIONS.values()
        if (row.key >= OWN_KEYS_FROM) == is_own
    ]


def rpc_rows() -> list[tuple[str, str]]:
    """Return the rows of the gRPC methods between nodes."""
    return [(f"`{path}`", _needs(need)) for path, need in RPC_PERMISSIONS.items()]


def _decider(row: ApiPermission) -> str:
    if not API[row.key].on_broker:
        return "not served: nodes speak gRPC"
    return "" if not row.needs else ("broker" if row.decider is Decider.BROKER else "controller")


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
    """Return what becomes of what is not allowed; of several operations the last one decides."""
    need = one.needs[-1] if isinstance(one, AnyOf) else one
    code = need.hides_as or need.code
    if need.scope is Scope.HIDDEN:
        return f"{_words(need.resource.name)} is left out"
    if need.scope is Scope.OPTION:
        return "the option is not served"
    return f"{code.name} ({code.value})"


def _words(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))

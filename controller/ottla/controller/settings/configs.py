"""Dynamic settings of topics, brokers, the whole cluster, groups and client metrics.

Each resource of a request succeeds or fails as a whole.  If a setting already has the requested
value, no record is written.  Invariant OneMinIsr: with eligible leader replicas (ELRs), all
controllers must agree on min.insync.replicas.  A single broker therefore cannot have its own value,
and a change of the value drops the ELRs that were chosen under the old value.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ottla.controller.decision import Context, Decision, Draft
from ottla.controller.replication import balance_moves, balance_plan
from ottla.controller.replication.elections import elect_leaderless
from ottla.controller.replication.topics import check_topic_name
from ottla.controller.requester import Requester
from ottla.controller.settings_in_force import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_LEADER_ELECTION,
    is_elr_enabled,
    topic_defaults,
    topic_setting,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import Record, clear_elr_record, config_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import Explanations
from ottla.model.ids import parse_node_id
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.balance import BALANCE_KEYS, BALANCE_PLAN
from ottla.model.settings.connections import is_connection_bound
from ottla.model.settings.declare import SettingKind
from ottla.model.settings.dynamic import check_texts, definitions_of
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.tiered_topics import check_tiering
from ottla.wire.messages.alter_configs_request import AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.alter_configs_response import (
    AlterConfigsResourceResponse as ReplacedResource,
)
from ottla.wire.messages.alter_configs_response import AlterConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

Changes = dict[str, str | None]
"""New values of settings by key, as text. None removes the setting."""


def incremental_alter_configs(
    image: MetadataImage, context: Context, request: IncrementalAlterConfigsRequest
) -> Decision[IncrementalAlterConfigsResponse]:
    """Return the decision on an IncrementalAlterConfigs request: change only the settings in the
    request."""
    draft, responses = _alter_each(
        image,
        context,
        request.resources,
        lambda image, key, resource: partial(_incremental, image, context, key, resource.configs),
        AlterConfigsResourceResponse,
        is_validation=request.validate_only,
    )
    return draft.decision(IncrementalAlterConfigsResponse(responses=responses), is_atomic=True)


def alter_configs(
    image: MetadataImage, context: Context, request: AlterConfigsRequest
) -> Decision[AlterConfigsResponse]:
    """Return the decision that replaces all settings of each resource by the settings in the
    request (the deprecated API AlterConfigs)."""

    def replacing(
        image: MetadataImage, key: tuple[int, str], resource: AlterConfigsResource
    ) -> Callable[[], Changes]:
        wanted: Changes = {config.name: config.value for config in resource.configs}
        gone: Changes = dict.fromkeys(image.config(*key))
        return partial(_replacing, gone, wanted)

    draft, responses = _alter_each(
        image,
        context,
        request.resources,
        replacing,
        ReplacedResource,
        is_validation=request.validate_only,
    )
    return draft.decision(AlterConfigsResponse(responses=responses), is_atomic=True)


class Resource(Protocol):
    """Resource in a request that alters settings, identified by its type and name."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
A = TypeVar("A")


def _alter_each(
    image: MetadataImage,
    context: Context,
    resources: Sequence[R],
    changes_of: Callable[[MetadataImage, tuple[int, str], R], Callable[[], Changes]],
    answer: Callable[..., A],
    *,
    is_validation: bool,
) -> tuple[Draft, list[A]]:
    """Alter the settings of each resource in a request. Returns the draft of the decision, and one
    result per resource for the response. If `is_validation`, the draft is empty."""
    times = Counter((one.resource_type, one.resource_name) for one in resources)
    draft = Draft(image)
    explanations = Explanations()
    responses = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        changes = changes_of(draft.image, key, resource)
        made, code, message = _alter(draft.image, context, key, times[key], changes)
        draft.add(made)
        responses.append(
            answer(
                error_code=code,
                error_message=explanations.of(message),
                resource_type=key[0],
                resource_name=key[1],
            )
        )
    draft.add(_elections_due(draft.image, context, draft.records))
    draft.add(_moves_due(image, draft.image, context))
    return Draft(image) if is_validation else draft, responses


def _replacing(gone: Changes, wanted: Changes) -> Changes:
    """Return the changes after which a resource has exactly the settings in `wanted`. `gone`
    contains the changes that delete all its present settings.

    Raises RefusedError if a wanted value is null.
    """
    if None in wanted.values():
        raise _null_values(wanted)
    return gone | wanted


def _elections_due(
    image: MetadataImage, context: Context, made: Sequence[Record]
) -> Sequence[Record]:
    """Return the leader elections that become possible because changed settings now allow unclean
    elections.

    The partitions get leaders immediately. Kafka elects the leaders only at its next periodic
    check.
    """
    if any(record.config.key == UNCLEAN_LEADER_ELECTION for record in made):
        return elect_leaderless(image, context.config)
    return ()


def _moves_due(before: MetadataImage, image: MetadataImage, context: Context) -> list[Record]:
    """Return the metadata records for a change of the balance plan. They start the moves of a plan
    that was just set, or cancel the moves of a plan that was just removed."""
    was, now = balance_plan.stored_moves(before), balance_plan.stored_moves(image)
    if now and not was:
        return balance_moves.advance(image, context.config)
    if was and not now:
        return balance_moves.undo(before, image, context.config)
    return []


Outcome = tuple[list[Record], ErrorCode, str | None]

NAMELESS: dict[int, str] = {
    ConfigKind.CLIENT_METRICS: "Subscription name can't be empty",
    ConfigKind.GROUP: "Default group resources are not allowed.",
}
"""Error messages for changes of settings without a resource name, by type of resource. Resources of
these types have no common defaults."""


def _alter(
    image: MetadataImage,
    context: Context,
    resource: tuple[int, str],
    times: int,
    changes: Callable[[], Changes],
) -> Outcome:
    try:
        if times > 1:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_allowed(context.requester, resource)
        resource_type = _check_resource(image, resource)
        wanted = changes()
        current = image.config(*resource)
        check_texts(
            resource_type,
            _without_none(wanted),
            _without_none({**current, **wanted}),
            groups=context.config.groups,
            is_of_all_brokers=resource == (ConfigKind.BROKER, ""),
        )
        if resource_type is ConfigKind.TOPIC:
            check_tiering(
                current,
                {**current, **wanted},
                partial(topic_defaults, image, context.config),
                is_system_enabled=context.config.is_tiering_enabled,
            )
        _check_controller(image, resource, wanted)
        _check_min_isr(image, resource, wanted)
        _check_balance(image, context.requester, wanted)
    except RefusedError as refusal:
        return _refused(refusal)
    records = [
        config_record(*resource, key, text)
        for key, text in sorted(wanted.items())
        if current.get(key) != text
    ]
    changed = {record.config.key for record in records}
    if is_elr_enabled(image) and MIN_INSYNC_REPLICAS in changed:
        records.append(_forget_elrs(resource))
    return records, ErrorCode.NONE, None


def _refused(refusal: RefusedError) -> Outcome:
    return [], refusal.code, refusal.message


def _check_allowed(requester: Requester, resource: tuple[int, str]) -> None:
    """Raise RefusedError if the client may not change the settings of a resource. This check
    precedes all checks that would reveal whether the resource exists."""
    number, name = resource
    if number == ConfigKind.TOPIC:
        requester.check_topic(AclOperation.ALTER_CONFIGS, name)
    elif number == ConfigKind.GROUP:
        if not requester.allows(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, name):
            raise RefusedError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif number in (ConfigKind.BROKER, ConfigKind.CLIENT_METRICS):
        requester.check_cluster(AclOperation.ALTER_CONFIGS)


def _check_resource(image: MetadataImage, resource: tuple[int, str]) -> ConfigKind:
    number, name = resource
    if number == ConfigKind.TOPIC:
        if not name:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."
            )
        check_topic_name(name)
        if name not in image.topic_ids:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return ConfigKind.TOPIC
    if number == ConfigKind.BROKER:
        node_id = parse_node_id(name)
        if name and node_id is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}"
            )
        if name and node_id not in image.brokers and node_id not in image.controllers:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id {name}, which no broker has registered",
            )
        return ConfigKind.BROKER
    if number in NAMELESS and not name:
        raise RefusedError(ErrorCode.INVALID_REQUEST, NAMELESS[number])
    if number in NAMELESS:
        return ConfigKind(number)
    raise RefusedError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {number}")


def _check_controller(image: MetadataImage, resource: tuple[int, str], wanted: Changes) -> None:
    """Raise RefusedError if a changed setting of a broker resource has no effect on a
    controller."""
    kind, name = resource
    node_id = parse_node_id(name)
    if kind != ConfigKind.BROKER or node_id is None or node_id in image.brokers:
        return
    static = [key for key in wanted if not is_connection_bound(key)]
    if static:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {', '.join(static[:10])}; {name} is a"
            " controller, which has no dynamic settings of its own but bounds of connections.",
        )


def _check_min_isr(image: MetadataImage, resource: tuple[int, str], wanted: Changes) -> None:
    resource_type, name = resource
    is_about_brokers = resource_type == ConfigKind.BROKER and MIN_INSYNC_REPLICAS in wanted
    if not is_about_brokers or not is_elr_enabled(image):
        return
    if name:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
        )
    if wanted[MIN_INSYNC_REPLICAS] is None:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
        )


def _check_balance(image: MetadataImage, requester: Requester, wanted: Changes) -> None:
    """Raise RefusedError for a balance plan while another one is in progress, or while a throttle
    is set that no balance plan has set.

    The client needs the permission for reassignments, since the plan reassigns partitions.
    """
    if wanted.keys().isdisjoint(BALANCE_KEYS):
        return
    requester.check_cluster(AclOperation.ALTER)
    if not wanted.get(BALANCE_PLAN):
        return
    if balance_plan.stored_moves(image):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A balance is in progress; wait until it ends, or cancel it first.",
        )
    if balance_plan.has_rates(image):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A cluster-wide throttle of replication is set, which the balance would replace; "
            f"remove {' and '.join(balance_plan.RATES)} first.",
        )


def _forget_elrs(resource: tuple[int, str]) -> Record:
    return clear_elr_record(resource[1] if resource[0] == ConfigKind.TOPIC else "")


def _incremental(
    image: MetadataImage,
    context: Context,
    resource: tuple[int, str],
    configs: Sequence[AlterableConfig],
) -> Changes:
    names = Counter(config.name for config in configs)
    if any(count > 1 for count in names.values()):
        repeated = ", ".join(sorted(name for name, count in names.items() if count > 1))
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {repeated}"
        )
    changes: Changes = {}
    for config in configs:
        if config.config_operation not in tuple(AlterOperation):
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}."
            )
        operation = AlterOperation(config.config_operation)
        if operation is AlterOperation.DELETE:
            changes[config.name] = None
        elif config.value is None:
            raise _null_values({config.name: None})
        elif operation is AlterOperation.SET:
            changes[config.name] = config.value
        else:
            now = _list_in_force(image, context, resource, config.name, operation)
            changes[config.name] = ",".join(_combined(operation, now, config.value))
    return changes


def _list_in_force(
    image: MetadataImage,
    context: Context,
    resource: tuple[int, str],
    key: str,
    operation: AlterOperation,
) -> list[str]:
    number, name = resource
    definition = definitions_of(ConfigKind(number)).get(key)
    if definition is not None and definition.kind is not SettingKind.LIST:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {key} because its type is not LIST.",
        )
    if number == ConfigKind.TOPIC and definition is not None:
        value = topic_setting(image, context.config, name, key).value
    else:
        value = image.config(*resource).get(key, definition.default if definition else None)
    return _parts(value or "")


def _combined(operation: AlterOperation, now: list[str], value: str) -> list[str]:
    given = dict.fromkeys(_parts(value))
    if operation is AlterOperation.APPEND:
        had = set(now)
        return [*now, *(part for part in given if part not in had)]
    return [part for part in now if part not in given]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _without_none(texts: Mapping[str, str | None]) -> dict[str, str]:
    return {key: text for key, text in texts.items() if text is not None}


def _null_values(wanted: Mapping[str, str | None]) -> RefusedError:
    names = ", ".join(sorted(name for name, value in wanted.items() if value is None))
    return RefusedError(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {names}")

"""Changes of the finalized features by an operator (KIP-584), with Kafka's checks and error
messages.

Every registered broker and controller must support the new level, and every voter of the quorum
must be registered. A level that changed the format of records is never lowered, because records of
that level may be in the log.

When eligible leader replicas (ELRs, KIP-966) are enabled, the cluster first gets one value of
min.insync.replicas for all topics without their own. When they are disabled, all ELRs are dropped,
because they would become outdated before ELRs are enabled again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ottla.controller.decision import Context, Decision, decided
from ottla.controller.settings_in_force import MIN_INSYNC_REPLICAS, topic_default
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    OTTLA_VERSION,
    SUPPORTED,
    LevelRange,
    changes_records,
)
from ottla.metadata.image import FeatureRange, MetadataImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    Record,
    clear_elr_record,
    config_record,
    feature_level_record,
    register_controller_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.controller import ControllerConfig
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
UNSUPPORTED = LevelRange(0, 0)
"""Range of supported levels that stands for a feature that a node did not register."""
EVERY_TOPIC = ""


def update_features(
    image: MetadataImage, context: Context, request: UpdateFeaturesRequest
) -> Decision[UpdateFeaturesResponse]:
    """Return the decision to finalize all feature levels in the request. If one level is refused,
    no level is changed."""
    version = context.api_version
    records: list[Record] = []
    names = Counter(update.feature for update in request.feature_updates)
    for update in request.feature_updates:
        try:
            if names[update.feature] > 1:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, f"Feature {update.feature} appears more than once."
                )
            _check(image, context, update)
        except RefusedError as refusal:
            return decided(
                image,
                (),
                UpdateFeaturesResponse(
                    error_code=refusal.code,
                    error_message=f"The update failed for all features since the following "
                    f"feature had an error: {refusal.message}",
                ),
            )
        if image.features.get(update.feature, 0) != update.max_version_level:
            if update.feature == ELIGIBLE_LEADER_REPLICAS_VERSION:
                records.extend(_one_min_isr(image, context.config))
                records.append(clear_elr_record(EVERY_TOPIC))
            records.append(feature_level_record(update.feature, update.max_version_level))
            if update.feature == OTTLA_VERSION:
                # So far, the registrations were only in memory.
                records.extend(map(register_controller_record, context.controllers))
    if request.validate_only:
        records = []
    # From version 2 on, the response contains no results for single features.  The message is
    # Kafka's.
    results = [
        UpdatableFeatureResult(feature=one.feature, error_message="NONE")
        for one in request.feature_updates
    ]
    return decided(
        image,
        records,
        UpdateFeaturesResponse(error_message=None, results=results if version < 2 else []),
        is_atomic=True,
    )


def _one_min_isr(image: MetadataImage, config: ControllerConfig) -> Iterator[Record]:
    """Yield the metadata records that set a single default of min.insync.replicas for the whole
    cluster."""
    for (resource_type, name), values in image.configs.items():
        if resource_type == BROKER_RESOURCE and name and MIN_INSYNC_REPLICAS in values:
            yield config_record(BROKER_RESOURCE, name, MIN_INSYNC_REPLICAS, None)
    if MIN_INSYNC_REPLICAS not in image.config(BROKER_RESOURCE, ""):
        value = topic_default(image, config, MIN_INSYNC_REPLICAS).value
        yield config_record(BROKER_RESOURCE, "", MIN_INSYNC_REPLICAS, value)


def _upgrade_type(context: Context, update: FeatureUpdateKey) -> int:
    """Return the type of a feature's update in a request. Version 0 of the request only has a flag
    that permits a downgrade."""
    if context.api_version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type


def _check(image: MetadataImage, context: Context, update: FeatureUpdateKey) -> None:
    """Raise RefusedError if the update of one feature is not permitted. The checks have Kafka's
    order."""
    name, level, kind = update.feature, update.max_version_level, _upgrade_type(context, update)

    def invalid(reason: str) -> RefusedError:
        return RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {level} for feature {name}. {reason}",
        )

    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise invalid("The controller does not support the given upgrade type.")
    if level < 0:
        raise invalid("A feature version cannot be less than 0.")
    reason = _reason_not_supported(image, context, name, level)
    if reason is not None:
        raise invalid(reason)
    now = image.features.get(name, 0)
    if level < now and kind == UPGRADE:
        raise invalid(
            "Can't downgrade the version of this feature without setting the upgrade "
            "type to either safe or unsafe downgrade."
        )
    if level > now and kind != UPGRADE:
        raise invalid("Can't downgrade to a newer version.")
    if changes_records(name, above=level, up_to=now):
        why = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
        raise RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported {name} downgrade from {now} to {level}. {why}",
        )
    if name == KRAFT_VERSION and level < now:
        raise invalid("Can't downgrade the version of this feature.")
    if name not in SUPPORTED:
        raise invalid(f"Feature {name} not found.")
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level == 0:
        _check_partitions_without_isr(image, invalid)


def _check_partitions_without_isr(
    image: MetadataImage, invalid: Callable[[str], RefusedError]
) -> None:
    """Raise RefusedError if a partition would have no replica that can lead, once eligible leader
    replicas are disabled."""
    for topic in image.topics.values():
        for partition_id, state in topic.partitions.items():
            if not state.isr:
                raise invalid(
                    f"Only eligible replicas can lead {topic.name}-{partition_id}: none is in sync."
                )


def _reason_not_supported(
    image: MetadataImage, context: Context, name: str, level: int
) -> str | None:
    """Return the reason why a node of the cluster does not support a feature level, or None if all
    nodes support it."""
    own_id = context.config.node_id
    ranges = {f"Local controller {own_id}": SUPPORTED.get(name, UNSUPPORTED)}
    for broker in image.brokers.values():
        ranges[f"Broker {broker.id}"] = _range_of(broker.features, name)
    for controller in context.controllers:
        if controller.id != own_id:
            ranges[f"Controller {controller.id}"] = _range_of(controller.features, name)
    for node, (lowest, highest) in ranges.items():
        if not lowest <= level <= highest:
            if highest == 0:
                return f"{node} does not support this feature."
            return f"{node} only supports versions {LevelRange(lowest, highest)}"
    registered = {own_id, *(controller.id for controller in context.controllers)}
    for id_ in context.voter_ids:
        if id_ not in registered:
            return f"controller {id_} has not registered, and may not support this feature"
    return None


def _range_of(features: Iterable[FeatureRange], name: str) -> LevelRange:
    """Return the range of levels that a node has registered as supported for a feature."""
    for found in features:
        if found.name == name:
            return LevelRange(found.lowest, found.highest)
    return UNSUPPORTED

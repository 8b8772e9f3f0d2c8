"""Changes of the finalized features by an operator (KIP-584).

When eligible leader replicas (ELRs, KIP-966) are enabled, the cluster first gets one value of
min.insync.replicas for all topics without their own.  When they are disabled, all ELRs are dropped,
because they would become outdated before ELRs are enabled again.
"""

from collections import Counter
from collections.abc import Iterator

from ottla.controller.decision import Context, Decision, decided
from ottla.controller.settings_in_force import MIN_INSYNC_REPLICAS, topic_default
from ottla.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    LATER_VERSION_NAMES,
    METADATA_VERSION,
    METADATA_VERSION_NAMES,
    METADATA_VERSION_OF_RANGES,
    SUPPORTED,
)
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    BROKER_RESOURCE,
    Record,
    clear_elr_record,
    config_record,
    feature_level_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.settings.controller import ControllerConfig
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import (
    UpdatableFeatureResult,
    UpdateFeaturesResponse,
)

UPGRADE, UNSAFE_DOWNGRADE = 1, 3
EVERY_TOPIC = ""


def update_features(
    image: MetadataImage, context: Context, request: UpdateFeaturesRequest
) -> Decision[UpdateFeaturesResponse]:
    """Finalize all feature levels in the request.  If one of them is refused, none is changed."""
    version = context.api_version
    records: list[Record] = []
    names = Counter(update.feature for update in request.feature_updates)
    for update in request.feature_updates:
        try:
            if names[update.feature] > 1:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST, f"Feature {update.feature} appears more than once."
                )
            _check(image, update, version)
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
    if request.validate_only:
        records = []
    # From version 2 on, the response contains no results for single features.
    results = [
        UpdatableFeatureResult(feature=one.feature, error_message=None)
        for one in request.feature_updates
    ]
    return decided(
        image,
        records,
        UpdateFeaturesResponse(error_message=None, results=results if version < 2 else []),
        is_atomic=True,
    )


def _one_min_isr(image: MetadataImage, config: ControllerConfig) -> Iterator[Record]:
    """Yield the records after which the cluster has exactly one default of min.insync.replicas,
    which all controllers know."""
    for (resource_type, name), values in image.configs.items():
        if resource_type == BROKER_RESOURCE and name and MIN_INSYNC_REPLICAS in values:
            yield config_record(BROKER_RESOURCE, name, MIN_INSYNC_REPLICAS, None)
    if MIN_INSYNC_REPLICAS not in image.config(BROKER_RESOURCE, ""):
        value = topic_default(image, config, MIN_INSYNC_REPLICAS).value
        yield config_record(BROKER_RESOURCE, "", MIN_INSYNC_REPLICAS, value)


def _range(feature: str, lowest: int, highest: int, asked: int) -> str:
    """Return the supported levels of a feature in words.  Levels of metadata.version are named with
    their releases."""
    text = f"{lowest}-{highest}"
    if feature == METADATA_VERSION:
        text += f" ({METADATA_VERSION_NAMES[lowest]} to {METADATA_VERSION_NAMES[highest]})"
        if asked in LATER_VERSION_NAMES:
            text += (
                f"; {asked} is {LATER_VERSION_NAMES[asked]}, which this release does not have. "
                f"Upgrade by --feature {METADATA_VERSION}={highest}"
            )
    return text


def _check(image: MetadataImage, update: FeatureUpdateKey, version: int) -> None:
    name, level = update.feature, update.max_version_level

    def invalid(reason: str) -> RefusedError:
        return RefusedError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Invalid update version {level} for feature {name}. {reason}",
        )

    supported = SUPPORTED.get(name)
    if supported is None:
        raise invalid("The controller does not support this feature.")
    lowest, highest = supported
    if not lowest <= level <= highest:
        raise invalid(
            f"The controller only supports versions {_range(name, lowest, highest, level)}"
        )
    may_lower = update.allow_downgrade if version == 0 else update.upgrade_type != UPGRADE
    now = image.features.get(name, 0)
    if level < now and not may_lower:
        raise invalid(
            "Can't downgrade the version of this feature without setting the upgrade "
            "type to either safe or unsafe downgrade."
        )
    if name == METADATA_VERSION and level < METADATA_VERSION_OF_RANGES <= now:
        raise invalid(
            "Unsafe metadata downgrade is not supported in this version."
            if update.upgrade_type == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata "
            "information."
        )
    if name == METADATA_VERSION and level == 0:
        raise invalid("The metadata.version is never removed.")
    if name == ELIGIBLE_LEADER_REPLICAS_VERSION and level == 0:
        for topic in image.topics.values():
            for partition_id, state in topic.partitions.items():
                if not state.isr:
                    raise invalid(
                        f"Only eligible replicas can lead {topic.name}-{partition_id}: none is "
                        "in sync."
                    )
    for broker in image.brokers.values():
        ranges = {found.name: (found.lowest, found.highest) for found in broker.features}
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise invalid(f"Broker {broker.id} only supports versions {low}-{high}")

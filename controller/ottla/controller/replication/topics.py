"""Creation, growth and deletion of topics.  Each topic of a request succeeds or fails separately.

Error messages are the same as in Kafka.  Invariant NoNameCollision: there are no two topics whose
names differ only in `.` and `_`, since they would share metric names.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from ottla.controller.decision import Context, Decision, Draft, decided
from ottla.controller.replication.assignments import (
    NewTopics,
    check_hosts,
    check_manual,
    new_partition,
    place_more,
)
from ottla.controller.requester import Requester
from ottla.controller.settings_in_force import topic_defaults, topic_setting
from ottla.metadata.image import MetadataImage, PartitionState, Topic
from ottla.metadata.records import (
    TOPIC_RESOURCE,
    Record,
    config_record,
    partition_records,
    remove_topic_record,
    topic_record,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.explanations import EXPLAINED_MAX, Explanations
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, NodeId
from ottla.model.limits import TOPIC_NAME_LENGTH_MAX, USER_OPERATION_RECORDS_MAX
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.storage.tiered_topics import check_tiering
from ottla.model.settings.storage.topic import (
    REMOTE_STORAGE_ENABLE,
    TOPIC_DEFINITIONS,
    check_topic_as_a_whole,
    check_topic_texts,
)
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.delete_topics_response import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
REPLICAS_SHARE = 10
"""Number of replicas that count as one partition for the partition limit of a request. With a
smaller number, large replication factors are refused. With a larger one, a single request could
place a million replicas."""

UNSET = -1
"""Number in a request that stands for the cluster's default partition count or replication
factor."""


def create_topics(
    image: MetadataImage, context: Context, request: CreateTopicsRequest
) -> Decision[CreateTopicsResponse]:
    """Return the decision on a CreateTopics request. With `validate_only`, the decision is the
    same, but no records are written."""
    times = Counter(topic.name for topic in request.topics)
    refused = _not_allowed(context.requester, times)
    allowed = [topic for topic in request.topics if topic.name not in refused]
    partition_count = sum(_partition_count(context, topic) for topic in allowed)
    replica_count = sum(_replica_count(context, topic) for topic in allowed)
    config_count = sum(len(topic.configs) for topic in allowed)
    names = ReservedNames(image)
    defaults = _configs_in_force(image, context, "")
    draft, new_topics = Draft(image), NewTopics(image)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if topic.name in refused:
                raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            _bound_request(max(partition_count, config_count, replica_count // REPLICAS_SHARE))
            check_topic_name(topic.name)
            names.check(topic.name)
            result = _create(image, draft, context, topic, new_topics, defaults)
        except RefusedError as refusal:
            results.append(
                CreatableTopicResult(
                    name=topic.name,
                    error_code=refusal.code,
                    error_message=refusal.message,
                    configs=None,
                )
            )
            continue
        names.add(topic.name)
        results.append(result)
    if len(results) > EXPLAINED_MAX:
        explanations = Explanations()
        for result in results:
            result.error_message = explanations.of(result.error_message)
    if request.validate_only:
        draft = Draft(image)
    return draft.decision(CreateTopicsResponse(topics=results), is_atomic=True)


def _not_allowed(requester: Requester, times: Mapping[str, int]) -> set[str]:
    """Return the names of the topics that the client may not create. Each name is authorized once.
    `times` is the number of occurrences of each name in the request."""
    if requester.allows_on_cluster(AclOperation.CREATE, is_logged=False):
        return set()
    return {
        name
        for name, count in times.items()
        if count == 1
        and name != METADATA_TOPIC
        and not requester.allows(AclOperation.CREATE, ResourceType.TOPIC, name)
    }


def check_topic_name(name: str) -> None:
    """Raise RefusedError if a topic name is invalid.  Names are used for directories and
    metrics."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > TOPIC_NAME_LENGTH_MAX:
        problem = (
            f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    elif not LEGAL_NAME.fullmatch(name):
        problem = (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    if problem is not None:
        raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def delete_topics(
    image: MetadataImage, context: Context, request: DeleteTopicsRequest
) -> Decision[DeleteTopicsResponse]:
    """Return the decision on a DeleteTopics request, which names topics by name or, from version 6
    on, by id."""
    asked = [
        *request.topics,
        *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names),
    ]
    names = Counter(one.name for one in asked if one.name is not None)
    ids = Counter(one.topic_id for one in asked if one.topic_id != ZERO_UUID)
    records: list[Record] = []
    explanations = Explanations()
    results = []
    gone: set[UUID] = set()
    rights = DeletionRights(context.requester)
    for one in asked:
        name = one.name
        try:
            _check_deletion_is_enabled(context)
            topic = _find(image, one, rights)
            if one.name is None and rights.may_describe(topic.name):
                name = topic.name
            rights.check_delete(topic.name)
            if names[topic.name] + ids[topic.id] > 1:
                if topic.id in gone:
                    continue
                gone.add(topic.id)
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            context.charge.take(len(topic.partitions))
        except RefusedError as refusal:
            results.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=one.topic_id,
                    error_code=refusal.code,
                    error_message=explanations.of(refusal.message),
                )
            )
            continue
        records.append(remove_topic_record(topic.id))
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.id))
    return decided(image, records, DeleteTopicsResponse(responses=results), is_atomic=True)


class DeletionRights:
    """Permissions of a client for the topics that its request deletes."""

    def __init__(self, requester: Requester) -> None:
        self._requester = requester
        self._may_delete_all = requester.allows_on_cluster(AclOperation.DELETE, is_logged=False)

    def may_describe(self, name: str) -> bool:
        """Return whether the client may know that a topic of this name exists (permission to
        describe it)."""
        return self._may_delete_all or self._requester.allows(
            AclOperation.DESCRIBE, ResourceType.TOPIC, name
        )

    def check_describe(self, name: str) -> None:
        """Raise RefusedError if the client may not know whether the topic exists."""
        if not self.may_describe(name):
            raise RefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def check_delete(self, name: str) -> None:
        """Raise RefusedError if the client may not delete the topic."""
        if not self._may_delete_all:
            self._requester.check_topic(AclOperation.DELETE, name)


def create_partitions(
    image: MetadataImage, context: Context, request: CreatePartitionsRequest
) -> Decision[CreatePartitionsResponse]:
    """Return the decision on a CreatePartitions request, which adds partitions to topics. Existing
    partitions are not moved."""
    times = Counter(topic.name for topic in request.topics)
    records: list[Record] = []
    explanations = Explanations()
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        code, message = ErrorCode.NONE, None
        try:
            if times[asked.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            context.requester.check_topic(AclOperation.ALTER, asked.name)
            records.extend(_grow(image, context, asked, len(records)))
        except RefusedError as refusal:
            code, message = refusal.code, refusal.message
        results.append(
            CreatePartitionsTopicResult(
                name=asked.name, error_code=code, error_message=explanations.of(message)
            )
        )
    if request.validate_only:
        records = []
    return decided(image, records, CreatePartitionsResponse(results=results), is_atomic=True)


def _create(
    image: MetadataImage,
    draft: Draft,
    context: Context,
    asked: CreatableTopic,
    new_topics: NewTopics,
    defaults: list[CreatableTopicConfigs],
) -> CreatableTopicResult:
    """Add the metadata records that create a topic to the draft of a decision. Returns the topic's
    result for the response.

    `defaults` are the settings that the response lists for a topic without explicit settings. They
    are computed once for all topics of a request.
    """
    texts = {config.name: config.value for config in asked.configs}
    check_topic_texts(texts)
    check_topic_as_a_whole(texts)
    if REMOTE_STORAGE_ENABLE in texts:
        check_tiering(
            {},
            texts,
            partial(topic_defaults, image, context.config),
            is_system_enabled=context.config.is_tiering_enabled,
        )
    partitions = _partitions_of(image, context, asked, new_topics)
    context.charge.take(len(partitions))
    topic_id = context.rng.uuid()
    records = [topic_record(asked.name, topic_id)]
    for config in asked.configs:
        records.append(config_record(TOPIC_RESOURCE, asked.name, config.name, config.value))
    records += partition_records(topic_id, partitions)
    draft.add(records)
    new_topics.count()
    if not context.requester.allows(
        AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name, is_logged=False
    ):
        return CreatableTopicResult(
            name=asked.name,
            topic_id=topic_id,
            error_message=None,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    in_force = _configs_in_force(draft.image, context, asked.name) if asked.configs else defaults
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=in_force,
    )


class ReservedNames:
    """Topic names that a new topic of one request must not have. The existing topics are searched
    at most once per request."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._added: set[str] = set()
        self._alike: dict[str, str] | None = None
        """Existing topics' names, by the name under which their metrics are exported. None until a
        check first needs them."""

    def check(self, name: str) -> None:
        """Raise RefusedError if a topic with this name exists, or if the metrics of the new topic
        would have the same name as those of an existing topic."""
        if name == METADATA_TOPIC:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
            )
        if name in self._image.topic_ids or name in self._added:
            raise RefusedError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." not in name and "_" not in name:
            return
        if self._alike is None:
            self._alike = {_metric_name(one): one for one in self._image.topic_ids}
            self._alike.update((_metric_name(one), one) for one in self._added)
        other = self._alike.get(_metric_name(name))
        if other is not None:
            raise RefusedError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def add(self, name: str) -> None:
        """Reserve the name of a topic that the current request creates."""
        self._added.add(name)
        if self._alike is not None:
            self._alike[_metric_name(name)] = name


def _metric_name(name: str) -> str:
    return name.replace(".", "_")


def _partitions_of(
    image: MetadataImage, context: Context, asked: CreatableTopic, new_topics: NewTopics
) -> Sequence[PartitionState]:
    if asked.assignments:
        return _assigned(image, asked)
    if asked.replication_factor < UNSET or asked.replication_factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if asked.num_partitions < UNSET or asked.num_partitions == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    replication_factor = asked.replication_factor
    if replication_factor == UNSET:
        replication_factor = context.config.default_replication_factor
    return new_topics.place(_partition_count(context, asked), replication_factor)


def _assigned(image: MetadataImage, asked: CreatableTopic) -> Sequence[PartitionState]:
    if asked.replication_factor != UNSET:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if asked.num_partitions != UNSET:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, PartitionState] = {}
    replication_factor = None
    for assignment in asked.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        replicas = tuple(map(NodeId, assignment.broker_ids))
        check_manual(image, replicas, replication_factor)
        check_hosts(image, replicas)
        replication_factor = len(replicas)
        by_index[index] = new_partition(image, index, replicas)
    if set(by_index) != set(range(len(by_index))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [by_index[index] for index in range(len(by_index))]


def _partition_count(context: Context, asked: CreatableTopic) -> int:
    if asked.assignments:
        return len(asked.assignments)
    if asked.num_partitions == UNSET:
        return context.config.num_partitions
    return max(0, asked.num_partitions)


def _replica_count(context: Context, asked: CreatableTopic) -> int:
    if asked.assignments:
        return sum(len(assignment.broker_ids) for assignment in asked.assignments)
    factor = asked.replication_factor
    factor = context.config.default_replication_factor if factor == UNSET else max(0, factor)
    return _partition_count(context, asked) * factor


def _bound_request(partition_count: int) -> None:
    if partition_count > USER_OPERATION_RECORDS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _configs_in_force(
    image: MetadataImage, context: Context, name: str
) -> list[CreatableTopicConfigs]:
    configs = []
    for key in sorted(TOPIC_DEFINITIONS):
        value, source = topic_setting(image, context.config, name, key)
        configs.append(CreatableTopicConfigs(name=key, value=value, config_source=source))
    return configs


def _check_deletion_is_enabled(context: Context) -> None:
    if not context.config.delete_topic_enable:
        has_code = context.api_version >= 3
        code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
        raise RefusedError(code, "Topic deletion is disabled.")


def _find(image: MetadataImage, asked: DeleteTopicState, rights: DeletionRights) -> Topic:
    if asked.name is not None and asked.topic_id != ZERO_UUID:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if asked.name is None and asked.topic_id == ZERO_UUID:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if asked.name is not None:
        rights.check_describe(asked.name)
        topic = image.topic(asked.name)
        if topic is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic
    topic = image.topics.get(asked.topic_id)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_ID)
    return topic


def _grow(
    image: MetadataImage, context: Context, asked: CreatePartitionsTopic, before_count: int
) -> list[Record]:
    """Return the metadata records that add partitions to a topic.

    `before_count` is the number of partitions that the request adds to the topics listed before
    this topic.
    """
    topic = image.topic(asked.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(topic.partitions)
    if asked.count == current:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s)."
        )
    if asked.count < current:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {current} partition(s); {asked.count} would "
            "not be an increase.",
        )
    additional = asked.count - current
    replication_factor = len(topic.partitions[0].replicas)
    asked_count = before_count + additional
    _bound_request(max(asked_count, asked_count * replication_factor // REPLICAS_SHARE))
    if asked.assignments is None:
        states = place_more(image, topic, additional, replication_factor)
    else:
        if len(asked.assignments) != additional:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(asked.assignments)} assignment(s) were specified.",
            )
        states = []
        for index, assignment in enumerate(asked.assignments, start=current):
            replicas = tuple(map(NodeId, assignment.broker_ids))
            check_manual(image, replicas, replication_factor)
            check_hosts(image, replicas)
            states.append(new_partition(image, index, replicas))
    context.charge.take(additional)
    return partition_records(topic.id, states, current)

"""Comparison of a cluster's resources with those in an earlier metadata image. Pure."""

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from ottla.metadata.image import NO_CONFIG, ConfigResource, MetadataImage
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import AclEntry
from ottla.model.settings.resources import ConfigKind


class Leftovers(NamedTuple):
    """Resources that must be deleted to return a cluster to an earlier metadata image."""

    topics: tuple[str, ...]
    """Names of topics, including internal topics.  Deleting the internal topics also deletes groups
    and transactions."""
    configs: Mapping[ConfigResource, tuple[str, ...]]
    """Keys of the dynamic settings to delete, by resource. Settings of deleted topics are not
    included, because they are deleted with the topic."""
    quotas: Mapping[tuple[QuotaEntity, ...], tuple[str, ...]]
    """Keys of the client quotas to delete, by quota entity."""
    credentials: tuple[tuple[str, int], ...]
    """SCRAM credentials to delete: pairs of user name and Kafka's number of the SCRAM mechanism."""
    acls: tuple[AclEntry, ...]
    has_tokens: bool
    """True if the cluster has delegation tokens to delete. Tokens are deleted by HMAC, and a
    metadata image does not contain HMACs."""


NOTHING = Leftovers((), {}, {}, (), (), has_tokens=False)


def find_leftovers(image: MetadataImage, first: MetadataImage) -> Leftovers:
    """Return the resources that are in the metadata image `image` but not in the earlier image
    `first`.

    Resources that were changed or deleted since `first` are not included.
    """
    topics = {
        topic.name for topic_id, topic in image.topics.items() if topic_id not in first.topics
    }
    return Leftovers(
        topics=tuple(sorted(topics)),
        configs={
            resource: keys
            for resource, values in image.configs.items()
            if not (resource[0] == ConfigKind.TOPIC and resource[1] in topics)
            if (keys := _new_keys(values, first.configs.get(resource, NO_CONFIG)))
        },
        quotas={
            entity: keys
            for entity, limits in image.client_quotas.items()
            if (keys := _new_keys(limits, first.client_quotas.get(entity, {})))
        },
        credentials=tuple(
            (user, mechanism)
            for mechanism, users in image.scram_credentials.items()
            for user in _new_keys(users, first.scram_credentials.get(mechanism, {}))
        ),
        acls=tuple(
            image.acls.entries[one] for one in image.acls.entries if one not in first.acls.entries
        ),
        has_tokens=any(one not in first.delegation_tokens for one in image.delegation_tokens),
    )


def _new_keys(values: Mapping[str, object], first: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(sorted(key for key in chain(values) if key not in first))

"""The quota of controller mutations: partitions that clients create and delete (KIP-599).

Pure; the time goes in.  A token bucket a client, by the limit that holds for its user and client
id.  Buckets are the active controller's own: nothing of them is replicated, and a new one starts
with full buckets.  A full bucket is the same as none, so those are forgotten first.

From the version on that knows THROTTLING_QUOTA_EXCEEDED a request is held to the limit strictly:
with the bucket in debt a topic is refused before anything of it is written.  An older request is
served, and its client throttled.  As in Kafka a request of `validate_only` counts like any other.
Limits may be decided by code of the operator's own (`client.quota.callback.class`), which is asked
for every request, so that a change of its mind holds for the next one.
Features QU04, QU18, QU19, QU26.
"""

from collections.abc import Mapping

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.quota_limits import ClientEntity, Limits, limits_of
from ottla.model.quotas.quota_callback import CustomLimits
from ottla.model.rates import WindowShape
from ottla.model.settings.quotas import CONTROLLER_MUTATION_RATE
from ottla.model.token_bucket import TokenBucket
from ottla.wire.messages.create_partitions_request import CreatePartitionsRequest
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest

STRICT_FROM = {
    CreateTopicsRequest.API_KEY: 6,
    DeleteTopicsRequest.API_KEY: 5,
    CreatePartitionsRequest.API_KEY: 3,
}
"""The APIs that are charged, and the first version of each that may be refused."""

BUCKETS_MAX = 10_000
"""Clients whose buckets are kept: more costs memory, some 500 bytes each; with fewer, clients that
are in debt are forgiven when very many others make changes."""

NAME_CHARS_MAX = 256
"""Names are compared to this length: clients choose their ids, of up to 32 KiB."""


class MutationCharge:
    """What one request is charged."""

    __slots__ = ("_bucket", "_is_strict", "_now_ms", "_until_ms")

    def __init__(
        self, bucket: TokenBucket | None = None, *, is_strict: bool = False, now_ms: int = 0
    ) -> None:
        """Charge a bucket, or nothing where the client has no limit."""
        self._bucket = bucket
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._until_ms = now_ms

    def take(self, partition_count: int) -> None:
        """Charge for partitions that are about to be created or deleted.

        Raises RefusedError if the request is held to its limit and the bucket is in debt.
        """
        bucket = self._bucket
        if bucket is None:
            return
        if self._is_strict:
            bucket.fill(self._now_ms)
            if bucket.is_exhausted:
                self._until_ms = self._now_ms + bucket.throttle_ms
                raise RefusedError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.spend(partition_count, self._now_ms)
        if not self._is_strict:
            self._until_ms = self._now_ms + bucket.throttle_ms

    def throttle_ms(self, now_ms: int) -> int:
        """Return for how long the client is still to be throttled."""
        return max(0, self._until_ms - now_ms)


NO_CHARGE = MutationCharge()
"""The charge of what has no limit."""


class MutationQuotas:
    """The buckets of this controller's clients."""

    def __init__(self, shape: WindowShape, custom: CustomLimits | None = None) -> None:
        """`custom` has the limits of `client.quota.callback.class`, where that is set."""
        self._shape = shape
        self._custom = custom
        self._quotas: Mapping[ClientEntity, Mapping[str, float]] | None = None
        self._limits = Limits()
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def charge(
        self,
        quotas: Mapping[ClientEntity, Mapping[str, float]],
        *,
        api_key: int,
        api_version: int,
        user: str,
        client_id: str,
        now_ms: int,
    ) -> MutationCharge:
        """Return the charge of a request, by the quotas of the image it is decided on.

        One without a user is a broker's own, which makes topics of its coordinators.
        """
        strict_from = STRICT_FROM.get(api_key)
        if strict_from is None or not user:
            return NO_CHARGE
        if quotas is not self._quotas:
            self._quotas = quotas
            limits = limits_of(quotas, CONTROLLER_MUTATION_RATE)
            if self._custom is not None:
                self._custom.tell(limits)
            self._limits = self._custom or limits
        match = self._limits.find(user, client_id)
        if match is None:
            return NO_CHARGE
        names = match.counted_as[0][:NAME_CHARS_MAX], match.counted_as[1][:NAME_CHARS_MAX]
        bucket = self._bucket(names, match.limit, now_ms)
        return MutationCharge(bucket, is_strict=api_version >= strict_from, now_ms=now_ms)

    @property
    def buckets(self) -> Mapping[tuple[str, str], TokenBucket]:
        """The buckets by the names of their users and client ids."""
        return self._buckets

    def forget_all(self) -> None:
        """Start with full buckets."""
        self._buckets.clear()

    def _bucket(self, names: tuple[str, str], limit: float, now_ms: int) -> TokenBucket:
        bucket = self._buckets.get(names)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._forget_full(now_ms)
            bucket = self._buckets[names] = TokenBucket(limit, self._shape.span_ms, now_ms)
        elif bucket.per_second != limit:
            bucket.fill(now_ms)
            bucket.per_second = limit
        return bucket

    def _forget_full(self, now_ms: int) -> None:
        """Make room: forget the buckets that are full, else the oldest one."""
        for names, bucket in list(self._buckets.items()):
            bucket.fill(now_ms)
            if bucket.is_full:
                del self._buckets[names]
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]

"""The quota of controller mutations: partitions that clients create and delete (KIP-599).

Pure; the time is an argument. Each client has a token bucket with the limit of its user and client
id. Buckets belong to the active controller: they are not replicated, and a new controller starts
with full buckets. A full bucket has the same effect as a missing one, so full buckets are dropped
first.

The limit is strict if the version of a request supports the error THROTTLING_QUOTA_EXCEEDED: while
the bucket is in debt, topics are refused before any record is written. A request of an older
version is processed, and its client is throttled. As in Kafka, a request with `validate_only`
counts like any other request.

An operator's class may compute the limits (`client.quota.callback.class`). It is called for every
request, so that a changed limit applies to the next request.
"""

from collections.abc import Mapping

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.quotas.quota_callback import CustomLimits
from ottla.model.quotas.quota_limits import ClientEntity, Limits, limits_of
from ottla.model.quotas.rates import WindowShape
from ottla.model.quotas.token_bucket import TokenBucket
from ottla.model.settings.quotas import CONTROLLER_MUTATION_RATE
from ottla.wire.apis import API

BUCKETS_MAX = 10_000
"""Maximum number of clients whose token buckets for partition mutations are stored, at some 500
bytes each. With a smaller number, a client's debt is dropped sooner when very many other clients
make changes."""

NAME_CHARS_MAX = 256
"""Maximum number of characters of a user name or client id that identify a client's token bucket.
Clients choose their client ids, which may have up to 32 KiB."""


class MutationCharge:
    """Charge for one request that creates or deletes partitions. The charge is debited from the
    client's token bucket."""

    __slots__ = ("_bucket", "_is_strict", "_now_ms", "_until_ms")

    def __init__(
        self, bucket: TokenBucket | None = None, *, is_strict: bool = False, now_ms: int = 0
    ) -> None:
        """Create the charge of one request. If `bucket` is None, the client has no limit, and
        nothing is charged. If `is_strict`, requests are refused while the bucket is in debt."""
        self._bucket = bucket
        self._is_strict = is_strict
        self._now_ms = now_ms
        self._until_ms = now_ms

    def take(self, partition_count: int) -> None:
        """Charge the client for partitions that are about to be created or deleted.

        Raises RefusedError if the request is limited strictly and the client's token bucket is in
        debt.
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
        """Return the throttle time of the client in ms, which results from the partitions that it
        has created and deleted."""
        return max(0, self._until_ms - now_ms)


NO_CHARGE = MutationCharge()
"""Charge of a request whose client may create and delete any number of partitions."""


class MutationQuotas:
    """Token buckets of the clients that create and delete partitions at this controller."""

    def __init__(self, shape: WindowShape, custom: CustomLimits | None = None) -> None:
        """Create the quotas without any token buckets.

        `custom` computes the limits by the class in `client.quota.callback.class`; None if the
        setting is not set.
        """
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
        """Return the charge of a request that creates or deletes partitions, according to the
        quotas in the metadata image of its decision.

        A request without a user is not charged: it was sent by a broker that creates the topics of
        its coordinators.
        """
        strict_from = API[api_key].cost.strict_from
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
        """Token buckets for partition mutations, by user and client id."""
        return self._buckets

    def forget_all(self) -> None:
        """Drop all token buckets for partition mutations. Every client then starts with a full
        bucket."""
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
        """Drop all full token buckets, so that a new one can be stored. If none is full, drop the
        oldest one."""
        for names, bucket in list(self._buckets.items()):
            bucket.fill(now_ms)
            if bucket.is_full:
                del self._buckets[names]
        if len(self._buckets) >= BUCKETS_MAX:
            del self._buckets[next(iter(self._buckets))]

"""Limits the rate at which logs are copied between the log directories of a broker."""

import trio

from ottla.broker.quotas.replication_quota import ReplicationQuota


class MoveThrottle:
    """Rate limit of a broker for copies of logs between its log directories. All copies share
    it."""

    def __init__(self, quota: ReplicationQuota) -> None:
        self._quota = quota

    async def take(self, byte_count: int) -> None:
        """Wait until the rate limit allows `byte_count` more bytes to be copied between log
        directories, then count them."""
        quota = self._quota
        while delay_ms := quota.delay_ms():
            await trio.sleep(delay_ms / 1_000)
        if quota.is_limited:
            quota.record(byte_count)

"""Has logs that move between directories wait while they are copied faster than they may be."""

import trio

from ottla.broker.quotas.replication_quota import ReplicationQuota


class MoveThrottle:
    """The quota of all moves of a broker together."""

    def __init__(self, quota: ReplicationQuota) -> None:
        self._quota = quota

    async def take(self, byte_count: int) -> None:
        """Wait until some may be copied, then count what is."""
        quota = self._quota
        while delay_ms := quota.delay_ms():
            await trio.sleep(delay_ms / 1_000)
        if quota.is_limited:
            quota.record(byte_count)
